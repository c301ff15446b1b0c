"""Why a value is what it is in a run: what a class has to share for that. It stays with the value until something depends on the value.

A false `andi` is false for one of its false sides, whatever the other side is; so nothing that only the other one is made of has to be
shared. Which side it is, where both would do, is chosen when the value is used: the one that asks for less that is new.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from treadle.ir.core import Operation
from treadle.verify.classes import Form

Kind = Literal["sign", "not_negative", "zero", "congruent", "turn"]
MAX_DEPTH = 40


class Constraint:
    """One thing that a class shares: `form` has the sign of `value`, is zero or more, is zero, or is `value` modulo `modulus`.

    "turn": `op`, a comparison that a loop's turning points cover, goes the way that it goes in this stretch.
    """

    __slots__ = ("form", "kind", "modulus", "op", "value")

    def __init__(self, kind: Kind, form: Form, op: Operation, value: int = 0, modulus: int = 0) -> None:
        self.kind: Kind = kind
        self.form, self.op, self.value, self.modulus = form, op, value, modulus


class Reason:
    """All of `needs` and `constraints`, or any one of `either`. `depth`: so many choices within one another.

    `is_lasting`: it is made of turning points alone, and is the same reason in each iteration.
    """

    __slots__ = ("constraints", "depth", "either", "is_lasting", "needs")

    def __init__(self, needs: tuple["Reason", ...], constraints: tuple[Constraint, ...], either: tuple["Reason", ...] = ()) -> None:
        self.needs, self.constraints, self.either = needs, constraints, either
        self.depth = max([each.depth for each in (*needs, *either)], default=0) + bool(either)
        self.is_lasting = all(each.is_lasting for each in (*needs, *either)) and all(each.kind == "turn" for each in constraints)


def all_of(needs: Iterable[Reason | None], constraints: Iterable[Constraint] = ()) -> Reason | None:
    """The reason of what follows from all of these; None where nothing has to be shared."""
    known, own = [each for each in needs if each is not None], tuple(constraints)
    if not own and len(known) < 2:
        return known[0] if known else None
    return Reason(tuple(dict.fromkeys(known)), own)


def one_of(reasons: Iterable[Reason | None]) -> Reason | None:
    """The reason of what follows from any of these."""
    known = list(reasons)
    found = [each for each in known if each is not None]
    if len(found) < len(known):
        return None
    return found[0] if len(set(found)) == 1 or found[0].depth >= MAX_DEPTH else Reason((), (), tuple(found))


class Joined:
    """Reasons joined by a function; those that last are joined once."""

    def __init__(self, join: Callable[[Sequence[Reason | None]], Reason | None]) -> None:
        self._join = join
        self._known: dict[tuple[Reason | None, ...], Reason | None] = {}

    def __call__(self, reasons: tuple[Reason | None, ...]) -> Reason | None:
        """Join them."""
        if reasons in self._known:
            return self._known[reasons]
        found = self._join(reasons)
        if found is not None and found.is_lasting:
            self._known[reasons] = found
        return found
