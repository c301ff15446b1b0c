"""Groups of different sizes along an axis, whose tiles are numbered together: a tile's group is found by its number.

Tiles of `step` elements begin with their group, and those of a group follow one another.

*Groups that lie one behind the other, whose ends a tensor tells.* The first tile of group g, which begins at element a(g), has the number
a(g) // step + g. Group g has ceil((a(g + 1) - a(g)) / step) tiles, at most a(g + 1) // step - a(g) // step + 1, so that no two tiles have
one number, and at most one number a group belongs to no tile. The numbers of first tiles rise with g; that of a tile is looked for among
them.

*Groups whose sizes are known*, wherever they lie: the number of a group's first tile is how many tiles the groups before it have, and each
number is that of a tile.
"""

from itertools import accumulate, permutations

from treadle.analysis.loop_nest import LoopNest
from treadle.dialects import dispatch
from treadle.plan.block_bounds import values_in
from treadle.plan.expr import Expr, as_expr, constant, maximum, symbol
from treadle.records import dataclass

MOST_LISTED = 1 << 14
"""So many groups at most are told apart by numbers that the program holds: a few tables of 64 KiB at most."""


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


@dataclass(frozen=True, slots=True)
class ListedRuns:
    """Groups of these sizes, which are the values of the symbol `block` in order."""

    block: str
    sizes: tuple[int, ...]

    @property
    def most(self) -> Expr:
        """How many elements they have together."""
        return constant(sum(self.sizes))

    def tiles(self, step: int) -> tuple[int, ...]:
        """How many tiles of so many elements each group has."""
        return tuple([-(-size // step) for size in self.sizes])

    def numbers(self, step: int) -> Expr:
        """How many numbers tiles of so many elements have."""
        return constant(sum(self.tiles(step)))

    def firsts(self, step: int) -> list[tuple[int, int]]:
        """The groups that have tiles, each with the number of its first one."""
        counts = self.tiles(step)
        begins = accumulate(counts, initial=0)
        return [(group, first) for group, (first, count) in enumerate(zip(begins, counts, strict=False)) if count]


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


def runs_along(nest: LoopNest, axis: int) -> Runs | ListedRuns | None:
    """The groups along an axis whose extent is that of the workgroup's group; None for all other axes."""
    if axis < 0 or nest.axes[axis].reach is None or dispatch.MERGE in nest.kernel.attributes:
        return None
    return _listed(nest, axis) or _between_neighbours(nest, axis)


def _listed(nest: LoopNest, axis: int) -> ListedRuns | None:
    """Groups whose sizes the index of one loop of blocks tells, of which one has an element at least."""
    size, kernel = nest.axes[axis].size, nest.kernel
    names = list(size.symbols())
    if len(names) != 1 or names[0] not in kernel.blocks:
        return None
    groups = as_expr(kernel.blocks[names[0]]).as_int()
    if groups is None or groups > MOST_LISTED:
        return None
    found = ListedRuns(names[0], tuple([max(0, each) for each in values_in(size, tuple(names), (groups,))]))
    return found if any(found.sizes) else None


def _between_neighbours(nest: LoopNest, axis: int) -> Runs | None:
    kernel = nest.kernel
    reads, ranges = kernel.reads, frozenset(kernel.ranges)
    if len(kernel.blocks) != 1:
        return None
    ((block, extent),) = kernel.blocks.items()
    if (groups := as_expr(extent).as_int()) is None:
        return None
    for start, end in permutations(reads, 2):
        if nest.axes[axis].size == maximum(0, symbol(end) - symbol(start)) and _follow(reads[start], reads[end], block, ranges):
            return Runs(block, groups, start, as_expr(reads[start].most))
    return None
