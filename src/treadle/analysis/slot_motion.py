"""How the slots of accesses look from the next iteration, from inside a loop and from behind it.

Entering a loop, a form may be written relative to what the loop moves (all of it is at its entry value there): a constant slot c becomes
`c + Trip`, so that what a prologue did is the same, seen from the loop, as what earlier iterations did. Which of the forms is taken
changes nothing about their truth, only whether they agree with those of the loop's own accesses after a few iterations.
"""

from collections.abc import Callable, Iterable, Mapping

from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_values import SlotValues, Trip, is_inside
from treadle.analysis.slots import UNKNOWN, Atom, Congruence, Linear, atom, congruence, exactly
from treadle.ir.core import Operation
from treadle.ir.dialects import scf

Velocity = frozenset[tuple[Atom, int]]
"""Coefficients of what a loop moves: `Trip` and carried values that are no forms of it."""
STILL: Velocity = frozenset()


class LoopMotion:
    """The edges of one loop."""

    def __init__(self, loop: scf.ForOp, values: SlotValues) -> None:
        self._loop = loop
        self._trip = Trip(loop)
        self._values = values
        self._numbers: dict[Atom, int] = {a: n for n, a in enumerate(loop.body.block.args)}
        self._back: dict[Atom, Congruence] = {}
        self._around: dict[Congruence, Congruence] = {}
        self._leave: dict[Atom, Congruence] = {}

    def velocity(self, slot: Congruence) -> Velocity:
        """What of a slot moves with the loop."""
        return frozenset((a, c) for a, c in slot.form.terms if self._moves(a))

    def enter(self, slot: Congruence, velocity: Velocity) -> Congruence:
        """A slot named before the loop, relative to what moves, before the first iteration."""
        if self.velocity(slot) or not velocity:
            return slot
        moved = slot
        for a, coefficient in velocity:
            start = Congruence(Linear())
            if (number := self._numbers.get(a)) is not None:
                start = self._values.of(self._loop.iter_args[number - 1] if number else self._loop.lb)
            moved = moved + (exactly(atom(a)) - start).scaled(coefficient)
        return congruence(moved.form, moved.modulus, slot.bound) if moved.modulus != 1 else slot

    def around(self, slot: Congruence) -> Congruence:
        """A slot as it stood in an iteration, seen from the next."""
        if slot not in self._around:
            self._around[slot] = slot.substitute(self._cached(self._back, self._seen_from_next))
        return self._around[slot]

    def leave(self, slot: Congruence) -> Congruence:
        """A slot as it stood before an iteration that is not made, seen from behind the loop."""
        return slot.substitute(self._cached(self._leave, self._seen_from_behind))

    def _moves(self, a: Atom) -> bool:
        return a == self._trip or a in self._numbers

    @staticmethod
    def _cached(known: dict[Atom, Congruence], make: Callable[[Atom], Congruence]) -> Callable[[Atom], Congruence]:
        def change(a: Atom) -> Congruence:
            if a not in known:
                known[a] = make(a)
            return known[a]

        return change

    def _seen_from_next(self, a: Atom) -> Congruence:
        if a == self._trip:
            return exactly(atom(a) - Linear(1))
        if (number := self._numbers.get(a)) is not None:
            speed = self._values.speed(self._loop, number)
            return exactly(atom(a)) - speed if speed.modulus != 1 else UNKNOWN
        return UNKNOWN if is_inside(a, self._loop) else exactly(atom(a))

    def _seen_from_behind(self, a: Atom) -> Congruence:
        if a == self._trip:
            return self._values.trips(self._loop)
        if (number := self._numbers.get(a)) is not None:
            return exactly(atom(self._loop.results[number - 1])) if number else UNKNOWN
        return UNKNOWN if is_inside(a, self._loop) else exactly(atom(a))


def agreed(velocities: Mapping[object, set[Velocity]]) -> dict[object, Velocity]:
    """For each key the one velocity that all its slots have, those that stand still left out."""
    return {key: next(iter(moving)) for key, found in velocities.items() if len(moving := found - {STILL}) == 1}


class Motions:
    """The edges of each loop of a kernel, with the velocity of each buffer's slots in it: `accesses` gives those of an operation."""

    def __init__(self, values: SlotValues, accesses: Callable[[Operation], Iterable[SharedAccess]]) -> None:
        self._values, self._accesses = values, accesses
        self._known: dict[Operation, tuple[LoopMotion, dict[object, Velocity]]] = {}

    def of(self, loop: scf.ForOp) -> tuple[LoopMotion, dict[object, Velocity]]:
        """The edges of a loop; the velocity by buffer and dimension."""
        if loop not in self._known:
            motion = LoopMotion(loop, self._values)
            found: dict[object, set[Velocity]] = {}
            for op in loop.body.walk():
                for access in self._accesses(op):
                    for n, slot in enumerate(access.slots):
                        found.setdefault((access.alloc, n), set()).add(motion.velocity(slot))
            self._known[loop] = motion, agreed(found)
        return self._known[loop]
