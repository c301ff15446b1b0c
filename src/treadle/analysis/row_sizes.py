"""Sizes of rows: how many there are and how long, and whether operations are known to walk rows of one size."""

from treadle.analysis.indexing import StructuredOp, loop_sizes, map_dims, plain_dims, tensor_of, total_size
from treadle.analysis.row_structure import Rows
from treadle.analysis.sizes import Shapes
from treadle.ir.core import DYNAMIC_INDEX
from treadle.plan.expr import Expr, constant


def row_sizes(view: StructuredOp) -> tuple[int | None, int | None, bool]:
    """How many rows a reduction has, how long they are (None: only the runtime knows), and whether they lie along the memory."""
    sizes, kept = loop_sizes(view), len(view.parallel_dims)
    ends = {plain_dims(map_)[-1] for value, map_ in view.operands() if tensor_of(value) is not None and len(map_.results) > kept}
    return total_size(sizes, view.parallel_dims), total_size(sizes, view.reduction_dims), ends <= {*view.reduction_dims, None}


def is_even(first: StructuredOp, view: StructuredOp, rows: Rows, shapes: Shapes) -> bool:
    """Whether the loops of a member are known to have the sizes of the first reduction's."""
    wanted, own = _loop_sizes(first, shapes), _loop_sizes(view, shapes)
    return all(own.get(d) is not None and own[d] == wanted.get(loop) for d, loop in enumerate(rows.members[view.op]))


def _loop_sizes(view: StructuredOp, shapes: Shapes) -> dict[int, Expr]:
    found: dict[int, Expr] = {}
    for value, map_ in view.operands():
        type_ = tensor_of(value)
        dims = map_dims(map_)
        if type_ is None or dims is None:
            continue
        known = shapes.shape(value)
        for axis, d in enumerate(dims):
            size = type_.get_shape()[axis]
            found[d] = known[axis] if size == DYNAMIC_INDEX else constant(size)
    return found
