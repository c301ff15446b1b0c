"""The data flow of fills: from the bulk copies into a slot to the first operation that touches it, through loops and branches.

The state tells for every slot which fill it may hold, in flight or waited for; slots that were never filled count as waited for. A wait is
right where the slot is in flight on all paths. Conditions are followed as far as pipelined loops need it: a slot that a fill under
`iv + k * step < ub` would have replaced matters only where that condition may be false, and what is in flight under it is impossible
behind the loop.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product

from treadle.analysis.buffers import buffer_view
from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_motion import STILL, Motions
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.slots import Congruence, Linear, exactly
from treadle.analysis.structured_flow import StructuredFlow
from treadle.dialects import tile
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.records import dataclass

FURTHEST = 32
"""How many iterations ahead a known trip count is made use of: more than a pipeline is deep."""
Guard = Linear | None
"""A condition: this form is greater than zero. None: one that nothing is known of."""


@dataclass(eq=False, slots=True)
class Ring:
    """Barriers for the slots of buffers that are filled together. `dims`: how many indices pick a slot. `is_eager`: waited for at once."""

    buffers: frozenset[tile.AllocOp]
    dims: int
    slots: int
    is_eager: bool = False


@dataclass(eq=False, slots=True)
class Fill:
    """Copies that complete together."""

    copies: list[tile.CopyOp]
    indices: tuple[SSAValue, ...]
    ring: Ring


@dataclass(frozen=True, slots=True)
class PhaseWait:
    """A wait to be inserted before an operation, for the fill in a slot of a ring."""

    before: Operation
    ring: Ring
    indices: tuple[SSAValue, ...]


@dataclass(frozen=True, slots=True)
class Filling:
    """What a slot may hold: a fill (one without copies stands for a slot that was never filled), its `writes` as seen from here.

    `unless`: only where this condition is false. `since`: only where these are true.
    """

    fill: Fill
    writes: tuple[SharedAccess, ...]
    unless: Guard = None
    since: frozenset[Linear] = frozenset()

    def moved(self, slots: Callable[[SharedAccess], SharedAccess], guards: Callable[[Linear], Guard]) -> "Filling":
        """Seen from behind an edge of a loop."""
        since = frozenset(there for g in self.since if (there := guards(g)) is not None)
        return Filling(self.fill, tuple(map(slots, self.writes)), None if self.unless is None else guards(self.unless), since)


IN_FLIGHT, DONE = 1, 2
State = dict[Filling, int]
"""For each filling whether it is in flight, waited for, or (on different paths) both."""


def is_bulk_copy(op: Operation) -> bool:
    """Whether an operation is a bulk copy without a barrier."""
    return isinstance(op, tile.CopyOp) and op.is_bulk and op.barrier is None


class FillFlow(StructuredFlow[State]):
    """The data flow of fillings; `waits` are found where `emit` is set."""

    def __init__(
        self,
        values: SlotValues,
        starts: dict[Operation, Fill],
        ends: dict[Operation, Fill],
        accesses: dict[Operation, tuple[SharedAccess, ...]],
    ) -> None:
        self.values, self.starts, self.ends, self.accesses = values, starts, ends, accesses
        self.waits: list[PhaseWait] = []
        self.refused: set[Ring] = set()
        self.motions = Motions(values, lambda op: accesses.get(op, ()))
        self.facts: list[Linear] = []

    def join(self, one: State, other: State) -> State:
        """What is possible on either path."""
        return _join(one, other)

    def plain(self, op: Operation, state: State, *, emit: bool) -> State:
        """The state after an operation, with the waits before it."""
        if isinstance(op, tile.ReturnOp):
            return self._end(op, state, emit=emit)
        if (fill := self.starts.get(op)) is not None:
            for copy in fill.copies:
                state = self._use(op, self.accesses[copy], fill.indices, state, emit=emit)
            writes = tuple(a for copy in fill.copies for a in self.accesses[copy] if a.is_write)
            state = {f: s for f, s in state.items() if not (f.fill.ring is fill.ring and f.writes[0].meets_slot(writes[0]) == "always")}
            state[Filling(fill, writes)] = IN_FLIGHT
        elif op not in self.ends and not is_bulk_copy(op):
            state = self._use(op, self.accesses.get(op, ()), None, state, emit=emit)
        if (fill := self.ends.get(op)) is not None and fill.ring.is_eager and op.next_op is not None:
            if emit:
                self.waits.append(PhaseWait(op.next_op, fill.ring, fill.indices))
            state = {f: DONE if f.fill is fill else s for f, s in state.items()}
        return state

    def branch(self, op: scf.IfOp, state: State, *, emit: bool) -> State:
        """Under a condition that is known of, and under its contrary."""
        guard = self._guard(op.cond)
        taken = self._under(guard, op.true_region.block, state, emit=emit)
        other = _without(guard, state)
        if op.false_region.blocks:
            other = self.block(op.false_region.block, other, emit=emit)
        if guard is None:
            return _join(taken, other)
        before, kept = _by_place(state), _by_place(taken)

        def made(filling: Filling, status: int) -> Filling:
            """With the condition that a fill was made under."""
            is_new = status == IN_FLIGHT and not before.get((filling.fill, filling.writes), 0) & IN_FLIGHT
            return replace(filling, since=filling.since | {guard}) if is_new else filling

        def left(filling: Filling, status: int) -> Filling:
            """With the condition under which the first branch replaced it."""
            is_replaced = status == DONE and filling.unless is None and not kept.get((filling.fill, filling.writes), 0) & DONE
            return replace(filling, unless=guard) if is_replaced else filling

        return _join({made(f, s): s for f, s in taken.items()}, _merged((left(f, s), s) for f, s in other.items()))

    def _under(self, fact: Guard, block: Block, state: State, *, emit: bool) -> State:
        """The state after a block that is executed where a fact holds."""
        if fact is None:
            return self.block(block, dict(state), emit=emit)
        self.facts.append(fact)
        possible = {f: s for f, s in state.items() if f.unless is None or not self._is_known(f.unless)}
        after = self.block(block, possible, emit=emit)
        self.facts.pop()
        return after

    def _is_known(self, guard: Linear) -> bool:
        return (guard.is_constant and guard.constant > 0) or any(_follows(guard, fact) for fact in self.facts)

    def _guard(self, condition: SSAValue) -> Guard:
        owner = condition.owner
        if not isinstance(owner, arith.CmpiOp) or owner.predicate.value.data not in (2, 6):  # slt, ult
            return None
        return self._difference(owner.rhs, owner.lhs)

    def _difference(self, upper: SSAValue, lower: SSAValue) -> Guard:
        found = self.values.of(upper) - self.values.of(lower)
        return None if found.modulus else found.form

    # --- the edges of loops

    def _fact(self, loop: scf.ForOp) -> tuple[Guard, Guard]:
        """What holds in every iteration of a loop, and in its first."""
        return self._difference(loop.ub, loop.body.block.args[0]), self._difference(loop.ub, loop.lb)

    def body(self, loop: scf.ForOp, state: State, *, emit: bool) -> State:
        """One iteration, which is made because it is below the bound."""
        fact, _ = self._fact(loop)
        end = self._under(fact, loop.body.block, self._weakened(state, fact), emit=emit)
        here: frozenset[Linear] = frozenset() if fact is None else frozenset({fact})
        return _merged((replace(f, since=f.since | here), s) for f, s in end.items())

    def enter(self, loop: scf.ForOp, state: State) -> State:
        """Relative to what the loop moves, with what is known of how far it goes."""
        motion, velocities = self.motions.of(loop)
        fact, first = self._fact(loop)
        speed = STILL if fact is None else motion.velocity(exactly(fact))

        def relative(guard: Congruence) -> Congruence:
            is_of_loop = first is not None and (guard.form - first).is_constant
            return motion.enter(guard, speed) if is_of_loop else guard

        known = self._known_trips(loop, first)
        start = _merged((replace(f, since=f.since | known), s) for f, s in state.items())
        return _moved(start, lambda a, n, s: motion.enter(s, velocities.get((a.alloc, n), STILL)), relative)

    def around(self, loop: scf.ForOp, state: State) -> State:
        """One iteration back."""
        motion, _ = self.motions.of(loop)
        return _moved(state, lambda a, n, s: motion.around(s), motion.around)

    def leave(self, loop: scf.ForOp, state: State) -> State:
        """What is possible where the next iteration is not below the bound."""
        motion, _ = self.motions.of(loop)
        fact, _ = self._fact(loop)
        return _moved(_without(fact, state), lambda a, n, s: motion.leave(s), motion.leave)

    def surely_runs(self, loop: scf.ForOp) -> bool:
        """Where the trip count is known."""
        return (self.values.trips(loop).constant or 0) > 0

    @staticmethod
    def _weakened(state: State, fact: Guard) -> State:
        """Without the conditions that say less than a fact."""
        if fact is None:
            return state
        return _merged((replace(f, since=frozenset(g for g in f.since if not _follows(g, fact))), s) for f, s in state.items())

    def _known_trips(self, loop: scf.ForOp, first: Guard) -> frozenset[Linear]:
        """What is known before a loop of how far it goes, as conditions on its first iteration."""
        if first is None:
            return frozenset()
        known = {fact for fact in self.facts if _follows(first, fact)}
        trips, step = self.values.trips(loop).constant, self.values.of(loop.step).constant
        if trips and step:
            known.add(first - Linear(step * min(trips - 1, FURTHEST)))
        return frozenset(known)

    def _use(
        self, op: Operation, accesses: tuple[SharedAccess, ...], indices: tuple[SSAValue, ...] | None, state: State, *, emit: bool
    ) -> State:
        """Wait for the fills that an operation touches."""
        for access in accesses:
            touched = {f: s for f, s in state.items() if any(access.overlaps(w) for w in f.writes)}
            for ring in {f.fill.ring for f, s in touched.items() if s & IN_FLIGHT}:
                mine = {f: s for f, s in touched.items() if f.fill.ring is ring}
                exact = ring.slots == 1 or all(access.meets_slot(w) == "always" for f in mine for w in f.writes if w.alloc is access.alloc)
                same_buffer = ring.slots == 1 or access.alloc in ring.buffers
                if not exact or not same_buffer or set(mine.values()) != {IN_FLIGHT}:
                    self.refused.add(ring)
                    continue
                if emit:
                    self.waits.append(PhaseWait(op, ring, indices if indices is not None else self._indices(op, access)))
                state = {f: DONE if f in mine else s for f, s in state.items()}
        return state

    def _indices(self, op: Operation, access: SharedAccess) -> tuple[SSAValue, ...]:
        for value in op.operands:
            view = buffer_view(value)
            if view is not None and view.alloc is access.alloc:
                found = tuple(self.values.of(i).within(e) for i, e in zip(view.indices, view.slot_extents, strict=True))
                if found == access.slots:
                    return view.indices
        return ()

    def _end(self, op: Operation, state: State, *, emit: bool) -> State:
        """Fills that nothing reads must be over when the kernel ends."""
        for ring in {f.fill.ring for f, s in state.items() if s & IN_FLIGHT}:
            if ring.slots > 1 or any(s != IN_FLIGHT for f, s in state.items() if f.fill.ring is ring):
                self.refused.add(ring)
            elif emit:
                self.waits.append(PhaseWait(op, ring, ()))
        return state


def never_filled(fills: Iterable[Fill], accesses: Mapping[Operation, tuple[SharedAccess, ...]]) -> State:
    """The state before the first fill: every slot of every ring."""
    state: State = {}
    seen: set[Ring] = set()
    for fill in fills:
        if fill.ring in seen:
            continue
        seen.add(fill.ring)
        empty = Fill([], (), fill.ring)
        writes = [a for copy in fill.copies for a in accesses[copy] if a.is_write]
        for numbers in product(*(range(extent) for extent in writes[0].slot_extents)):
            slots = tuple(exactly(Linear(n)).within(e) for n, e in zip(numbers, writes[0].slot_extents, strict=True))
            state[Filling(empty, tuple(replace(a, slots=slots) for a in writes))] = DONE
    return state


def _moved(state: State, slots: Callable[[SharedAccess, int, Congruence], Congruence], guards: Callable[[Congruence], Congruence]) -> State:
    """Seen from behind an edge of a loop."""

    def guard(g: Linear) -> Guard:
        there = guards(exactly(g))
        return None if there.modulus else there.form

    def access(a: SharedAccess) -> SharedAccess:
        return a.moved(lambda n, slot: slots(a, n, slot))

    return _merged((f.moved(access, guard), s) for f, s in state.items())


def _without(guard: Guard, state: State) -> State:
    """What is possible of a state where a condition is false."""
    if guard is None:
        return dict(state)

    return {f: s for f, s in state.items() if not any(_follows(guard, g) for g in f.since)}


def _follows(guard: Linear, fact: Linear) -> bool:
    """Whether `guard > 0` follows from `fact > 0`."""
    difference = guard - fact
    return difference.is_constant and difference.constant >= 0


def _merged(items: Iterable[tuple[Filling, int]]) -> State:
    found: State = {}
    for filling, status in items:
        found[filling] = found.get(filling, 0) | status
    return found


def _join(one: State, other: State) -> State:
    return _merged((*one.items(), *other.items()))


def _by_place(state: State) -> dict[tuple[Fill, tuple[SharedAccess, ...]], int]:
    """The status of fills in slots, whatever their conditions."""
    found: dict[tuple[Fill, tuple[SharedAccess, ...]], int] = {}
    for filling, status in state.items():
        place = filling.fill, filling.writes
        found[place] = found.get(place, 0) | status
    return found
