"""Sizes and workgroups without number that no class holds yet, as integer sets: loaded where there are some, with the library."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from treadle.verify import integer_sets
from treadle.verify.classes import Class, TooHard

if TYPE_CHECKING:
    from treadle.verify.integer_sets import Set

FEW_PIECES = 16
"""Of so many pieces it is not asked which make one: that takes longer than what is asked of all of them."""
SIMPLE_PIECES = 8
"""So few pieces are left as they are: to look for sizes that are numbers in them takes longer than it saves."""
SMALL, LARGER = 64, 8192
NEARLY = 16
"""Of large values one is taken that is larger than the least by such a part of it at most."""
QUADRATIC = 32
"""From about so many pieces on a question takes as long as there are pairs of them."""
MAX_COLUMNS = 20
"""Quotients and counts of rounds of a class: with more of them each step of the library takes too long, of which it counts nothing."""
FEW_QUOTIENTS = 12
"""With more quotients it takes longer to look for equalities than they save."""
ROWS_TIMES_CUBED_COLUMNS = 300
"""A class of so many constraints costs as much as a piece."""


class UncoveredSet:
    """A set of any size, by integer sets, whose questions may cost so many operations. Raises `TooHard`."""

    def __init__(self, names: Sequence[str], domain: str, operations: int) -> None:
        self._names = names
        self._account = integer_sets.Account(operations)
        self._boxes: dict[tuple[int, int, int | None], Set] = {}
        self._many = FEW_PIECES
        self.cost = 0
        with self._bounded():
            self._left = self._of(domain)

    def _of(self, condition: str) -> "Set":
        return self._account.integer_set(f"{{ [{', '.join(self._names)}] : {condition} }}")

    @contextmanager
    def _bounded(self) -> Generator[None]:
        try:
            with self._account.bounded():
                yield
        except integer_sets.TooHard as error:
            raise TooHard from error

    def _within(self, low: int, high: int) -> "Set":
        """What is left where all values are within bounds."""
        return self._left.intersect(self._box(low, high, None))

    def _box(self, low: int, high: int, at: int | None) -> "Set":
        """Where all values, or the one at a place, are within bounds."""
        box = self._boxes.get((low, high, at))
        if box is None:
            names = self._names if at is None else self._names[at : at + 1]
            box = self._boxes[low, high, at] = self._of(" and ".join(f"{low} <= {name} < {high}" for name in names) or "true")
        return box

    def _values(self, found: "Set") -> tuple[int, ...] | None:
        point = integer_sets.point_of(found)
        return None if point is None else tuple(point[name] for name in self._names)

    def _first(self) -> tuple[int, ...] | None:
        """The least of small ones, else one nearly as small as any: to find the least of numbers that are not small takes minutes, of which
        isl counts nothing.
        """
        if (found := self._values(self._within(-SMALL, SMALL).lexmin())) is not None:
            return found
        found = self._values(self._within(-LARGER, LARGER))
        found = self._nearly_least(self._values(self._left), LARGER) if found is None else self._nearly_least(found, SMALL)
        return None if found is None else self._others_least(found)

    def _nearly_least(self, found: tuple[int, ...] | None, empty: int) -> tuple[int, ...] | None:
        """Of large ones: a loop's length stands for itself and longer ones, so that each shorter one would be a class of its own."""
        while found is not None and (bound := max(map(abs, found)) + 1) > empty + empty // NEARLY:
            middle = max(empty + empty // NEARLY, int((empty * bound) ** 0.5))
            if (smaller := self._values(self._within(1 - middle, middle))) is None:
                empty = middle
            else:
                found = smaller
        return found

    def _others_least(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """Where one value has to be large, others need not: each of them in turn is made as small as those before it leave it, if it may be
        small at all.
        """
        bound = max(map(abs, found)) + 1
        left = self._within(1 - bound, bound)
        for at in range(len(found)):
            empty, limit = 0, SMALL
            while (value := abs(found[at])) > empty:
                smaller = self._values(left.intersect(self._box(1 - min(limit, value), min(limit, value), at)))
                if smaller is None and limit == SMALL:
                    break
                found, empty = (found, limit) if smaller is None else (smaller, empty)
                limit = (empty + abs(found[at]) + 1) // 2
            left = left.intersect(self._box(-abs(found[at]), abs(found[at]) + 1, at))
        return found

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        while True:
            with self._bounded():
                found = self._first()
            if found is None:
                return
            yield found

    def far(self, least: int) -> tuple[int, ...] | None:
        """Values of which each is at least so much, not much more if there are such; None where there are none."""
        with self._bounded():
            return self._values(self._within(least, least + SMALL).lexmin()) or self._values(self._within(least, least + LARGER))

    def remove(self, covered: Class) -> None:
        """Leave out the members of a class."""
        rows, quotients, columns = covered.size()
        if quotients > FEW_QUOTIENTS:
            from treadle.verify.residues import by_residues

            covered = by_residues(covered)
            rows, quotients, columns = covered.size()
        self.cost += rows * columns**3 // ROWS_TIMES_CUBED_COLUMNS
        if columns > MAX_COLUMNS:
            raise TooHard
        with self._bounded():
            # Where sizes of a piece are numbers, quotients of them are, too: pieces become fewer and simpler.
            taken = self._of(covered.text(self._names))
            self._left = self._left.subtract(taken.detect_equalities() if quotients <= FEW_QUOTIENTS else taken)
            if self._left.n_basic_set() > SIMPLE_PIECES:
                self._left = self._left.detect_equalities()
            if self._left.n_basic_set() > self._many:
                self._left = self._left.coalesce()
                self._many = max(FEW_PIECES, 2 * self._left.n_basic_set())
            pieces = self._left.n_basic_set()
            self.cost += pieces + pieces**2 // QUADRATIC
