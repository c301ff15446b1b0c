"""Which part of an array a descriptor copy of a folded view's tile is: pure functions over records.

A tile's rows are pixels in the order of the result, its columns channels of one place of the window. Where the rows are a rectangle of
the image (whole lines, whole images, or parts of one line), they are a box of the array, whose start moves with the window; else the
machine walks pixels in the order of the result from any first one (`is_walk`), within a bounding box that moves with the window.
"""

from collections.abc import Sequence

from treadle.layout.windows import Part, Windows, box_of
from treadle.machine import BulkTensorCopy
from treadle.plan.access import AccessFacts
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class FoldedAxisBox:
    """An axis of the array in a copy: its number among the view's folded axes (-1: the view's dimension `dim`, which is not folded), how
    many places the copy takes along it, `step` apart.
    """

    axis: int
    dim: int = -1
    count: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class FoldedCopy:
    """A copy of `rows` by `width` elements: the array's axes, innermost first. `is_walk`: the rows are pixels in order, `lines` long
    along each axis of the image, innermost first.
    """

    axes: tuple[FoldedAxisBox, ...]
    is_walk: bool = False
    lines: tuple[int, ...] = ()


def folded_copy(
    windows: Windows, sizes: Sequence[int | None], dims: tuple[int, int], rows: int, width: int, rules: BulkTensorCopy
) -> FoldedCopy | str:
    """The copy of `rows` rows by `width` columns, which are the view's `dims`; or why there is none. `sizes` of the view's dimensions."""
    row_dim, column_dim = dims
    parts, columns = windows.dims[row_dim], windows.dims[column_dim]
    if (reason := _column_refusal(windows, parts, columns, width)) is not None:
        return reason
    column = FoldedAxisBox(columns[-1].axis if columns else -1, column_dim, width)
    plain = [dim for dim, size in enumerate(sizes) if not windows.dims[dim] and size != 1 and dim not in (row_dim, column_dim)]
    moving = {column.axis, *(part.axis for part in parts)}
    others = [FoldedAxisBox(axis) for axis in range(len(windows.axes)) if axis not in moving] + [FoldedAxisBox(-1, dim) for dim in plain]
    if any(part.step > rules.max_step for part in parts):
        return f"it steps by more than {rules.max_step} pixels"
    if not parts:
        axes = (column, FoldedAxisBox(-1, row_dim, rows), *others)
        return f"it has {len(axes)} axes" if len(axes) > rules.max_rank else FoldedCopy(axes)
    box = box_of(windows, row_dim, rows)
    if box is not None and all((count - 1) * step < rules.max_box_extent for _, count, step in box):
        axes = (column, *(FoldedAxisBox(axis, -1, count, step) for axis, count, step in box), *others)
        return f"it has {len(axes)} axes" if len(axes) > rules.max_rank else FoldedCopy(axes)
    return _walk(windows, parts, columns[:-1], column, others, rules)


def _column_refusal(windows: Windows, parts: Sequence[Part], columns: Sequence[Part], width: int) -> str | None:
    if not columns:
        return None
    last = columns[-1]
    if last.step * windows.axes[last.axis].pitch != 1 or last.axis in {part.axis for part in (*parts, *columns[:-1])}:
        return "channels do not lie side by side"
    if len(columns) > 1 and last.extent % width:
        return f"{last.extent} channels are no whole steps of {width}"
    return None


def _walk(
    windows: Windows,
    parts: Sequence[Part],
    columns: Sequence[Part],
    column: FoldedAxisBox,
    others: Sequence[FoldedAxisBox],
    rules: BulkTensorCopy,
) -> FoldedCopy | str:
    """Pixels in order: the innermost axes are the image's, the outermost one tells images."""
    image = [part for part in parts if windows.axes[part.axis].high]
    outer = [part for part in parts if not windows.axes[part.axis].high]
    if len(outer) > 1 or (outer and outer[0] is not parts[0]) or len(outer) + len(others) > 1:
        return "its pixels are not those of whole images in order"
    spatial = len(image)
    if spatial not in range(1, len(rules.walk_corner_bits) + 1):
        return f"images of {spatial} axes are not walked"
    bits, lines = rules.walk_corner_bits[spatial - 1], tuple(part.extent for part in reversed(image))
    for part in image:
        axis, last = windows.axes[part.axis], sum((p.extent - 1) * p.step for p in columns if p.axis == part.axis)
        if last >= 1 << rules.walk_offset_bits[spatial - 1]:
            return f"its windows are wider than {1 << rules.walk_offset_bits[spatial - 1]} pixels"
        upper = (part.extent - 1) * part.step + 1 - axis.high
        reach = max((abs(corner) for corner in (axis.low, upper)), default=0)
        if part.extent == 0 or reach >= 1 << (bits - 1):
            return f"the edges of its windows are beyond {1 << (bits - 1)} pixels"
    image_axes = tuple(FoldedAxisBox(part.axis, -1, 1, part.step) for part in reversed(image))
    last = [FoldedAxisBox(part.axis) for part in outer] + list(others)
    return FoldedCopy((column, *image_axes, *last), True, lines)


def folded_refusal(windows: Windows, facts: AccessFacts, dims: tuple[int, int], rows: int, rules: BulkTensorCopy) -> str | None:
    """Why a descriptor copy cannot bring a tile of `rows` rows; None where it can. `dims`: the view's dimensions of rows and columns. Rows
    that are pixels of a rectangle begin at a multiple of them.
    """
    row, column = (facts.dims[dim] for dim in dims)
    if facts.varies:
        return "its sizes differ from workgroup to workgroup"
    if facts.base_align % rules.base_align_bytes:
        return f"base is aligned to {facts.base_align} bytes, not {rules.base_align_bytes}"
    if any(dim.size == 0 for dim in facts.dims):
        return "the array is empty"
    if any((dim.size is None and facts.index_bits > 32) or (dim.size or 0) > rules.max_extent for dim in facts.dims):
        return f"a size may be beyond {rules.max_extent}"
    pitches = [axis.pitch for axis in windows.axes]
    pitches += [dim.stride or dim.stride_divisor for at, dim in enumerate(facts.dims) if not windows.dims[at] and dim.size != 1]
    if (uneven := next((p for p in pitches if p != 1 and p * facts.element_bytes % rules.pitch_align_bytes), None)) is not None:
        return f"pitch {uneven * facts.element_bytes} bytes is not a multiple of {rules.pitch_align_bytes}"
    width = min(column.extent, rules.swizzle_bytes[0] // facts.element_bytes)
    if column.offset_divisor % width or row.extent != rows:
        return f"its columns do not begin at multiples of {width}"
    copy = folded_copy(windows, [dim.size for dim in facts.dims], dims, rows, width, rules)
    if isinstance(copy, str):
        return copy
    if windows.dims[dims[0]] and not copy.is_walk and row.offset_divisor % (rows & -rows):
        return f"its rows do not begin at multiples of {rows}"
    return None
