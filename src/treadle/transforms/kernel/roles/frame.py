"""How the pieces of roles are written: buffers, their slots, the head of a role, copies of operations, counts of steps."""

from collections.abc import Mapping, Sequence

from treadle.dialects import pipe, tile
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end


def slot_of(index: IndexBuilder, alloc: tile.AllocOp, indices: Sequence[SSAValue]) -> SSAValue:
    """One slot of an allocation."""
    return index.insert(pipe.SlotOp(alloc.result, indices, tile.shared_layout_of(alloc.result).slot(len(indices))))


def stacked(block: Block, buffer: SSAValue, *counts: int) -> tile.AllocOp:
    """An allocation of that many of a buffer, by leading dimensions."""
    layout = tile.shared_layout_of(buffer)
    for count in reversed(counts):
        layout = layout.stacked(count)
    made = tile.AllocOp(tile.shared_buffer_type(layout.shape, tile.memref_type(buffer).element_type, layout))
    block.add_op(made)
    return made


def start_of_role(
    fixed: Sequence[Operation], symbols: Mapping[str, SSAValue], block: Block
) -> tuple[IndexBuilder, dict[SSAValue, SSAValue]]:
    """Scalars are born in the role that uses them: what lives across the roles' branch would hold registers in all of them."""
    index = builder_at_end(block, symbols)
    known: dict[SSAValue, SSAValue] = {}
    for op in fixed:
        if not isinstance(op, tile.ViewOp):
            index.builder.insert(op.clone(known))
    return index, known


def clone(op: Operation, mapping: dict[SSAValue, SSAValue], index: IndexBuilder, group: SSAValue, place: SSAValue) -> None:
    """Copy one operation of the tile's program for a group, the workgroup's id along the first axis replaced by the tile's number."""
    if isinstance(op, tile.ProgramIdOp) and op.axis.value.data == 0:
        mapping[op.result] = place
    elif isinstance(op, pipe.GroupIdOp):
        mapping[op.result] = group
    else:
        index.builder.insert(op.clone(mapping))


def step_count(index: IndexBuilder, bounds: Sequence[SSAValue]) -> SSAValue:
    """How many steps a loop from `bounds[0]` below `bounds[1]` by `bounds[2]` makes; nothing below zero."""
    low, high, step = bounds
    distance = index.subtract(index.insert(arith.MaxSIOp(high, low)) if index.static(high) is None else high, low)
    return index.divide(index.add(distance, index.subtract(step, index.constant(1))), step)


def static_steps(index: IndexBuilder, bounds: Sequence[SSAValue]) -> int:
    """How many steps a loop surely makes; 0 where that is not known."""
    low, high, step = (index.static(v) for v in bounds)
    return 0 if low is None or high is None or not step else max(0, -(-(high - low) // step))
