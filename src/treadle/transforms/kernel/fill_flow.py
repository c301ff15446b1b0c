"""The data flow of fills: from the bulk copies into a slot to the first operation that touches it, through loops and branches.

Guards are followed as far as pipelined loops need it. A fill made under `iv + k * step < ub` is there for whoever knows that condition: the
loop's own later iterations, and operations under the same condition. What such a fill would have replaced is, where the condition is
known, from a path that was not taken.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from treadle.analysis.buffers import buffer_view
from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_motion import STILL, LoopMotion, Velocity, agreed
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.slots import Congruence, Linear, exactly
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.transforms.kernel.phase_parity import PhaseWait

MAX_SWEEPS = 200
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
class Filling:
    """A fill somewhere in its life: `writes` as seen from here.

    `when`: it was made under these conditions. `unless`: it is still there only where this does not hold.
    """

    fill: Fill
    writes: tuple[SharedAccess, ...]
    when: frozenset[Guard] = frozenset()
    unless: Guard = None

    def moved(self, slots: Callable[[SharedAccess], SharedAccess], guards: Callable[[Linear], Guard]) -> "Filling":
        """Seen from behind an edge of a loop."""
        when = frozenset(None if g is None else guards(g) for g in self.when)
        return Filling(self.fill, tuple(map(slots, self.writes)), when, None if self.unless is None else guards(self.unless))


IN_FLIGHT, DONE = 1, 2
State = dict[Filling, int]
"""For each filling whether it is in flight, waited for, or (on different paths) both."""


def is_bulk_copy(op: Operation) -> bool:
    """Whether an operation is a bulk copy without a barrier."""
    return isinstance(op, tile.CopyOp) and op.path.data == "bulk_tensor" and op.barrier is None


@dataclass(slots=True)
class FillFlow:
    """The data flow of fillings; `waits` are found where `emit` is set."""

    values: SlotValues
    starts: dict[Operation, Fill]
    ends: dict[Operation, Fill]
    accesses: dict[Operation, tuple[SharedAccess, ...]]
    waits: list[PhaseWait[Ring]] = field(default_factory=list[PhaseWait[Ring]])
    refused: set[Ring] = field(default_factory=set[Ring])
    motions: dict[Operation, tuple[LoopMotion, dict[object, Velocity]]] = field(
        default_factory=dict[Operation, tuple[LoopMotion, dict[object, Velocity]]]
    )
    facts: list[Linear] = field(default_factory=list[Linear])

    def block(self, block: Block, state: State, *, emit: bool) -> State:
        """The state after a block."""
        for op in tuple(block.ops):
            state = self._operation(op, state, emit=emit)
        return state

    def _operation(self, op: Operation, state: State, *, emit: bool) -> State:
        if isinstance(op, scf.ForOp):
            return self._loop(op, state, emit=emit)
        if isinstance(op, scf.IfOp):
            return self._branch(op, state, emit=emit)
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

    def _branch(self, op: scf.IfOp, state: State, *, emit: bool) -> State:
        guard = self._guard(op.cond)
        taken = self._under(guard, op.true_region.block, state, emit=emit)
        other = self._under(None, op.false_region.block, state, emit=emit) if op.false_region.blocks else state

        before, kept = _by_place(state), _by_place(taken)

        def made(filling: Filling, status: int, under: Guard) -> Filling:
            """With the condition that a fill of one branch was made under."""
            is_new = status == IN_FLIGHT and not before.get((filling.fill, filling.writes), 0) & IN_FLIGHT
            return replace(filling, when=filling.when | {under}) if is_new else filling

        def left(filling: Filling, status: int) -> Filling:
            """With the condition under which the first branch replaced it."""
            is_replaced = status == DONE and filling.unless is None and not kept.get((filling.fill, filling.writes), 0) & DONE
            return replace(filling, unless=guard) if is_replaced else filling

        return _join({made(f, s, guard): s for f, s in taken.items()}, {left(made(f, s, None), s): s for f, s in other.items()})

    def _under(self, fact: Guard, block: Block, state: State, *, emit: bool) -> State:
        """The state after a block that is executed where a fact holds."""
        if fact is None:
            return self.block(block, dict(state), emit=emit)
        self.facts.append(fact)
        possible: State = {}
        for filling, status in state.items():
            if filling.unless is None or not self._is_known(filling.unless):
                known = replace(filling, when=frozenset(g for g in filling.when if not self._is_known(g)))
                possible[known] = possible.get(known, 0) | status
        after = self.block(block, possible, emit=emit)
        self.facts.pop()
        return after

    def _is_known(self, guard: Guard) -> bool:
        if guard is None:
            return False
        differences = [guard - fact for fact in self.facts]
        return (guard.is_constant and guard.constant > 0) or any(d.is_constant and d.constant >= 0 for d in differences)

    def _guard(self, condition: SSAValue) -> Guard:
        owner = condition.owner
        if not isinstance(owner, arith.CmpiOp) or owner.predicate.value.data not in (2, 6):  # slt, ult
            return None
        return self._difference(owner.rhs, owner.lhs)

    def _difference(self, upper: SSAValue, lower: SSAValue) -> Guard:
        found = self.values.of(upper) - self.values.of(lower)
        return None if found.modulus else found.form

    def _loop(self, loop: scf.ForOp, before: State, *, emit: bool) -> State:
        block = loop.body.block
        motion, velocities = self._motion(loop)
        fact = self._difference(loop.ub, block.args[0])
        speed = motion.velocity(exactly(fact)) if fact is not None else STILL

        def moved(
            state: State, slots: Callable[[SharedAccess, int, Congruence], Congruence], guards: Callable[[Congruence], Congruence]
        ) -> State:
            def guard(g: Linear) -> Guard:
                there = guards(exactly(g))
                return None if there.modulus else there.form

            found: State = {}
            for filling, status in state.items():
                there = filling.moved(lambda a: a.moved(lambda n, s: slots(a, n, s)), guard)
                found[there] = found.get(there, 0) | status
            return found

        entry = moved(before, lambda a, n, s: motion.enter(s, velocities.get((a.alloc, n), STILL)), lambda g: motion.enter(g, speed))
        back = entry
        for _ in range(MAX_SWEEPS):
            back = moved(self._under(fact, block, entry, emit=False), lambda a, n, s: motion.around(s), motion.around)
            wider = _join(entry, back)
            if wider == entry:
                break
            entry = wider
        else:
            raise InternalError("bulk copies in a loop did not reach their fix point")
        if emit:
            self._under(fact, block, entry, emit=True)
        runs = (self.values.trips(loop).constant or 0) > 0
        return moved(back if runs else entry, lambda a, n, s: motion.leave(s), motion.leave)

    def _motion(self, loop: scf.ForOp) -> tuple[LoopMotion, dict[object, Velocity]]:
        if loop not in self.motions:
            motion = LoopMotion(loop, self.values)
            found: dict[object, set[Velocity]] = {}
            for op in loop.body.walk():
                for access in self.accesses.get(op, ()):
                    for n, slot in enumerate(access.slots):
                        found.setdefault((access.alloc, n), set()).add(motion.velocity(slot))
            self.motions[loop] = motion, agreed(found)
        return self.motions[loop]

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
                is_there = all(self._is_known(g) for f in mine for g in f.when)
                if not exact or not same_buffer or not is_there or set(mine.values()) != {IN_FLIGHT}:
                    self.refused.add(ring)
                    continue
                if emit:
                    self.waits.append(PhaseWait(op, ring, indices if indices is not None else self._indices(op, access)))
                state = _join({f: s for f, s in state.items() if f not in mine}, {replace(f, when=frozenset()): DONE for f in mine})
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
        """Fills that nothing reads on any path must be over when the kernel ends.

        One that is waited for on one path only has its wait under the condition that it was made under.
        """
        for ring in {f.fill.ring for f, s in state.items() if s == IN_FLIGHT}:
            if any(f.fill.ring is ring and s & DONE for f, s in state.items()) and ring.slots > 1:
                continue
            if ring.slots > 1:
                self.refused.add(ring)
            elif emit:
                self.waits.append(PhaseWait(op, ring, ()))
        return state


def _join(one: State, other: State) -> State:
    merged = dict(one)
    for filling, status in other.items():
        merged[filling] = merged.get(filling, 0) | status
    return merged


def _by_place(state: State) -> dict[tuple[Fill, tuple[SharedAccess, ...]], int]:
    """The status of fills in slots, whatever their conditions."""
    found: dict[tuple[Fill, tuple[SharedAccess, ...]], int] = {}
    for filling, status in state.items():
        place = filling.fill, filling.writes
        found[place] = found.get(place, 0) | status
    return found
