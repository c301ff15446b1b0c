"""The audit of AMD assembly: parsing, counters over all paths, what the schedule says, and that every rule can be broken."""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from targets.amd import emulator, programs

from treadle.errors import InternalError, KernelRejected
from treadle.frontends.mlir import load
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.amd.assembly import Instruction, Listing, parse
from treadle.targets.amd.audit import audit
from treadle.targets.amd.counters import Counters, Violation, access_bytes, kind_of, waits_of
from treadle.targets.amd.emitted import emitted_amounts
from treadle.targets.amd.flow import natural_loops, replay
from treadle.targets.amd.metadata import read_metadata
from treadle.targets.amd.rules import accumulator_copies, drained_loads, pending_at_barriers, scratch_accesses, unpaired_barriers
from treadle.targets.interface import CompiledKernel, SchedulePoint


def _listing(*lines: str) -> Listing:
    return parse("\n".join(["k:", *lines, "\ts_endpgm", ".Lfunc_end0:"]), "k")


def _counters(*lines: str) -> Counters:
    return Counters(_listing(*lines), own_store_counter=False)


def _pending(*lines: str, points: tuple[SchedulePoint, ...] = ()) -> list[Violation]:
    return pending_at_barriers(_counters(*lines), points)


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


def test_parse_follows_the_line_table() -> None:
    text = ["\t.loc\t1 3 0 prologue_end", "\tv_nop", "\tv_nop", "\t.loc\t1 0 0", "\tv_nop", "\t.loc\t1 9 0 is_stmt 1", "\tv_nop"]
    assert [one.source for one in _listing(*text).instructions] == [3, 3, 0, 9, 9]


def test_natural_loops_follow_the_control_flow_not_the_order_of_the_text() -> None:
    # entry -> 3 (header) -> 1 -> 3, the body above its header; an inner loop at 1.
    code = ["\ts_branch .L3", ".L1:", "\tv_nop", "\ts_cbranch_scc1 .L1", ".L3:", "\ts_cbranch_vccz .L1"]
    listing = _listing(*code)
    assert natural_loops(listing) == [frozenset({1, 2}), frozenset({1, 2, 3})]
    assert natural_loops(_listing("\ts_cbranch_scc1 .L2", "\tv_nop", ".L2:", "\tv_nop")) == []


@pytest.mark.parametrize(
    ("text", "kind", "size"),
    [
        ("ds_read_b128 v[0:3], v4", "local_load", 16),
        ("ds_read2st64_b64 v[0:3], v4 offset1:4", "local_load", 16),
        ("ds_read_u16_d16_hi v0, v4", "local_load", 2),
        ("ds_load_2addr_b32 v[0:1], v4", "local_load", 8),
        ("ds_write_b8 v0, v1", "local_store", 1),
        ("ds_store_2addr_stride64_b64 v0, v[2:3], v[4:5]", "local_store", 16),
        ("global_load_dwordx4 v[0:3], v[4:5], off", "load", 16),
        ("global_load_ushort v0, v[4:5], off", "load", 2),
        ("global_load_d16_hi_u8 v0, v[4:5], off", "load", 1),
        ("global_load_b96 v[0:2], v[4:5], off", "load", 12),
        ("buffer_load_dwordx4 v0, s[0:3], 0 offen lds", "copy", 16),
        ("global_load_lds_dwordx4 v[0:1], off", "copy", 16),
        ("global_store_short_d16_hi v[0:1], v2, off", "store", 2),
        ("global_store_d16_hi_b16 v[0:1], v2, off", "store", 2),
        ("global_store_dwordx2 v[0:1], v[2:3], off", "store", 8),
        ("global_atomic_add_f32 v[0:1], v2, off", "store", 4),
        ("ds_bpermute_b32 v0, v1, v2", "lane", 4),
        ("buffer_gl0_inv", None, 0),
    ],
)
def test_kinds_and_widths(text: str, kind: str | None, size: int) -> None:
    (one, _) = _listing("\t" + text).instructions
    assert kind_of(one) == kind
    assert access_bytes(one) == size


