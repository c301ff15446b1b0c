"""The audit of AMD assembly: parsing, counters over all paths, and that every rule can be broken."""

from dataclasses import replace

import pytest
from targets.amd import emulator, programs

from treadle.errors import InternalError
from treadle.targets.amd.assembly import parse
from treadle.targets.amd.audit import accumulator_copies, audit, scratch_accesses, violations
from treadle.targets.amd.counters import State, pending_at_barriers, shared_wait, step, unpaired_barriers
from treadle.targets.amd.metadata import read_metadata
from treadle.targets.interface import CompiledKernel


def _listing(*lines: str):
    return parse("\n".join(["k:", *lines, "\ts_endpgm", ".Lfunc_end0:"]), "k")


def test_parse_finds_loops_and_lines() -> None:
    listing = _listing("; comment", "\ts_mov_b32 s0, 0 ; x", ".L1:", "\tv_add_f32_e32 v0, v1, v2", "\ts_cbranch_scc1 .L1")
    assert [one.mnemonic for one in listing.instructions] == ["s_mov_b32", "v_add_f32_e32", "s_cbranch_scc1", "s_endpgm"]
    assert [one.line for one in listing.instructions] == [3, 5, 6, 7]
    assert listing.loops == ((1, 2),)
    assert listing.instructions[0].operands == "s0, 0"
    with pytest.raises(InternalError, match="not in the kernel"):
        _listing("\ts_branch .Lelsewhere")
    with pytest.raises(InternalError, match="no instructions"):
        parse("other:\n\ts_endpgm\n", "k")


def test_waits_of_all_generations() -> None:
    def wait(text: str) -> int | None:
        return shared_wait(_listing("\t" + text).instructions[0])

    assert wait("s_waitcnt vmcnt(3) lgkmcnt(2)") == 2
    assert wait("s_waitcnt vmcnt(0)") is None
    assert wait("s_wait_dscnt 0x5") == 5
    assert wait("s_wait_loadcnt_dscnt 0x301") == 1
    assert wait("s_wait_loadcnt 0x0") is None


def test_waits_leave_the_newest() -> None:
    listing = _listing("\tds_write_b64 v0, v[2:3]", "\tds_read_b64 v[4:5], v1", "\ts_waitcnt lgkmcnt(1)", "\ts_waitcnt lgkmcnt(0)")
    states = [State()]
    for one in listing.instructions[:4]:
        states.append(step(states[-1], one))
    assert states[1:] == [("write",), ("write", "read"), ("read",), ()]
    for _ in range(500):
        states.append(step(states[-1], listing.instructions[1]))
    assert len(states[-1]) <= 65  # loops end


@pytest.mark.parametrize("access", ["ds_write_b64 v0, v[2:3]", "ds_read_b128 v[0:3], v9", "ds_store_b128 v0, v[2:5]", "ds_load_b32 v0, v1"])
def test_pending_accesses_at_a_barrier(access: str) -> None:
    assert not pending_at_barriers(_listing("\t" + access, "\ts_waitcnt lgkmcnt(0)", "\ts_barrier"))
    assert not pending_at_barriers(_listing("\ts_barrier", "\t" + access))
    (found,) = pending_at_barriers(_listing("\t" + access, "\ts_waitcnt vmcnt(0)", "\ts_barrier"))
    assert (found.rule, found.line) == ("A4", 4)
    (found,) = pending_at_barriers(_listing("\t" + access, "\ts_wait_loadcnt 0x0", "\ts_barrier_signal -1", "\ts_barrier_wait -1"))
    assert found.line == 4


def test_pending_accesses_around_a_loop_and_past_a_branch() -> None:
    around = ["\ts_waitcnt lgkmcnt(0)", ".L1:", "\ts_barrier", "\tds_read_b64 v[0:1], v2", "\ts_cbranch_scc1 .L1"]
    assert [v.line for v in pending_at_barriers(_listing(*around))] == [4]
    past = ["\tds_write_b8 v0, v1", "\ts_cbranch_execz .L2", "\ts_waitcnt lgkmcnt(0)", ".L2:", "\ts_barrier"]
    assert [v.line for v in pending_at_barriers(_listing(*past))] == [6]
    lanes = ["\tds_bpermute_b32 v0, v1, v2", "\ts_barrier"]
    assert not pending_at_barriers(_listing(*lanes))


