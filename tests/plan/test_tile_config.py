"""Tile choices as pure functions."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import known_targets, target_spec
from treadle.plan.pointwise_tiles import AxisShape, pointwise_tile
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.tile_config import (
    ContractionShape,
    ContractionTile,
    ContractionTypes,
    TileProblem,
    contraction_cost,
    contraction_tile,
    contraction_types,
    next_power_of_two,
    tile_refusal,
    tiles_for,
)

SIZES = st.one_of(st.none(), st.integers(1, 100_000))


@given(m=SIZES, n=SIZES, k=SIZES, batch=SIZES, target=st.sampled_from(known_targets()), kind=st.sampled_from(["f16", "f32", "i8"]))
def test_contraction_tiles_fit_their_instruction(m: int, n: int, k: int, batch: int, target: str, kind: str) -> None:
    spec = target_spec(target)
    result = "i32" if kind == "i8" else "f32"
    types = contraction_types(spec, kind, kind, result, ("", ""), False)
    tile = contraction_tile(TileProblem(types, ContractionShape(batch, m, n, k), spec))
    assert tile.num_warps * spec.subgroup_size <= spec.max_threads_per_workgroup
    if types.instruction != "fma":
        row = spec.instruction(types.instruction)
        assert tile.m % (row.m * max(tile.warps_m // row.warps, 1)) == 0
        assert tile.k % row.k == 0


@pytest.mark.parametrize("target", known_targets())
@pytest.mark.parametrize("kind", ["bf16", "f32", "i8"])
@pytest.mark.parametrize("sums", [1, 2, 3, 4])
def test_sums_of_several_contractions_fit_the_registers_of_one(target: str, kind: str, sums: int) -> None:
    spec = target_spec(target)
    types = contraction_types(spec, kind, kind, "i32" if kind == "i8" else "f32", ("", ""), False)
    one = contraction_tile(TileProblem(types, ContractionShape(1, 4096, 4096, 4096), spec))
    tile = contraction_tile(TileProblem(types, ContractionShape(1, 4096, 4096, 4096, sums), spec))
    assert sums * tile.m * tile.n // tile.num_warps <= one.m * one.n // one.num_warps
    assert sums * tile.m * tile.n // tile.num_warps >= one.m * one.n // one.num_warps // 2
    if types.instruction != "fma" and not spec.instruction(types.instruction).reads_shared:
        assert tile.n % (spec.instruction(types.instruction).n * tile.warps_n) == 0


def test_a_narrow_result_takes_a_narrow_tile() -> None:
    spec = target_spec("sm_90a")
    types = contraction_types(spec, "bf16", "bf16", "f32", ("", ""), False)
    assert contraction_tile(TileProblem(types, ContractionShape(1, 8192, 8192, 8192), spec)).n >= 128
    assert contraction_tile(TileProblem(types, ContractionShape(1, 8192, 40, 8192), spec)).n <= 64


@pytest.mark.parametrize(
    ("target", "lhs", "rhs", "result", "tf32", "expected"),
    [
        ("sm_90a", "f16", "f16", "f16", False, ("f16", "f16", "f32", "wgmma_m64k16_f32_f16_f16")),
        ("sm_90a", "f32", "f32", "f32", False, ("f32", "f32", "f32", "fma")),
        ("sm_90a", "f32", "f32", "f32", True, ("tf32", "tf32", "f32", "wgmma_m64k8_f32_tf32_tf32")),
        ("gfx942", "f32", "f32", "f32", True, ("f32", "f32", "f32", "mfma_16x16x4_f32_f32")),
        ("gfx942", "f8E4M3FN", "f8E5M2", "f32", False, ("f16", "f16", "f32", "mfma_16x16x16_f32_f16")),
        ("gfx950", "f8E4M3FN", "f8E5M2", "f32", False, ("f8E4M3FN", "f8E5M2", "f32", "mfma_16x16x32_f32_f8E4M3FN_f8E5M2")),
        ("gfx1100", "f64", "f64", "f64", False, ("f64", "f64", "f64", "fma")),
        ("gfx1201", "f16", "f32", "f32", False, ("f32", "f32", "f32", "fma")),
    ],
)
def test_contraction_types(target: str, lhs: str, rhs: str, result: str, tf32: bool, expected: tuple[str, ...]) -> None:
    types = contraction_types(target_spec(target), lhs, rhs, result, ("", ""), tf32)
    assert (types.a, types.b, types.accumulator, types.instruction) == expected


def test_unsigned_operands_do_not_use_signed_instructions() -> None:
    types = contraction_types(target_spec("sm_90a"), "i8", "i8", "i32", ("arith.extui", "arith.extui"), False)
    assert types.instruction == "fma"


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=4),
    unit=st.integers(0, 3),
    reduced=st.integers(0, 3),
    target=st.sampled_from(known_targets()),
)
def test_axis_tiles_are_powers_of_two_that_fit(sizes: list[int | None], unit: int, reduced: int, target: str) -> None:
    spec = target_spec(target)
    axes = tuple(AxisShape(s, i == reduced % len(sizes), 4096 * (i == unit % len(sizes)), 0) for i, s in enumerate(sizes))
    tile, warps = pointwise_tile(axes, 4, spec)
    assert len(tile) == len(axes)
    assert all(t == next_power_of_two(t) for t in tile)
    assert all(s is None or t <= next_power_of_two(s) for t, s in zip(tile, sizes, strict=True))
    assert prod(tile) <= 16384
    assert warps == next_power_of_two(warps) and warps * spec.subgroup_size <= 256


@pytest.mark.parametrize(
    ("columns", "element_bytes", "expected"),
    [
        (4099, 2, (16, 256)),  # 4096 would leave every second tile with three elements
        (4099, 4, (8, 256)),
        (4099, 1, (16, 256)),
        (4096, 2, (1, 4096)),
        (1000, 2, (4, 1024)),
        (1025, 2, (32, 128)),
        (100, 2, (32, 128)),  # no shorter tile leaves less behind the end
        (100_000, 2, (1, 4096)),
    ],
)
def test_tiles_end_near_the_ends_of_rows(columns: int, element_bytes: int, expected: tuple[int, int]) -> None:
    traffic = 5000 * columns * element_bytes
    axes = (AxisShape(5000, False, 0, 0), AxisShape(columns, False, traffic, traffic))
    assert pointwise_tile(axes, element_bytes, target_spec("sm_90a"))[0] == expected


def test_a_transpose_tiles_both_unit_stride_axes_and_a_side_input_does_not() -> None:
    spec = target_spec("sm_90a")
    transposing = (AxisShape(1000, False, 4_000_000, 0), AxisShape(1000, False, 0, 4_000_000))
    assert pointwise_tile(transposing, 4, spec)[0] == (64, 64)
    streaming = (AxisShape(1000, False, 4_000, 0), AxisShape(1000, False, 4_000_000, 4_000_000))
    assert pointwise_tile(streaming, 4, spec)[0][1] == 1024


@pytest.mark.parametrize("target", known_targets())
@pytest.mark.parametrize("threads", [32, 64, 128, 512])
def test_tiles_keep_to_the_threads_and_registers_of_the_machine(target: str, threads: int) -> None:
    """Of any machine: a row with fewer threads gets fewer warps, and tiles whose sums fit them."""
    spec = target_spec(target)
    small = replace(spec, max_threads_per_workgroup=threads)
    rows = [row for row in spec.matrix_instructions if row.warps == 1]
    kinds = [ContractionTypes("f16", "f16", "f32", "fma"), *(ContractionTypes("f16", "f16", "f32", row.name) for row in rows)]
    if threads < spec.subgroup_size:
        return
    for types in kinds:
        tiles = tiles_for(TileProblem(types, ContractionShape(1, 4096, 4096, 4096), small))
        for tile in tiles:
            held = tile.m * tile.n // (tile.num_warps * spec.subgroup_size)
            assert tile.num_warps * spec.subgroup_size <= threads
            assert 2 * held <= spec.max_registers_per_thread or tile == tiles[-1]
    axes = (AxisShape(1000, False, 4000, 4000), AxisShape(1000, True, 4000, 0))
    for separable in (False, True):
        _, warps = reduction_tile(axes, small, separable)
        assert warps * spec.subgroup_size <= threads
    for _, warps in (pointwise_tile(axes[:1], 4, small),):
        assert warps * spec.subgroup_size <= threads


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_large_tiles_are_for_large_results_that_they_divide(target: str) -> None:
    spec = target_spec(target)
    types = contraction_types(spec, "f16", "f16", "f32", ("", ""), False)
    sides = {
        size: contraction_tile(TileProblem(types, ContractionShape(1, size, size, 4096), spec)).m for size in (1024, 2048, 4096, 4000, 8192)
    }
    assert sides == {1024: 64, 2048: 128, 4096: 256, 4000: 128, 8192: 256}


def test_loops_that_overlap_by_themselves_need_no_other_workgroup() -> None:
    spec = target_spec("gfx942")
    shape, large, small = ContractionShape(1, 2048, 2048, 4096), ContractionTile(128, 128, 32, 2, 2), ContractionTile(64, 64, 32, 2, 2)
    assert contraction_cost(large, shape, spec) < contraction_cost(small, shape, spec)
    alone = replace(spec, pipelines_contractions=False)
    assert contraction_cost(large, shape, alone) > contraction_cost(small, shape, alone)


@pytest.mark.parametrize("target", known_targets())
def test_tiles_that_are_considered_are_not_refused(target: str) -> None:
    spec = target_spec(target)
    for kind in ("f16", "bf16", "i8"):
        types = contraction_types(spec, kind, kind, "i32" if kind == "i8" else "f32", ("", ""), False)
        problem = TileProblem(types, ContractionShape(1, 4096, 4096, 4096), spec)
        if (row := problem.instruction) is None:
            continue
        for tile in tiles_for(problem):
            assert not tile_refusal(tile, row), tile
            assert "along m" in tile_refusal(replace(tile, m=tile.m + 1), row)
            assert "along n" in tile_refusal(replace(tile, n=tile.n - 1), row)
            assert "along k" in tile_refusal(replace(tile, k=tile.k + 1), row)
            assert "warps along m" in tile_refusal(replace(tile, warps_m=row.warps * 0), row)