def test_waits_of_all_generations() -> None:
    def wait(text: str) -> dict[str, int]:
        return {str(counter): left for counter, left in waits_of(_listing("\t" + text).instructions[0]).items()}

    assert wait("s_waitcnt vmcnt(3) lgkmcnt(2)") == {"vector": 3, "local": 2}
    assert wait("s_waitcnt vmcnt(0)") == {"vector": 0}
    assert wait("s_waitcnt_vscnt null, 0x1") == {"vector_store": 1}
    assert wait("s_wait_dscnt 0x5") == {"local": 5}
    assert wait("s_wait_loadcnt_dscnt 0x301") == {"vector": 3, "local": 1}
    assert wait("s_wait_storecnt_dscnt 0x200") == {"vector_store": 2, "local": 0}
    assert wait("s_wait_loadcnt 0x0") == {"vector": 0}
    assert wait("s_wait_alu 0xfffd") == wait("s_wait_kmcnt 0x0") == {}


def test_waits_leave_the_newest() -> None:
    code = ["\tds_write_b64 v0, v[2:3]", "\tds_read_b64 v[4:5], v1", "\ts_waitcnt lgkmcnt(1)", "\tds_read_b64 v[6:7], v1", "\ts_barrier"]
    seen: dict[int, list[int]] = {}
    _counters(*code).may_be_pending(lambda at, ages: seen.update({at: sorted(ages)}))
    assert seen[2] == [0, 1]
    assert seen[3] == [1]
    assert seen[4] == [1, 3]


@pytest.mark.parametrize("own_store_counter", [False, True])
def test_stores_count_where_the_machine_counts_them(own_store_counter: bool) -> None:
    code = ["\tglobal_load_lds_dword v[0:1], off", "\tglobal_store_dword v[0:1], v2, off", "\ts_waitcnt vmcnt(1)", "\ts_barrier"]
    found = pending_at_barriers(Counters(_listing(*code), own_store_counter=own_store_counter), ())
    assert len(found) == own_store_counter  # the store is the newest one of GFX9's counter; with one of its own the copy is


@pytest.mark.parametrize("access", ["ds_write_b64 v0, v[2:3]", "ds_read_b128 v[0:3], v9", "ds_store_b128 v0, v[2:5]", "ds_load_b32 v0, v1"])
def test_pending_accesses_at_a_barrier(access: str) -> None:
    assert not _pending("\t" + access, "\ts_waitcnt lgkmcnt(0)", "\ts_barrier")
    assert not _pending("\ts_barrier", "\t" + access)
    (found,) = _pending("\t" + access, "\ts_waitcnt vmcnt(0)", "\ts_barrier")
    assert (found.rule, found.line) == ("A4", 4)
    (found,) = _pending("\t" + access, "\ts_wait_loadcnt 0x0", "\ts_barrier_signal -1", "\ts_barrier_wait -1")
    assert found.line == 4


def test_pending_accesses_around_a_loop_and_past_a_branch() -> None:
    around = ["\ts_waitcnt lgkmcnt(0)", ".L1:", "\ts_barrier", "\tds_read_b64 v[0:1], v2", "\ts_cbranch_scc1 .L1"]
    assert [v.line for v in _pending(*around)] == [4]
    past = ["\tds_write_b8 v0, v1", "\ts_cbranch_execz .L2", "\ts_waitcnt lgkmcnt(0)", ".L2:", "\ts_barrier"]
    assert [v.line for v in _pending(*past)] == [6]
    lanes = ["\tds_bpermute_b32 v0, v1, v2", "\ts_barrier"]
    assert not _pending(*lanes)


def test_branches_around_many_loads_are_followed_once_each() -> None:
    count = 60
    guarded = [[f"\ts_cbranch_execz .L{n}", f"\tglobal_load_dword v{n}, v[8:9], off", f".L{n}:", "\tv_nop"] for n in range(count)]
    listing = _listing(*(line for lines in guarded for line in lines))
    steps: list[int] = []

    def step(at: int, ages: dict[int, int]) -> None:
        steps.append(at)
        ages.update({old: age + 1 for old, age in ages.items()})
        ages[at] = 0

    replay(listing, lambda at: listing.instructions[at].mnemonic.startswith("global"), step, min, lambda at, ages: None)
    assert len(steps) == 2 * count  # once to find what is pending, once to tell it