def test_split_barriers_pair_up() -> None:
    signal, wait = "\ts_barrier_signal -1", "\ts_barrier_wait -1"
    assert not unpaired_barriers(_listing(signal, wait, signal, wait))
    assert [v.line for v in unpaired_barriers(_listing(signal, signal, wait))] == [3]
    assert [v.line for v in unpaired_barriers(_listing(wait))] == [2]
    assert [v.line for v in unpaired_barriers(_listing(signal))] == [3]


def test_accumulator_copies_count_in_loops_only() -> None:
    copy = "\tv_accvgpr_read_b32 v0, a0"
    assert not accumulator_copies(_listing(copy))
    listing = _listing(copy, ".L1:", copy, "\ts_cbranch_scc1 .L1", copy)
    assert [v.line for v in accumulator_copies(listing)] == [4]
    assert [v.rule for v in violations(listing, contraction=True)] == ["A2"]
    assert not violations(listing, contraction=False)
    assert [v.line for v in scratch_accesses(_listing("\tscratch_store_dword off, v0, s32"))] == [2]


@pytest.fixture(scope="module", params=programs.TARGETS)
def large(request: pytest.FixtureRequest) -> CompiledKernel:
    """A 128 x 128 x 32 tile of f16 on four warps, with a loop along k."""
    program = programs.matmul(256, 256, 256, "f16", "f32")
    module = programs.lowered(program.text, request.param, tile_m=128, tile_n=128, tile_k=32, warps_m=2, warps_n=2)
    (kernel,) = emulator.compile_kernels(module, request.param).values()
    return kernel


def test_a_large_tile_has_a_clean_loop(large: CompiledKernel) -> None:
    target = large.emitted.cpu
    listing = parse(large.assembly, large.symbol)
    (loop,) = listing.loops
    inside = [one.mnemonic for one in listing.instructions[loop[0] : loop[1] + 1]]
    matrix = sum(m.startswith(("v_mfma", "v_wmma")) for m in inside)
    per_warp = {"gfx942": 32, "gfx950": 16}.get(target, 32)
    assert matrix == per_warp == large.emitted.expected.matrix_instructions
    assert not any(m.startswith(("v_accvgpr", "scratch_")) for m in inside)
    assert inside.count("s_barrier") + inside.count("s_barrier_signal") == 2
    assert not any("_inv" in m for m in inside)
    assert large.facts.spill_bytes == large.facts.stack_bytes == 0
    assert large.facts.param_offsets == (0, 8, 16)
    assert large.facts.param_bytes == 24
    assert large.facts.static_shared_bytes == 16384
    assert large.facts.registers <= 256
    assert large.binary[:4] == b"\x7fELF"


def test_the_audit_refuses_what_is_wrong(large: CompiledKernel) -> None:
    emitted, text = large.emitted, large.assembly
    metadata = read_metadata(text, large.symbol)
    assert audit(emitted, text, metadata) == large.facts.instructions
    lines = text.splitlines()
    waits = ("s_waitcnt", "s_wait_dscnt", "s_wait_loadcnt_dscnt")
    bare = "\n".join("" if line.strip().startswith(waits) else line for line in lines)
    with pytest.raises(InternalError, match=rf"kernel {large.symbol}, rule A4, line \d+"):
        audit(emitted, bare, metadata)
    at = next(i for i, line in enumerate(lines) if line.strip().startswith(("v_mfma", "v_wmma")))
    with pytest.raises(InternalError, match="rule A2"):
        audit(emitted, "\n".join([*lines[:at], "\tscratch_load_dword v0, off, s32", *lines[at:]]), metadata)
    with pytest.raises(InternalError, match="rule A2"):
        audit(emitted, text, replace(metadata, private_bytes=16))
    with pytest.raises(InternalError, match="matrix instructions"):
        audit(emitted, text.replace("v_mfma", "v_other").replace("v_wmma", "v_other"), metadata)
