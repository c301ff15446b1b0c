"""Where results of kernels may be written at once: a concatenation's pieces straight into the array that holds them all, and what blocks
insert into the tensor that they share.

Pure decisions over the function. A chain of `tensor.insert_slice` that begins at a `tensor.empty` and of which nothing else reads a part
is a concatenation where each slice begins, along one axis, where the one before ended: no two overlap, so it does not matter when each is
written.
"""

from collections.abc import Sequence
from itertools import pairwise

from treadle.analysis.shapes import Shapes, slice_parameters
from treadle.dialects import dispatch
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import tensor
from treadle.plan.expr import Expr, constant


def _chain_from(first: tensor.InsertSliceOp) -> list[tensor.InsertSliceOp]:
    """`first` and the insertions into its result, one after the other, as long as nothing else reads it."""
    chain = [first]
    while chain[-1].results[0].has_one_use():
        user = next(iter(chain[-1].results[0].uses)).operation
        if not isinstance(user, tensor.InsertSliceOp) or user.dest is not chain[-1].results[0]:
            break
        chain.append(user)
    return chain


def _follows(before: tuple[Sequence[Expr], Sequence[Expr]], after: tuple[Sequence[Expr], Sequence[Expr]], axis: int) -> bool:
    starts, sizes = before
    return after[0][axis] == starts[axis] + sizes[axis]


def is_concatenation(chain: Sequence[tensor.InsertSliceOp], shapes: Shapes) -> bool:
    """Whether each slice begins where the one before ended, along an axis common to all."""
    places: list[tuple[Sequence[Expr], Sequence[Expr]]] = []
    for op in chain:
        offsets, sizes, strides = slice_parameters(op, shapes)
        if any(stride != constant(1) for stride in strides):
            return False
        places.append((offsets, sizes))
    pairs = list(pairwise(places))
    return any(all(_follows(before, after, axis) for before, after in pairs) for axis in range(len(places[0][0])))


def block_destination(op: tensor.InsertSliceOp) -> SSAValue:
    """The tensor that an insertion of all blocks, and those before it of the same loop, write into."""
    while isinstance(before := op.dest.owner, tensor.InsertSliceOp) and dispatch.ALL_BLOCKS in before.attributes:
        op = before
    return op.dest


def placements(operations: Sequence[Operation], shapes: Shapes) -> dict[SSAValue, tuple[SSAValue, tensor.InsertSliceOp]]:
    """For each result of a region that may be written in place: the tensor whose memory it goes to, and its insertion."""
    found: dict[SSAValue, tuple[SSAValue, tensor.InsertSliceOp]] = {}
    for op in operations:
        if isinstance(op, tensor.InsertSliceOp) and dispatch.ALL_BLOCKS in op.attributes:
            if isinstance(op.source.owner, dispatch.RegionOp):
                found.setdefault(op.source, (block_destination(op), op))
            continue
        if not isinstance(op, tensor.InsertSliceOp) or not isinstance(op.dest.owner, tensor.EmptyOp) or not op.dest.has_one_use():
            continue
        chain = _chain_from(op)
        if not is_concatenation(chain, shapes):
            continue
        for insertion in chain:
            if isinstance(insertion.source.owner, dispatch.RegionOp) and insertion.source.has_one_use():
                found[insertion.source] = (op.dest, insertion)
    return found