def test_direct_copies_may_be_pending_only_where_the_schedule_has_them_under_way() -> None:
    copy = "\tbuffer_load_dwordx4 v0, s[0:3], 0 offen lds"
    code = ["\t.loc\t1 4 0", copy, "\t.loc\t1 5 0", copy, "\t.loc\t1 7 0", "\ts_waitcnt vmcnt({})", "\ts_barrier"]
    one_left = (SchedulePoint(7, "barrier", (), (), (5,)),)
    for pending, broken in ((0, False), (1, False), (2, True)):
        found = _pending(*(line.format(pending) for line in code), points=one_left)
        assert [v.rule for v in found] == ["A4"] * broken
    assert _pending(*(line.format(1) for line in code))


def test_loads_that_the_schedule_has_under_way_are_not_waited_for() -> None:
    points = (SchedulePoint(2, "load", (1,), (2,)), SchedulePoint(3, "barrier", (1,), (2,)), SchedulePoint(4, "local_store", (1,), ()))
    load_, barrier, store = (f"\t.loc\t1 {n} 0" for n in (2, 3, 4))
    wide, narrow = "\tglobal_load_dword v0, v[2:3], off", "\tglobal_load_ubyte v0, v[2:3], off"

    def drained(*between: str, load: str = wide) -> list[str]:
        use = ["\ts_waitcnt vmcnt(0)", "\tds_write_b32 v1, v0", "\ts_cbranch_scc1 .L1"]
        code = [".L1:", load_, *load.splitlines(), barrier, *between, "\ts_barrier", store, *use]
        return [v.rule for v in drained_loads(_counters(*code), points)]

    assert drained() == []  # the wait at the end belongs to the load of its own trip
    assert drained("\ts_waitcnt vmcnt(1)") == []
    assert drained("\ts_waitcnt vmcnt(0)") == ["A5"]
    assert drained("\tglobal_store_dword v[0:1], v2, off", "\ts_waitcnt vmcnt(1)") == ["A5"]
    assert drained("\ts_waitcnt vmcnt(0)", load=narrow) == []
    masked = f"\ts_cbranch_execz .L2\n{wide}\n.L2:\n\tv_nop"
    assert drained(load=masked) == []
    moved = f"\ts_cbranch_execnz .L2\n\ts_branch .L4\n.L2:\n{wide}\n\ts_branch .L4\n.L4:\n\tv_nop"
    assert drained(load=moved) == []
    assert drained("\ts_cbranch_scc0 .L3", "\ts_waitcnt vmcnt(0)", ".L3:", load=masked) == ["A5"]


