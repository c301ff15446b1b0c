"""Ranges of the tiles' coordinates where rows of tiles are walked together (`group_m`): the last rows may be fewer.

With `width = group * columns` tiles in `group` rows and `left = min(rows - first, group)` of them from row `first` on, tile p is in row
`first + p % width % left` and column `p % width / left`, where `first = p / width * group`.
"""

from typing import Protocol

from treadle.analysis.divisibility import constant_value
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith


class Bounded(Protocol):
    """What is known of a value: low <= value <= high."""

    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...


class Bounds(Protocol):
    """What knows the ranges of values."""

    def of(self, value: SSAValue) -> Bounded: ...


def _rows_left(value: SSAValue) -> tuple[int, SSAValue, int] | None:
    """(rows, first, group) of `min(rows - first, group)`."""
    least = value.owner
    if not isinstance(least, arith.MinSIOp):
        return None
    for one, other in ((least.lhs, least.rhs), (least.rhs, least.lhs)):
        group, rest = constant_value(other), one.owner
        if group is not None and group > 0 and isinstance(rest, arith.SubiOp) and (rows := constant_value(rest.lhs)) is not None:
            return rows, rest.rhs, group
    return None


def row_limit(op: arith.AddiOp, ranges: Bounds) -> int | None:
    """The largest `first + x % min(rows - first, group)`: a row; None for other sums."""
    for first, inner in ((op.lhs, op.rhs.owner), (op.rhs, op.lhs.owner)):
        left = _rows_left(inner.rhs) if isinstance(inner, arith.RemUIOp) else None
        if left is not None and left[1] is first and ranges.of(first).low >= 0 and ranges.of(first).high < left[0]:
            return left[0] - 1
    return None


def column_limit(op: arith.DivUIOp, ranges: Bounds) -> int | None:
    """The largest `p % width / min(rows - p / width * group, group)`, a column, where p is less than all rows' tiles; None for other
    quotients. With q = p / width: p < rows * columns, so p - q * width < (rows - q * group) * columns.
    """
    within, left = op.lhs.owner, _rows_left(op.rhs)
    if left is None or not isinstance(within, arith.RemUIOp):
        return None
    rows, first, group = left
    width, place = constant_value(within.rhs), _times(first, group)
    if not width or width % group or not isinstance(place, arith.DivUIOp):
        return None
    columns, tile = width // group, ranges.of(within.lhs)
    is_same = place.lhs is within.lhs and constant_value(place.rhs) == width
    return columns - 1 if is_same and tile.low >= 0 and tile.high < rows * columns else None


def _times(value: SSAValue, factor: int) -> object:
    """What is multiplied by a number to a value."""
    product = value.owner
    if not isinstance(product, arith.MuliOp):
        return value.owner if factor == 1 else None
    for one, other in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
        if constant_value(other) == factor:
            return one.owner
    return None
