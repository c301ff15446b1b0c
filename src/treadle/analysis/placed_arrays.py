"""Where the array of an argument or result lies along the dimensions of a root: strides, and parts that differ from block to block."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.plan.expr import Expr, as_expr, constant
from treadle.records import dataclass

if TYPE_CHECKING:
    from treadle.analysis.loop_nest import Linears


@dataclass(frozen=True, slots=True)
class Cut:
    """Along root dimension `dim` an array of `extent` elements is read or written from `start` on: both in whole steps of the array."""

    dim: int
    start: Expr
    extent: Expr


@dataclass(frozen=True, slots=True)
class Corner:
    """An axis of an array, of `extent` elements `stride` apart, of which a block sees what begins at `place`, along no dimension alone."""

    place: Expr
    stride: Expr
    extent: Expr


@dataclass(frozen=True, slots=True)
class Placement:
    """An array along the root's dimensions: strides and offset in elements, and where a block's part of it lies."""

    strides: tuple[Expr, ...]
    offset: Expr
    cuts: tuple[Cut, ...] = ()
    corners: tuple[Corner, ...] = ()


def _total(terms: "list[tuple[int, Expr]]") -> Expr:
    """The sum of strides, so many times each; most are none or one."""
    moved = [stride if count == 1 else stride * count for count, stride in terms if count]
    return moved[0] if len(moved) == 1 else sum(moved, constant(0))


def placed(strides: Sequence[Expr], shape: Sequence[Expr], positions: "Linears", sizes: Sequence[Expr]) -> Placement:
    """How an array whose axes have these strides and extents lies where it is read at `positions`; `sizes` of the root's dimensions."""
    totals = tuple([_total([(lin.coefficients[d], s) for s, lin in zip(strides, positions, strict=True)]) for d in range(len(sizes))])
    offset, cuts, corners = constant(0), list[Cut](), list[Corner]()
    for stride, extent, position in zip(strides, shape, positions, strict=True):
        start = as_expr(position.offset)
        dim = position.dims[0] if len(position.dims) == 1 else -1
        if start.is_constant:
            offset = offset + start * stride
        elif dim >= 0 and totals[dim] == stride and sizes[dim] != 1:
            cuts.append(Cut(dim, start, extent))
        else:
            corners.append(Corner(start, stride, extent))
    return Placement(totals, offset, tuple(cuts), tuple(corners))
