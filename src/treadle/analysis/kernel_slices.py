"""Parts of a kernel's arguments and results that differ from block to block: slices of arguments, insertions into results.

In a kernel's body `tensor.extract_slice` reads an argument, and `tensor.insert_slice` into a `tensor.empty` says where in a result a block
stores its own; offsets and sizes are expressions over the kernel's symbols, those of the blocks too.
"""

from collections.abc import Callable, Sequence

from treadle.analysis.sizes import kept_axes
from treadle.errors import InternalError
from treadle.ir.core import DYNAMIC_INDEX, BlockArgument, SSAValue
from treadle.ir.dialects import tensor
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass

Index = Callable[[SSAValue], Expr]
Slice = tensor.ExtractSliceOp | tensor.InsertSliceOp


@dataclass(frozen=True, slots=True)
class SliceAxis:
    """An axis of the whole: where the part begins, its size, the elements from one of it to the next, and the part's axis (-1: none)."""

    offset: Expr
    size: Expr
    step: int
    part_axis: int


def sliced_argument(value: SSAValue) -> tuple[BlockArgument, tensor.ExtractSliceOp | None] | None:
    """The argument that a tensor is, or is a slice of; None for what is computed."""
    if isinstance(value, BlockArgument):
        return value, None
    if isinstance(op := value.owner, tensor.ExtractSliceOp) and isinstance(op.source, BlockArgument):
        return op.source, op
    return None


def stored_part(value: SSAValue) -> tuple[SSAValue, tensor.InsertSliceOp | None]:
    """What is computed of a result that a kernel yields, and the insertion that says where it goes."""
    op = value.owner
    return (op.source, op) if isinstance(op, tensor.InsertSliceOp) else (value, None)


def _entries(static: Sequence[int], dynamic: Sequence[SSAValue], index: Index) -> list[Expr]:
    values = iter(dynamic)
    return [index(next(values)) if entry == DYNAMIC_INDEX else constant(int(entry)) for entry in static]


def slice_axes(op: Slice, index: Index) -> tuple[SliceAxis, ...]:
    """The axes of the whole, in order. `index`: an index value as an expression over the kernel's symbols."""
    part = op.result if isinstance(op, tensor.ExtractSliceOp) else op.source
    kept = kept_axes(op, part)
    offsets = _entries(tuple(op.static_offsets.get_values()), op.offsets, index)
    sizes = _entries(tuple(op.static_sizes.get_values()), op.sizes, index)
    found: list[SliceAxis] = []
    for axis, step in enumerate(_entries(tuple(op.static_strides.get_values()), op.strides, index)):
        if (known := step.as_int()) is None:
            raise InternalError("a slice of a kernel's argument with a stride that only the runtime knows")
        found.append(SliceAxis(offsets[axis], sizes[axis], known, kept.index(axis) if axis in kept else -1))
    return tuple(found)