def test_loads_that_break_no_rule_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is followed along every path: hundreds of narrow loads behind branches of their own would take minutes."""
    followed, pending = list[int](), Counters.surely_pending

    def counted(self: Counters, accesses: Collection[int], *more: Any) -> None:
        followed.extend(accesses)
        pending(self, accesses, *more)

    monkeypatch.setattr(Counters, "surely_pending", counted)
    wide, narrow = "\tglobal_load_dword v0, v[2:3], off", "\tglobal_load_ubyte v0, v[2:3], off"
    lines = ["\t.loc\t1 1 0", wide, ".L1:", "\t.loc\t1 2 0", *[narrow] * 9, wide, "\ts_barrier", "\ts_cbranch_scc1 .L1"]
    counters = _counters(*lines)
    assert drained_loads(counters, (SchedulePoint(2, "load", (1,), (2,)),)) == []
    assert [counters.listing.instructions[at].mnemonic for at in followed] == ["global_load_dword"]


def test_split_barriers_pair_up() -> None:
    signal, wait = "\ts_barrier_signal -1", "\ts_barrier_wait -1"
    assert not unpaired_barriers(_listing(signal, wait, signal, wait))
    assert [v.line for v in unpaired_barriers(_listing(signal, signal, wait))] == [3]
    assert [v.line for v in unpaired_barriers(_listing(wait))] == [2]
    assert [v.line for v in unpaired_barriers(_listing(signal))] == [3]


def test_accumulator_copies_count_in_loops_only() -> None:
    copy = "\tv_accvgpr_read_b32 v0, a0"
    assert not accumulator_copies(_counters(copy))
    found = accumulator_copies(_counters(copy, ".L1:", copy, "\ts_cbranch_scc1 .L1", copy))
    assert [(v.rule, v.line) for v in found] == [("A2", 4)]
    store = "\tglobal_store_dword v[0:1], v0, off"
    inner = [".L2:", copy, "\ts_cbranch_scc1 .L2"]
    around = accumulator_copies(_counters(".L1:", "\ts_nop 0", *inner, copy, store, "\ts_cbranch_scc1 .L1"))
    assert [v.line for v in around] == [5], "a loop over tiles reads the sums of each"
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


def _refused(kernel: CompiledKernel, text: str) -> str:
    with pytest.raises(KernelRejected) as caught:
        audit(kernel.emitted, text, read_metadata(kernel.assembly, kernel.symbol))
    return str(caught.value)


def test_the_audit_refuses_what_is_wrong(large: CompiledKernel) -> None:
    emitted, text = large.emitted, large.assembly
    metadata = read_metadata(text, large.symbol)
    assert audit(emitted, text, metadata) == large.facts.instructions
    lines = text.splitlines()
    waits = ("s_waitcnt", "s_wait_dscnt", "s_wait_loadcnt_dscnt")
    bare = "\n".join("" if line.strip().startswith(waits) else line for line in lines)
    pattern = rf"kernel '{large.symbol}' is rejected: rule A4, line \d+ .*from tile.local_\w+ at <text>:\d.*from sync.barrier at <text>:\d"
    assert re.search(pattern, _refused(large, bare))
    at = next(i for i, line in enumerate(lines) if line.strip().startswith(("v_mfma", "v_wmma")))
    assert "rule A2" in _refused(large, "\n".join([*lines[:at], "\tscratch_load_dword v0, off, s32", *lines[at:]]))
    with pytest.raises(KernelRejected, match="rule A2"):
        audit(emitted, text, replace(metadata, private_bytes=16))
    assert "rule A1" in _refused(large, text.replace("v_mfma", "v_other").replace("v_wmma", "v_other"))


@pytest.fixture(scope="module", params=[(target, stages) for target in programs.TARGETS for stages in (2, 3)])
def pipelined(request: pytest.FixtureRequest) -> CompiledKernel:
    """A ragged contraction whose loads go through registers one or two steps ahead."""
    target, stages = request.param
    module = load(programs.matmul(150, 140, 200, "f16", "f32", bias=True).text)
    lower(module, target_spec(target), CompileOptions(pipeline_stages=stages, tile=(64, 64, 32), warps=(2, 2)))
    (kernel,) = emulator.compile_kernels(module, target).values()
    return kernel


def _steady_loop(kernel: CompiledKernel) -> tuple[Listing, list[Instruction]]:
    listing = parse(kernel.assembly, kernel.symbol, kernel.emitted.expected.sources)
    loop = max(natural_loops(listing), key=lambda body: sum(kind_of(listing.instructions[at]) == "matrix" for at in body))
    return listing, [listing.instructions[at] for at in sorted(loop)]


def _with(kernel: CompiledKernel, line: int, *added: str, dropped: bool = False) -> str:
    """The assembly with lines put in front of one (counted from 1), or in its place."""
    lines = kernel.assembly.splitlines()
    return "\n".join([*lines[: line - 1], *added, *lines[line - 1 + dropped :]])


def _wait_for_loads(kernel: CompiledKernel) -> str:
    return "\ts_wait_loadcnt 0x0" if kernel.emitted.cpu == "gfx1201" else "\ts_waitcnt vmcnt(0)"


def _steps(kernel: CompiledKernel) -> int:
    """Steps in a trip of the steady loop: each loads two tiles."""
    return sum(point.kind == "load" and bool(point.loops) for point in kernel.emitted.expected.points) // 2


def test_the_schedule_says_what_is_under_way_in_the_steady_loop(pipelined: CompiledKernel) -> None:
    expected = pipelined.emitted.expected
    steady = [point for point in expected.points if point.loops]
    barriers = [point for point in steady if point.kind == "barrier"]
    contractions = [point for point in steady if point.kind == "matrix"]
    assert len(barriers) == 2 * _steps(pipelined)
    assert all(point.loads for point in (*barriers, *contractions))
    loads = {point.line for point in expected.points if point.kind == "load"}
    assert all(loads.issuperset(point.loads) for point in steady)
    assert not any(point.loads for point in expected.points if not point.loops)
    amounts = emitted_amounts(pipelined.emitted.llvm_text)
    assert sum(amounts[point.line]["matrix"] for point in contractions) == sum(
        kind_of(one) == "matrix" for one in _steady_loop(pipelined)[1]
    )


def test_a_wait_ahead_of_its_time_is_refused(pipelined: CompiledKernel) -> None:
    """At each barrier and matrix instruction of the loop, wherever LLVM has put the loads of the other steps of a trip."""
    _, body = _steady_loop(pipelined)
    wait = _wait_for_loads(pipelined)
    for kind, rule, op in (("barrier", "A5", "sync.barrier"), ("matrix", "A3", "(tile.contract|scf.for)")):
        for one in (one for one in body if kind_of(one) == kind):
            message = _refused(pipelined, _with(pipelined, one.line, wait))
            assert re.search(rf"rule {rule}, .*from tile.load at <text>:\d.* ahead of \S+ \(from {op} at <text>:\d", message), message


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_loads_under_conditions_stay_in_flight(target: str) -> None:
    """Vectors that stores take apart: each load was waited for behind its branch, and the code refused (A5)."""
    module = load(programs.matmul(76, 103, 409, "f32", "f32", transposed="a").text)
    lower(module, target_spec(target), CompileOptions(pipeline_stages=2))
    assert emulator.compile_kernels(module, target)


def test_a_loop_that_is_not_the_schedules_is_refused(pipelined: CompiledKernel) -> None:
    _, body = _steady_loop(pipelined)
    matrix = next(one for one in body if kind_of(one) == "matrix")
    store = next(one for one in body if kind_of(one) == "local_store")
    again = pipelined.assembly.splitlines()[matrix.line - 1]
    place = r"\(from scf.for at <text>:\d"
    assert re.search(
        rf"rule A1, .*matrix instructions in a loop of the code, .*{place}", _refused(pipelined, _with(pipelined, matrix.line, again))
    )
    assert re.search(r"rule A1, .*matrix instructions", _refused(pipelined, _with(pipelined, matrix.line, dropped=True)))
    assert re.search(r"rule A1, .*stores to shared memory", _refused(pipelined, _with(pipelined, store.line, dropped=True)))
    last = [one for one in body if kind_of(one) == "matrix"][-1]
    assert re.search(rf"rule A1, .*no loop of the code holds all .*{place}", _refused(pipelined, _with(pipelined, last.line, "\ts_endpgm")))


def test_an_invalidated_cache_is_refused(pipelined: CompiledKernel) -> None:
    _, body = _steady_loop(pipelined)
    for text in ("\tbuffer_gl0_inv", "\tglobal_inv scope:SCOPE_SE", "\tbuffer_inv sc0"):
        assert "rule A9" in _refused(pipelined, _with(pipelined, body[1].line, text))


def test_one_wave_has_no_barriers() -> None:
    module = programs.lowered(
        programs.matmul(40, 40, 70, "f16", "f32").text, "gfx942", tile_m=32, tile_n=32, tile_k=32, warps_m=1, warps_n=1
    )
    (kernel,) = emulator.compile_kernels(module, "gfx942").values()
    assert "s_barrier" not in kernel.facts.instructions
    assert any(point.kind == "barrier" for point in kernel.emitted.expected.points)
