"""Whether as many workgroups arrive at each counter as it counts, and take turns there in an order that ends: for all sizes.

The workgroups of a counter are numbered by a value that they compute (their id along an axis, a quotient or a remainder): no two of one
counter have the same number, and the numbers are all from 0 to the count. Turns are such numbers; who has the later one has the higher
number in the grid, too.
"""

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Literal

from treadle.dialects import tile
from treadle.dialects.agents import role_of
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.plan.expr import Expr
from treadle.records import dataclass
from treadle.verify.affine import Forms
from treadle.verify.formulas import Formula, both, symbols_in
from treadle.verify.global_accesses import GlobalAccess

if TYPE_CHECKING:
    from treadle.verify.integer_sets import Set

_QUOTIENTS = frozenset("arith." + name for name in ("divui", "divsi", "floordivsi", "remui", "remsi", "andi", "shrui", "shrsi"))
MAX_NUMBERINGS = 12
TOO_HARD = "its counters are too hard to compare with its count"
COST = 2_000_000
"""What the questions about one numbering may cost together, in the integer set library's count: each is asked once a kernel."""


@dataclass(frozen=True, slots=True)
class Counting:
    """What is known about an arrival. `witness`: sizes for which it counts wrong; `doubt`: why nothing is known."""

    status: Literal["right", "wrong", "open"]
    doubt: str = ""
    witness: tuple[str, ...] = ()


def counting_of(forms: Forms, op: tile.CountInOp, access: GlobalAccess) -> Counting:
    """Whether the counters of an arrival, whose access to them is given, count the workgroups that arrive there."""
    from treadle.verify.integer_sets import TooHard, bounded

    count = forms.of(op.count)
    if access.addresses is None or not access.is_exact or not forms.is_exact(count.symbols()):
        return Counting("open", access.doubt or "its count is not known")
    doubt = "no number tells the workgroups of a counter apart"
    numbered: list[_Arrivals] = []
    for number in _numberings(forms, op):
        arrivals = _Arrivals(forms, op, access, number, count)
        try:
            with bounded(COST):
                if not arrivals.are_inside():
                    return Counting("open", "it may lie outside its counters")
                if not arrivals.are_numbered():
                    continue
                if arrivals.are_all():
                    return Counting("right")
        except TooHard:
            return _compared(numbered, doubt) if numbered else Counting("open", TOO_HARD)
        numbered.append(arrivals)
    return _compared(numbered, doubt)


def _compared(numbered: "list[_Arrivals]", doubt: str) -> Counting:
    """What is known of the first of these numberings that tells anything, which takes longer to find."""
    from treadle.verify.integer_sets import TooHard, bounded

    for arrivals in numbered:
        try:
            with bounded(COST):
                found = arrivals.compared()
        except TooHard:
            return Counting("open", TOO_HARD)
        if found.status != "open":
            return found
        doubt = found.doubt
    return Counting("open", doubt)


def turns_of(forms: Forms, wait: tile.AwaitTurnOp, end: tile.PassTurnOp, access: GlobalAccess) -> Counting:
    """Whether the workgroups of each counter have turns from 0 to its count, end the turn that they wait for, and wait for none that begins
    later: each waits for workgroups with lower numbers in the grid alone, so that no waits form a circle.
    """
    from treadle.verify.integer_sets import TooHard, bounded

    turn, ended, count = (forms.of(value) for value in (wait.turn, end.turn, end.count))
    if access.addresses is None or not access.is_exact or not forms.is_exact(turn.symbols() | ended.symbols() | count.symbols()):
        return Counting("open", access.doubt or "its turn or its count is not known")
    if forms.of(wait.count) != count:
        return Counting("open", f"it counts to another number than {end.name}")
    arrivals = _Arrivals(forms, wait, access, turn, count)
    try:
        with bounded(COST):
            if (witness := arrivals.unlike(ended)) is not None:
                return Counting("wrong", witness=(*witness, "a workgroup ends another turn than it waits for"))
            if not arrivals.are_inside():
                return Counting("open", "it may lie outside its counters")
            if not arrivals.are_numbered():
                return Counting("open", "two workgroups of a counter may have the same turn")
            found = Counting("right") if arrivals.are_all() else arrivals.compared()
            if found.status == "right" and (witness := arrivals.backwards()) is not None:
                return Counting("wrong", witness=witness)
            return found
    except TooHard:
        return Counting("open", "its counters are too hard to compare with its turns")


def _numberings(forms: Forms, op: tile.CountInOp) -> Iterator[Expr]:
    """Values that may number the workgroups of a counter."""
    ids = {str(i) for i in forms.ids if not i.is_constant}
    found: dict[Expr, None] = {i: None for i in forms.ids if not i.is_constant} or {forms.ids[0]: None}
    for other in op.parent.ops if op.parent is not None else ():
        if other.name in _QUOTIENTS and isinstance(other.results[0].type, builtin.IndexType | builtin.IntegerType):
            value = _value(forms, other)
            if value is not None and forms.depends(value) and forms.depends(value) <= ids and forms.is_exact(value.symbols()):
                found[value] = None
    yield from list(found)[:MAX_NUMBERINGS]


def _value(forms: Forms, op: Operation) -> Expr | None:
    kind = op.results[0].type
    return None if kind == builtin.i1 else forms.of(op.results[0])


