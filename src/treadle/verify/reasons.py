"""Why a value is what it is in a run: what a class has to share for that. It stays with the value until something depends on the value.

A false `andi` is false for one of its false sides, whatever the other side is; so nothing that only the other one is made of has to be
shared. Which side it is, where both would do, is chosen when the value is used: the one that asks for less that is new.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from treadle.ir.core import Operation
from treadle.verify.symbols import Form

Kind = Literal["sign", "not_negative", "zero", "congruent", "turn"]
MAX_DEPTH = 40


class Constraint(NamedTuple):
    """One thing that a class shares: `form` has the sign of `value`, is zero or more, is zero, or is `value` modulo `modulus`.

    "turn": `op`, a comparison that a loop's turning points cover, goes the way that it goes in this stretch.
    """

    kind: Kind
    form: Form
    op: Operation
    value: int = 0
    modulus: int = 0


class Reason:
    """All of `needs` and `constraints`, or any one of `either`. `depth`: so many choices within one another."""

    __slots__ = ("constraints", "depth", "either", "needs")

    def __init__(self, needs: tuple["Reason", ...], constraints: tuple[Constraint, ...], either: tuple["Reason", ...] = ()) -> None:
        self.needs, self.constraints, self.either = needs, constraints, either
        self.depth = max([each.depth for each in (*needs, *either)], default=0) + bool(either)


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
