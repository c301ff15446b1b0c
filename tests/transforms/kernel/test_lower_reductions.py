"""lower-reductions on text, and the algebra of groups."""

import numpy as np
import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.layout.grouping import group_index, group_layout, group_registers, warp_group_mask
from treadle.layout.tile_layout import TileLayout
from treadle.plan.layout_choice import blocked_tile
from treadle.transforms.kernel.assign_layouts import AssignLayoutsPass
from treadle.transforms.kernel.lower_reductions import LowerReductionsPass, gathered_layout


def test_a_row_over_all_warps_goes_through_shared_memory() -> None:
    module = lowered(kernel_texts.row_softmax(100, 999, (1, 1024)), LowerReductionsPass)
    partial, whole, *_ = find(module, tile.ReduceOp)
    assert partial.groups() == 0b1100000 and whole.groups() == 0  # lanes are bits 0-4: the odd pitch allows scalar accesses only
    assert tuple(tile.tile_type(partial.results[0]).get_shape()) == (1, 4)
    stores, loads = find(module, tile.LocalStoreOp), find(module, tile.LocalLoadOp)
    assert len(stores) == len(loads) == 2
    assert loads[0].source is stores[0].destination and stores[0].value is partial.results[0]
    assert whole.inputs[0] is loads[0].result
    gathered = tile.layout_of(loads[0])
    assert gathered is not None and not any(any(basis) for basis in gathered.warp)
    assert not gathered.register
    assert [any(basis) for basis in gathered.lane] == [True, True, False, False, False]  # copies share them out


def test_reductions_within_warps_are_left_alone() -> None:
    text = kernel_texts.row_softmax(100, 1000, (4, 1024))
    assert str(lowered(text, LowerReductionsPass)) == str(lowered(text, AssignLayoutsPass))


@pytest.mark.parametrize(
    "layout",
    [
        blocked_tile((1, 1024), (1, 0), (1, 4), 32, 4),
        blocked_tile((6, 192), (1, 0), (1, 2), 32, 4),
        blocked_tile((64, 32), (1, 0), (1, 4), 32, 8),
        blocked_tile((2, 4), (1, 0), (1, 1), 32, 4),
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_partial_then_gathered_reduction_counts_every_element_once(layout: TileLayout, axis: int) -> None:
    values = np.random.default_rng(7).integers(1, 100, layout.shape)
    mask = warp_group_mask(layout, axis)
    partial = group_layout(layout, axis, mask)
    assert partial.shape[axis] == 1 << mask.bit_count()
    registers = group_registers(layout, axis, mask)
    # What each thread sums up over its own registers, and then over lanes that are told apart along the axis only within a group.
    sums = np.zeros(partial.shape, dtype=np.int64)
    seen = np.zeros(layout.shape, dtype=np.int64)
    for warp in range(layout.num_warps):
        for lane in range(layout.num_lanes):
            if lane & layout.replicated_lane_bits() or warp & layout.replicated_warp_bits():
                continue
            for register in range(layout.num_registers):
                at = layout.coordinates(register, lane, warp)
                target = partial.coordinates(registers[register], lane, warp)
                assert target == tuple(group_index(v, mask) if d == axis else v for d, v in enumerate(at))
                sums[target] += values[at]
                seen[at] += 1
    assert (seen == 1).all()
    np.testing.assert_array_equal(sums.sum(axis, keepdims=True), values.sum(axis, keepdims=True))
    # Groups are whole within a warp: all warps that hold a part of one element agree on it up to copies.
    for warp in range(layout.num_warps):
        along = {partial.coordinates(r, lane, warp)[axis] for r in range(partial.num_registers) for lane in range(layout.num_lanes)}
        assert len(along) == 1
    result = layout.with_unit_dim(axis)
    gathered = gathered_layout(result, axis, partial.shape[axis])
    assert gathered.shape == partial.shape
    assert gathered.with_unit_dim(axis) == result


def test_warps_that_share_bits_with_lanes_are_refused() -> None:
    crossed = TileLayout((), ((1, 1), (2, 0), (4, 0), (8, 0), (16, 0)), ((0, 1),), (1, 1))
    with pytest.raises(InternalError):
        warp_group_mask(crossed, 1)
