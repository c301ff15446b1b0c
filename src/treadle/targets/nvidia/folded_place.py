"""Where a copy of a folded view begins: the coordinates of its first pixel, and the place of its window."""

from collections.abc import Callable

from treadle.codegen.llvm_text import I16, I32, Value, i32
from treadle.dialects.tile import CopyOp, CopyOutOp, ViewOp
from treadle.errors import InternalError
from treadle.layout.windows import Windows
from treadle.targets.nvidia.tensor_map import Box, CopyPlan
from treadle.targets.simt.context import KernelContext

WINDOW = " window "
"""Between the coordinates of a copy that walks pixels and the place of its window."""


def folded_place(ctx: KernelContext, op: CopyOp | CopyOutOp, plan: CopyPlan, box: Box, operand: Callable[[Value], str]) -> str:
    """The coordinates of a box as operands of the instruction; of one that walks pixels, also its window's place."""
    view, copy, b = op.view.owner, plan.folded, ctx.b
    if not isinstance(view, ViewOp) or copy is None or (windows := view.folding) is None:
        raise InternalError("the place of a folded copy is asked for of another one")
    column, row = plan.view_dims[:2]
    inside = {column: box.start[0], row: box.start[1]}
    starts = {dim: b.add(ctx.small_index(offset), i32(inside.get(dim, 0))) for dim, offset in enumerate(op.offsets)}
    pixels, window = [_along(ctx, windows, dim, starts[dim]) for dim in (row, column)]
    seen = ctx.view(op.view)
    beyond = None  # behind the last window there is nothing to add up: no pixel of the last one's neighbour
    if (
        windows.dims[row]
        and windows.dims[column]
        and not ctx.ranges.inside(op.offsets[column], inside[column] + plan.param.map.box_dim[0], seen.sizes[column].number)
    ):
        beyond = b.icmp("uge", starts[column], b.resize(seen.sizes[column], I32))
    coordinates: list[Value] = []
    offsets: list[Value] = []
    for number, axis in enumerate(copy.axes):
        if axis.axis < 0:
            coordinates.append(starts[axis.dim])
            continue
        place = b.sub(pixels[axis.axis], i32(windows.axes[axis.axis].low))
        if beyond is not None and axis.axis == windows.dims[row][0].axis:
            place = b.select(beyond, i32(-1), place)
        if copy.is_walk and 0 < number <= len(copy.lines):
            offsets.append(b.trunc(window[axis.axis], I16))
        else:
            place = b.add(place, window[axis.axis])
        coordinates.append(place)
    return ", ".join(map(operand, coordinates)) + (WINDOW + ", ".join(map(operand, offsets)) if offsets else "")


def _along(ctx: KernelContext, windows: Windows, dim: int, index: Value) -> list[Value]:
    """The places along all axes that an index of one dimension takes."""
    b, places = ctx.b, [i32(0)] * len(windows.axes)
    for number, (part, span) in enumerate(zip(windows.dims[dim], windows.spans(dim), strict=True)):
        digit = b.udiv(index, i32(span))
        digit = b.urem(digit, i32(part.extent)) if number else digit
        places[part.axis] = b.add(places[part.axis], b.mul(digit, i32(part.step)))
    return places
