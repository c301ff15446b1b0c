"""Groups that lie one behind the other along an axis, whose ends a tensor tells: a tile's group is found by where the groups begin.

Tiles of `step` elements begin with their group. The first one of group g, which begins at element a(g), has the number a(g) // step + g.
Group g has ceil((a(g + 1) - a(g)) / step) tiles, at most a(g + 1) // step - a(g) // step + 1, so that no two tiles have one number, and at
most one number a group belongs to no tile. The numbers of first tiles rise with g; that of a tile is looked for among them.
"""

from itertools import permutations

from treadle.analysis.loop_nest import LoopNest
from treadle.dialects import dispatch
from treadle.plan.expr import Expr, as_expr, constant, maximum, symbol
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Runs:
    """The groups, `groups` values of the symbol `block`, of at most `most` elements together; each begins at the number read as `start`."""

    block: str
    groups: int
    start: str
    most: Expr

    def numbers(self, step: int) -> Expr:
        """How many numbers tiles of so many elements have."""
        return self.most // step + self.groups


def _follow(start: dispatch.Read, end: dispatch.Read, block: str, ranges: frozenset[str]) -> bool:
    """Whether one number is read at the index `block`, plus what is the same for all, along one axis, and the other one right behind it."""
    if (start.argument, start.most) != (end.argument, end.most):
        return False
    places = [(as_expr(one), as_expr(other)) for one, other in zip(start.place, end.place, strict=True)]
    walked = [(one, other) for one, other in places if not ranges.isdisjoint((*one.symbols(), *other.symbols()))]
    if len(walked) != 1 or any(one != other for one, other in places if (one, other) not in walked):
        return False
    one, other = walked[0]
    return other - one == constant(1) and ranges.isdisjoint((one - symbol(block)).symbols())


def runs_along(nest: LoopNest, axis: int) -> Runs | None:
    """The groups along an axis whose extent is that of the workgroup's group; None for all other axes."""
    kernel = nest.kernel
    reads, ranges = kernel.reads, frozenset(kernel.ranges)
    if axis < 0 or nest.axes[axis].reach is None or len(kernel.blocks) != 1:
        return None
    ((block, extent),) = kernel.blocks.items()
    if (groups := as_expr(extent).as_int()) is None:
        return None
    for start, end in permutations(reads, 2):
        if nest.axes[axis].size == maximum(0, symbol(end) - symbol(start)) and _follow(reads[start], reads[end], block, ranges):
            return Runs(block, groups, start, as_expr(reads[start].most))
    return None
