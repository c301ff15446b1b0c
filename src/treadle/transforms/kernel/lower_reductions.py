"""lower-reductions: reductions whose axis lies in several warps become a reduction within each warp, a hand-over through shared memory,
and a reduction of what the warps found.

Level: tile. Reads: tile.reduce with layouts. Writes: tile.reduce with `group_mask` (one group a warp), tile.alloc, local stores and loads.
Leaves alone: reductions that stay within warps; kernels without layouts.

Lanes and warps that hold copies have zero bases and are never part of a mask, so nothing is counted twice.
"""

from treadle.dialects import tile
from treadle.ir.core import SSAValue
from treadle.ir.passes import register_pass
from treadle.layout.grouping import group_layout, warp_group_mask
from treadle.layout.shared_layout import SharedLayout, dense, row_major
from treadle.layout.tile_layout import TileLayout
from treadle.machine import TargetSpec
from treadle.plan.layout_choice import dimension_order
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before


def gathered_layout(result: TileLayout, axis: int, groups: int) -> TileLayout:
    """The layout in which threads that want an element of `result` hold the `groups` partial results of it: lanes that would hold copies
    share them out, what is left over goes to registers.
    """
    along = [tuple(1 << bit if dim == axis else 0 for dim in range(result.rank)) for bit in range(groups.bit_length() - 1)]
    lanes = list(result.lane)
    for place in [place for place, basis in enumerate(lanes) if not any(basis)]:
        if along:
            lanes[place] = along.pop(0)
    return TileLayout((*along, *result.register), tuple(lanes), result.warp, result.repeat)


def _exchange_buffer(shape: tuple[int, ...], axis: int) -> SharedLayout:
    """A dense buffer for partial results: the longest kept dimension fastest, so that neighbouring lanes meet neighbouring banks."""
    kept = [dim for dim in range(len(shape)) if dim != axis]
    longest = max(kept, key=lambda dim: shape[dim], default=axis)
    order = (*(dim for dim in dimension_order(len(shape), longest) if dim != axis), axis)
    # None for a side with an odd factor that other dimensions would have to follow.
    return dense(shape, order) or row_major(shape, dimension_order(len(shape), None))


def lower_reduce(op: tile.ReduceOp) -> bool:
    """Split one reduction if its axis spans warps; returns whether it did."""
    axis = op.axis.value.data
    layout, result = tile.layout_of(op.inputs[0]), tile.layout_of(op.results[0])
    if op.groups() or layout is None or result is None:
        return False
    mask = warp_group_mask(layout, axis)
    if not mask:
        return False
    groups = 1 << mask.bit_count()
    partial_layout = group_layout(layout, axis, mask)
    shape = partial_layout.shape
    partial = tile.ReduceOp(
        list(op.inputs),
        axis,
        op.combiner.clone(),
        [tile.tile_of(shape, tile.tile_type(v).element_type, partial_layout) for v in op.inputs],
        group_mask=mask,
    )
    insert_before(op, partial)
    gathered: list[SSAValue] = []
    loads: list[tile.LocalLoadOp] = []
    for value in partial.results:
        element = tile.tile_type(value).element_type
        buffer = _exchange_buffer(shape, axis)
        alloc = tile.AllocOp(tile.shared_buffer_type(shape, element, buffer))
        store = tile.LocalStoreOp(value, alloc.result, (0,) * len(shape))
        insert_before(op, alloc, store)
        loads.append(tile.LocalLoadOp(alloc.result, (0,) * len(shape), tile.tile_of(shape, element, gathered_layout(result, axis, groups))))
    for load in loads:
        insert_before(op, load)
        gathered.append(load.result)
    for index, value in enumerate(gathered):
        op.operands[index] = value
    return True


@register_pass
@dataclass(frozen=True)
class LowerReductionsPass(KernelPass):
    """Takes reductions across warps through shared memory."""

    name = "lower-reductions"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Lower the reductions of one kernel."""
        for op in tuple(kernel.body.walk()):
            if isinstance(op, tile.ReduceOp):
                lower_reduce(op)
