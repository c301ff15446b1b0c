"""The tensor map of a folded view (layout/windows.py): its dimensions are the axes of the array that the view folds.

A tile whose rows are a box of the image is a tiled copy, with the steps of the convolution as element strides; any other one walks pixels
(im2col mode), within a bounding box whose corners are where the first and the last window begin.
Source: CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col; PTX ISA, "Tensor copy modes".
"""

from collections.abc import Callable

from treadle.artifact import TensorMap
from treadle.dialects.tile import ViewOp, memref_type
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.layout.windows import Windows
from treadle.machine import BulkTensorCopy
from treadle.plan.expr import Expr, ceil_div, constant
from treadle.plan.folded_copies import FoldedAxisBox, FoldedCopy, folded_copy
from treadle.targets.simt.types import element_bytes

Expression = Callable[[int | SSAValue], Expr]


def folding_of(view: ViewOp) -> Windows:
    """How a view folds; raises InternalError where it does not."""
    if (windows := view.folding) is None:
        raise InternalError("a view that folds nothing")
    return windows


def folded_start(view: ViewOp) -> int:
    """The array's first element, in elements from the pointer: where all axes are at 0, not where the first window begins."""
    return int(view.offset.value.data) + sum(axis.low * axis.pitch for axis in folding_of(view).axes)


def folded_map(
    view: ViewOp, dims: tuple[int, int], rows: int, width: int, limits: BulkTensorCopy, expression: Expression
) -> tuple[FoldedCopy, TensorMap]:
    """The copy of `rows` by `width` elements of a folded view, whose `dims` they are, and its map; the type and the swizzle are for the
    caller.

    Raises InternalError where the hardware has no such copy.
    """
    windows, sizes = folding_of(view), view.size_values()
    known = tuple(size if isinstance(size, int) else None for size in sizes)
    copy = folded_copy(windows, known, dims, rows, width, limits)
    if isinstance(copy, str):
        raise InternalError(f"a tensor map of a folded view: {copy}")
    size = element_bytes(memref_type(view.result).element_type)
    extents = tuple(_extent(view, axis, expression) for axis in copy.axes)
    pitches = tuple(_pitch(view, axis, expression) * size for axis in copy.axes[1:])
    steps = tuple(axis.step for axis in copy.axes)
    box = (width, rows) if copy.is_walk else tuple((axis.count - 1) * axis.step + 1 for axis in copy.axes)
    lower, upper = _corners(windows, copy)
    return copy, TensorMap("", extents, pitches, box, steps, l2_promotion="128B", lower_corner=lower, upper_corner=upper)


def _corners(windows: Windows, copy: FoldedCopy) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of copies that walk: where the first pixel of the bounding box is, from the array's start, and the last one, from its end."""
    image = copy.axes[1 : 1 + len(copy.lines)]
    lower = tuple(-windows.axes[axis.axis].low for axis in image)
    ends = ((windows.axes[axis.axis].high, axis.step, line) for axis, line in zip(image, copy.lines, strict=True))
    return lower, tuple((line - 1) * step + 1 - high for high, step, line in ends)


def _extent(view: ViewOp, axis: FoldedAxisBox, expression: Expression) -> Expr:
    windows, sizes = folding_of(view), view.size_values()
    if axis.axis < 0:
        return expression(sizes[axis.dim])
    known = windows.axes[axis.axis]
    if known.high:
        return constant(known.high - known.low)
    last = constant(0)
    for dim, parts in enumerate(windows.dims):
        for number, (part, span) in enumerate(zip(parts, windows.spans(dim), strict=True)):
            if part.axis == axis.axis:
                count = ceil_div(expression(sizes[dim]), span) if number == 0 else constant(part.extent)
                last = last + (count - 1) * part.step
    return last + 1


def _pitch(view: ViewOp, axis: FoldedAxisBox, expression: Expression) -> Expr:
    return expression(view.stride_values()[axis.dim]) if axis.axis < 0 else constant(folding_of(view).axes[axis.axis].pitch)
