"""Rows that begin anywhere in memory: which arrays are read wide when tiles along a row begin at the aligned address before it."""

from treadle.analysis.axis_traffic import bytes_touched
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass

LINE_BYTES = 16
"""Of the widest access of a thread."""


@dataclass(frozen=True, slots=True)
class RowLine:
    """`steps`: (stride, place) of what moves the start of a row: an axis of the nest (by number), or a place that a block has."""

    elements: int
    steps: tuple[tuple[Expr, int | Expr], ...]


def row_line(nest: LoopNest, axis: int) -> RowLine | None:
    """Where rows along `axis` begin in most of the memory that is walked along it; None where it is at aligned addresses anyway, where
    nothing of the row's length is known to be aligned, or where a block's part of a result ends within one.
    """
    groups: dict[tuple[tuple[Expr, int | Expr], ...], list[Access]] = {}
    dims = nest.axes[axis].dims
    for access in nest.accesses:
        if access.image is not None or nest.stride_along(access, nest.axes[axis]) != constant(1):
            continue
        if access.is_result and access.cut_along(dims) is not None:
            return None
        if access.align >= LINE_BYTES and access.offset == constant(0):
            groups.setdefault(_steps(nest, axis, access), []).append(access)
    if not groups:
        return None
    steps = max(groups, key=lambda steps: sum(bytes_touched(nest, access) for access in groups[steps]))
    elements = LINE_BYTES // min(element_bytes(access.element) for access in groups[steps])
    if all(_is_multiple(stride, elements) or (isinstance(place, Expr) and _is_multiple(place, elements)) for stride, place in steps):
        return None
    return RowLine(elements, steps) if elements > 1 else None


def _is_multiple(value: Expr, of: int) -> bool:
    return value == constant(0) or value.divisor() % of == 0


def _steps(nest: LoopNest, axis: int, access: Access) -> tuple[tuple[Expr, int | Expr], ...]:
    found: list[tuple[Expr, int | Expr]] = []
    for number, other in enumerate(nest.axes):
        if number != axis and not other.block and (stride := nest.stride_along(access, other)) != constant(0):
            found.append((stride, number))
    found += [(access.strides[cut.dim], cut.start) for cut in access.cuts]
    return (*found, *((corner.stride, corner.place) for corner in access.corners))