class _Arrivals:
    """The arrivals of an operation as points: place of the counter, number of the workgroup, ids (and that of the group, in a role)."""

    def __init__(self, forms: Forms, op: tile.OrderedCounterOp, access: GlobalAccess, number: Expr, count: Expr) -> None:
        self.forms, self.access, self.op = forms, access, op
        self.counts_to = count.as_int()
        self.places = [] if access.addresses is None else list(access.addresses.places)
        self.number, self.count = forms.formula(number), forms.formula(count)
        self.ids = [str(i) for i in (*forms.ids, forms.group(role_of(op))) if not i.is_constant]

    def _set(self, conditions: list[Formula], number: Formula | None) -> "Set":
        """Points that meet conditions; `number` None: with any number."""
        from treadle.verify.integer_sets import integer_set

        forms = self.forms
        formulas = [f"place{at} = {place}" for at, place in enumerate(self.places)] + [f"count = {self.count}", *conditions]
        formulas += [f"number = {number}"] if number is not None else []
        names = forms.closed({name for formula in formulas for name in symbols_in(formula)} | set(self.ids))
        varying = [*self.ids, *sorted(name for name in names if forms.symbols[name].depends and name not in self.ids)]
        formulas += [fact for name in sorted(names) for fact in forms.symbols[name].facts]
        dimensions = ", ".join([*(f"place{at}" for at in range(len(self.places))), "number", "count", *varying])
        parameters = ", ".join(sorted(names.difference(varying)))
        body = both(formulas).format_map({name: name for name in names})
        return integer_set(f"[{parameters}] -> {{ [{dimensions}] : {body} }}")

    def are_inside(self) -> bool:
        """Whether no arrival lies outside the counters."""
        return self._set([f"not ({both(self.access.domain)})"], self.number).is_empty()

    def are_numbered(self) -> bool:
        """Whether two workgroups of one counter never have the same number."""
        from treadle.verify.integer_sets import IN, OUT, different, pairs_of

        points = self._set([], self.number)
        same = pairs_of(points, points)
        for at in range(len(self.places) + 1):
            same = same.equate(IN, at, OUT, at)
        first = len(self.places) + 2
        return all(way.is_empty() for at in range(len(self.ids)) for way in different(same, first + at, first + at))

    def unlike(self, other: Expr) -> tuple[str, ...] | None:
        """Sizes and a workgroup for which a value is not the number; None where it always is."""
        from treadle.verify.integer_sets import point_of

        shown = point_of(self._set([f"not ({self.forms.formula(other)} = {self.number})"], self.number))
        return None if shown is None else self._described(shown)

    def backwards(self) -> tuple[str, ...] | None:
        """Sizes for which the workgroup of an earlier turn at a counter has no lower number in the grid (its first axis is the fastest)."""
        from treadle.verify.integer_sets import IN, OUT, pair_in, pairs_of

        points, first = self._set([], self.number), len(self.places) + 2
        same = pairs_of(points, points).order_lt(IN, len(self.places), OUT, len(self.places))
        for at in range(len(self.places)):
            same = same.equate(IN, at, OUT, at)
        ids = sum(not i.is_constant for i in self.forms.ids)
        for at in reversed(range(first, first + ids)):
            if (found := pair_in(same.order_gt(IN, at, OUT, at))) is not None:
                return self._pair(*found, ids)
            same = same.equate(IN, at, OUT, at)
        found = pair_in(same)
        return None if found is None else self._pair(*found, ids)

    def _pair(self, sizes: dict[str, int], one: list[int], other: list[int], ids: int) -> tuple[str, ...]:
        place, first = len(self.places), len(self.places) + 2
        lines = self._described(sizes)
        waits = f"workgroup {other[first : first + ids]}, turn {other[place]}, waits for turn {one[place]}"
        return (*lines, f"{waits}, which is that of workgroup {one[first : first + ids]}: it may begin only when this one has ended")

    def _described(self, values: dict[str, int]) -> tuple[str, ...]:
        sizes = [f"{self.forms.symbols[name].meaning} = {value}" for name, value in values.items() if name in self.forms.symbols]
        return ("with " + ", ".join(sizes),) if sizes else ()

    def are_all(self) -> bool:
        """Whether arrivals that are inside and numbered are known to have all numbers from 0 to their count at each counter: as many as
        there are counters and numbers, of which no two have both in common, leave none out. What `compared` finds takes seconds where tiles
        are walked in groups.
        """
        role, counters = role_of(self.op), tile.memref_type(self.op.counters).get_shape()
        sizes = [size.as_int() for size in self.forms.grid]
        if self.counts_to is None or min(counters, default=0) < 0 or None in sizes:
            return False
        arrivals = prod(size for size in sizes if size is not None) * (1 if role is None else role.groups)
        return arrivals == prod(counters) * self.counts_to and self._set(["not (0 <= number < count)"], self.number).is_empty()

    def compared(self) -> Counting:
        """The numbers that there are at each counter against those from 0 to its count, which is the same in all its workgroups."""
        from treadle.verify.integer_sets import IN, OUT, different, first_dimensions, pairs_of, point_of

        points, kept = self._set([], self.number), len(self.places) + 1
        same = pairs_of(points, points)
        for at in range(len(self.places)):
            same = same.equate(IN, at, OUT, at)
        if not all(way.is_empty() for way in different(same, kept, kept)):
            return Counting("open", "workgroups of one counter may count to different numbers")
        there, wanted = first_dimensions(points, kept), first_dimensions(self._set(["0 <= number < count"], None), kept)
        missing, spare = wanted.subtract(there), there.subtract(wanted)
        if missing.is_empty() and spare.is_empty():
            return Counting("right")
        if not (missing.is_empty() or spare.is_empty()):
            return Counting("open", "the numbers of its workgroups do not go from 0 to its count")
        shown = point_of(spare if missing.is_empty() else missing) or {}
        lines = self._described(shown)
        more, fewer = "more workgroups arrive at a counter than it counts", "a counter counts more workgroups than arrive"
        what = more if missing.is_empty() else fewer
        return Counting("wrong", witness=(*lines, what))
