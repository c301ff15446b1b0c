"""Tiles of reductions: they fit the machine, cover what they should, and keep every unit busy."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import known_targets, target_spec
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.row_tiles import MOST_HELD
from treadle.plan.tile_config import next_power_of_two

SIZES = st.one_of(st.none(), st.integers(1, 200_000))


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=4),
    unit=st.integers(0, 3),
    reduced=st.sets(st.integers(0, 3), min_size=1),
    element_bytes=st.sampled_from([1, 2, 4, 8]),
    outputs=st.integers(1, 3),
    target=st.sampled_from(known_targets()),
    separable=st.booleans(),
)
def test_tiles_fit(
    sizes: list[int | None], unit: int, reduced: set[int], element_bytes: int, outputs: int, target: str, separable: bool
) -> None:
    spec, count = target_spec(target), len(sizes)
    axes = tuple(AxisShape(s, i in {r % count for r in reduced}, 4096 * (i == unit % count), 0) for i, s in enumerate(sizes))
    tile, warps = reduction_tile(axes, spec, separable, element_bytes=element_bytes, outputs=outputs)
    assert len(tile) == count
    assert warps == next_power_of_two(warps)
    assert warps * spec.subgroup_size <= spec.max_threads_per_workgroup
    assert prod(tile) <= MOST_HELD * warps * spec.subgroup_size
    for axis, extent in zip(axes, tile, strict=True):
        assert axis.size is None or extent <= 2 * next_power_of_two(axis.size)
        assert separable or not axis.is_reduction or extent == 1


@pytest.mark.parametrize("target", known_targets())
@pytest.mark.parametrize(("rows", "length"), [(16, 10_000_019), (1, 70_001), (8, 100_003), (300, 40_001), (64, None), (None, None)])
def test_few_rows_have_many_threads(rows: int | None, length: int | None, target: str) -> None:
    """As many threads as a unit holds, or as a workgroup has, share what is on it."""
    spec = target_spec(target)
    axes = (AxisShape(rows, False, 0, 4), AxisShape(length, True, 4_000_000, 0))
    _, warps = reduction_tile(axes, spec, separable=True)
    on_a_unit = max(1, (rows or 4096) // spec.compute_units)
    assert warps * spec.subgroup_size * on_a_unit >= min(spec.max_threads_per_workgroup, spec.max_threads_per_unit // 2) // 2


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_columns_are_read_in_whole_lines(element_bytes: int) -> None:
    axes = (AxisShape(1_000_003, True, 0, 0), AxisShape(4096, False, 16_000_000, 4))
    tile, warps = reduction_tile(axes, target_spec("sm_90a"), True, element_bytes=element_bytes)
    assert tile[1] * element_bytes >= 128
    assert tile[0] * tile[1] >= warps * 32 * 8


@given(count=st.integers(17, 64), columns=st.integers(1000, 200_000))
def test_short_reductions_across_rows_load_whole_accesses(count: int, columns: int) -> None:
    """Merging parts: threads have whole accesses of columns, and are few enough to wait beside the kernel that makes the parts."""
    axes = (AxisShape(count, True, 0, 0), AxisShape(columns, False, 4096, 4096))
    (rows, width), warps = reduction_tile(axes, target_spec("sm_90a"), True)
    assert rows == next_power_of_two(count)
    assert width >= 64
    assert rows * width == 32 * warps * 32
    assert warps <= 4
