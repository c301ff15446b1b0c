"""What is read off a loop: foreign texts, waits and what they wait for, bank conflicts from addresses, the model of a matrix unit."""

from collections.abc import Callable

import pytest
from targets.amd import programs

from treadle.driver.lowering import tile_kernels
from treadle.frontends.mlir import load
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.amd.assembly import kernel_names, parse
from treadle.targets.amd.backend import AmdBackend
from treadle.targets.amd.cycles import matrix_cycles
from treadle.targets.amd.lane_values import LaneValues, bank_uses
from treadle.targets.loop_report import LoopReport, ReportsLoops
from treadle.targets.registry import backend

GFX942 = target_spec("gfx942")
MFMA = "\tv_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]"


def _loop(*body: str, before: tuple[str, ...] = ()) -> LoopReport:
    text = ["k:", *before, ".L1:", *body, "\ts_cbranch_scc1 .L1", "\ts_endpgm", "\t.amdhsa_kernel k"]
    (found,) = AmdBackend(GFX942).read_reports("\n".join(text))
    return found


def test_waits_between_matrix_instructions_and_what_they_wait_for() -> None:
    fetch, read = "\tglobal_load_dwordx4 v[4:7], v[8:9], off", "\tds_read_b64 v[0:1], v9"
    loop = _loop(fetch, read, "\ts_waitcnt lgkmcnt(0)", MFMA, "\ts_waitcnt vmcnt(0)", MFMA, "\ts_waitcnt vmcnt(0) lgkmcnt(0)")
    assert (loop.inner_waits, loop.load_waits, loop.drains) == ((("load",),), 1, 2)
    assert (loop.matrix, loop.instructions, loop.loads, loop.shared_loads) == (2, 8, 1, 1)
    loop = _loop(fetch, MFMA, read, "\ts_waitcnt lgkmcnt(0)", MFMA, "\ts_waitcnt vmcnt(0)")
    assert (loop.inner_waits, loop.load_waits, loop.drains) == ((("local_load",),), 0, 1)


def test_waits_are_within_a_stage_wherever_the_text_begins_it() -> None:
    fetch, wait = "\tglobal_load_dwordx4 v[4:7], v[8:9], off", "\ts_waitcnt vmcnt(0)"
    rotated = [fetch, "\ts_branch .L2", ".L1:", wait, MFMA, "\ts_barrier", fetch, ".L2:", MFMA, "\ts_cbranch_scc1 .L1", "\ts_endpgm"]
    (found,) = AmdBackend(GFX942).read_reports("\n".join(["k:", *rotated, "\t.amdhsa_kernel k"]))
    assert found.inner_waits == (("load",),)
    bordered = [fetch, "\ts_branch .L2", ".L1:", wait, "\ts_barrier", MFMA, fetch, ".L2:", MFMA, "\ts_cbranch_scc1 .L1", "\ts_endpgm"]
    (found,) = AmdBackend(GFX942).read_reports("\n".join(["k:", *bordered, "\t.amdhsa_kernel k"]))
    assert found.inner_waits == ()
    assert _loop(wait, MFMA, MFMA, fetch).inner_waits == (), "without barriers a trip is a stage"


def test_disassembly_has_addresses_for_labels() -> None:
    text = """
0000000000001900 <k>:
\tv_and_b32_e32 v1, 15, v0                                   // 000000001900: 2602008F
\tv_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]      // 000000001904: D3CD8000 04020500
\ts_cbranch_scc1 65533                                       // 00000000190C: BF85FFFD <k+0x4>
\ts_endpgm                                                   // 000000001910: BF810000

0000000000001a00 <other>:
\ts_endpgm                                                   // 000000001A00: BF810000
"""
    assert kernel_names(text) == ("k", "other")
    listing = parse(text, "k")
    assert [one.target for one in listing.instructions] == [None, None, 1, None]
    (loop,) = AmdBackend(GFX942).read_reports(text)
    assert (loop.kernel, loop.matrix, loop.instructions, loop.registers) == ("k", 1, 2, 8)


ARITHMETIC: list[tuple[str, Callable[[int], int]]] = [
    ("v_lshlrev_b32_e32 v1, 4, v0", lambda lane: lane << 4),
    ("v_and_b32_e32 v1, 15, v0\n v_mul_u32_u24_e32 v1, 0x48, v1", lambda lane: (lane & 15) * 72),
    ("v_bfe_u32 v1, v0, 3, 2\n v_lshl_or_b32 v1, v1, 5, v0", lambda lane: (lane >> 3 & 3) << 5 | lane),
    ("v_lshrrev_b32_e32 v2, 1, v0\n v_bitop3_b32 v1, v2, 24, v0 bitop3:0x48", lambda lane: (lane >> 1 ^ lane) & 24),
    ("v_dual_lshlrev_b32 v1, 1, v0 :: v_dual_mov_b32 v2, 7", lambda lane: lane << 1),
    ("v_mbcnt_lo_u32_b32 v1, -1, 0\n v_mbcnt_hi_u32_b32 v1, -1, v1", lambda lane: lane),
    ("s_mov_b32 s1, 12\n v_add_u32_e32 v1, s1, v0", lambda lane: lane + 12),
    ("v_sub_u32_e32 v1, 3, v0", lambda lane: (3 - lane) % 2**32),
    ("v_lshrrev_b32_e32 v2, 6, v0\n v_readfirstlane_b32 s2, v2\n v_add_u32_e32 v1, s2, v0", lambda lane: lane),
]


@pytest.mark.parametrize(("code", "expected"), ARITHMETIC)
def test_lanes_follow_address_arithmetic(code: str, expected: Callable[[int], int]) -> None:
    values = LaneValues(64)
    for one in parse("k:\n" + "\n".join("\t" + line.strip() for line in code.splitlines()), "k").instructions:
        values.step(one)
    assert values.value("v1") == tuple(expected(lane) for lane in range(64))


def test_what_is_no_address_arithmetic_is_not_known() -> None:
    values = LaneValues(64)
    for text in ("v_mov_b32_e32 v1, v0", "ds_read_b64 v[0:1], v9", "v_add_u32_e32 v2, v0, v0"):
        values.step(parse("k:\n\t" + text, "k").instructions[0])
    assert [values.value(f"v{n}") for n in range(3)] == [None, None, None]


@pytest.mark.parametrize(
    ("address", "access", "extra"),
    [
        ("v_lshlrev_b32_e32 v1, 2, v0", "ds_read_b32 v2, v1", 0),
        ("v_lshlrev_b32_e32 v1, 3, v0", "ds_read_b32 v2, v1", 2),  # every other bank: two wavefronts for each of the two halves
        ("v_lshlrev_b32_e32 v1, 7, v0", "ds_write_b32 v1, v2", 62),  # one bank
        ("v_mov_b32_e32 v1, 64", "ds_read_b32 v2, v1", 0),  # one word for all
        ("v_lshlrev_b32_e32 v1, 4, v0", "ds_read_b128 v[4:7], v1 offset:64", 0),
        ("v_mul_u32_u24_e32 v1, 0x90, v0", "ds_read_b128 v[4:7], v1", 0),  # rows of 128 bytes and 16 between them
        ("v_lshlrev_b32_e32 v1, 3, v0", "ds_read2st64_b64 v[4:7], v1 offset1:4", 0),
        ("v_cvt_f32_u32_e32 v1, v0", "ds_read_b32 v2, v1", None),
    ],
)
def test_bank_conflicts_are_computed_from_addresses(address: str, access: str, extra: int | None) -> None:
    listing = parse("\n".join(["k:", "\t" + address, ".L1:", "\t" + access, "\ts_cbranch_scc1 .L1"]), "k")
    (use,) = bank_uses(listing, frozenset({1, 2}), GFX942.banks, 64).values()
    assert (use.extra if use is not None else None) == extra


@pytest.mark.parametrize(
    ("mnemonic", "target", "cycles"),
    [
        ("v_mfma_f32_16x16x16_f16", "gfx942", 16),
        ("v_mfma_f32_32x32x8_bf16_1k", "gfx942", 32),
        ("v_mfma_i32_16x16x32_i8", "gfx942", 16),
        ("v_mfma_f32_16x16x32_fp8_fp8", "gfx942", 16),
        ("v_mfma_f32_32x32x16_f16", "gfx950", 32),
        ("v_wmma_f32_16x16x16_f16", "gfx1100", 32),
        ("v_wmma_i32_16x16x16_iu8", "gfx1201", 8),
        ("v_add_f32_e32", "gfx942", 0),
    ],
)
def test_rates_of_matrix_instructions_of_any_shape(mnemonic: str, target: str, cycles: int) -> None:
    assert matrix_cycles(mnemonic, target_spec(target)) == cycles


def test_the_model_sees_what_hides_what() -> None:
    """Loads used at once cost their latency, loads used a step later hide behind the matrix instructions; no unit is more than full."""
    fetch, use = "\tglobal_load_dwordx4 v[4:7], v[8:9], off", "\ts_waitcnt vmcnt(0)"
    crowded = ("\tv_mov_b32_e32 v255, 0", "\tv_accvgpr_write_b32 a255, v255")  # one wave has all registers
    at_once = _loop(fetch, use, *[MFMA] * 64, before=crowded)
    ahead = _loop(fetch, *[MFMA] * 64, use, before=crowded)
    assert ahead.waves == 1
    assert at_once.cycles > ahead.cycles >= 64 * 16 * ahead.waves
    assert at_once.matrix_share < ahead.matrix_share <= 1


@pytest.mark.parametrize("target", programs.TARGETS)
def test_our_own_loops(target: str) -> None:
    own = backend(target)
    assert isinstance(own, ReportsLoops)
    module = load(programs.matmul(256, 256, 256, "f16", "f32", transposed="b").text)
    lower(module, target_spec(target), CompileOptions(pipeline_stages=2))
    (loop,) = [found for kernel in tile_kernels(module) if (found := own.report(kernel)) is not None]
    assert (loop.broken, loop.load_waits, loop.moves, loop.scratch, loop.conflicts) == ((), 0, 0, 0, 0.0)
    assert 0 < loop.matrix_share <= 1


def test_other_vendors_say_that_they_cannot() -> None:
    assert not isinstance(backend("sm_90a"), ReportsLoops)
