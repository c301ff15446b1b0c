"""Steps that make events: accesses to memory that has to be ordered, and what orders them; and the memory and barriers they name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import Effect
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.ancestry import operands_of
from treadle.ir.core import IsTerminator, Operation
from treadle.ir.dialects import builtin
from treadle.verify.classes import Form, scaled, shifted
from treadle.verify.decode import KINDS, BufferRef, Footprints, MbarrierRef, Turned, number_of, queue_of, with_flags
from treadle.verify.events import Counted, Event, Kind, LoopNode, Node, Segment, TurnedEvent
from treadle.verify.program import pointer_of
from treadle.verify.trace_state import State, Step, Undecided

if TYPE_CHECKING:
    from treadle.verify.ring_counters import Going

_NO_REGISTERS: tuple[tuple[int, ...], ...] = ((), (), ())


class MemorySteps:
    """Makes them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._footprints = Footprints(state.program)
        self._tracked = state.program.tracked_pointers
        rings = state.program.rings
        self._turned = rings.turned if rings is not None else {}
        self.starts = list(rings.starts()) if rings is not None else []
        self._count = rings.count if rings is not None else 1
        self._events = 0

    def slot(self, op: pipe.SlotOp) -> Step:
        """A slot of a buffer."""
        env, at, source = self.state.env, self.state.place(op.result), self.state.place(op.source)
        indices = [self.state.place(v) for v in op.indices]
        shape = tile.memref_type(op.source).get_shape()

        turned = next((each for each in range(len(indices)) if (op, each + 1) in self._turned), -1)
        known: dict[tuple[object, ...], object] = {}

        def picked(base: object, given: tuple[object, ...]) -> BufferRef:
            slots = [each for each in given if isinstance(each, int)]
            if not isinstance(base, BufferRef) or len(slots) != len(given):
                raise Undecided(op, "its slot depends on values that are not known before the kernel runs")
            if any(not 0 <= s < limit for s, limit in zip(slots, shape, strict=False)):
                raise Undecided(op, f"slot {slots} of a buffer that has {list(shape[: len(slots)])}")
            corner = [c + s for c, s in zip(base.corner, slots, strict=False)]
            return self.state.references.buffer(base.buffer, (*base.slots, *corner), base.corner[len(slots) :])

        def run() -> None:
            slots = tuple([0 if each == turned else self.state.fix(i, op) for each, i in enumerate(indices)])
            key = (env[source], slots)
            found = known.get(key)
            if found is None:
                if turned < 0:
                    found = self._lifted(env[source], lambda base: picked(base, slots))
                else:
                    counter, values = self._turned[op, turned + 1]
                    base = env[source]
                    of = {value: picked(base, (*slots[:turned], value, *slots[turned + 1 :])) for value in dict.fromkeys(values)}
                    found = self.state.references.turned(counter, tuple([of[value] for value in values]))
                known[key] = found
            env[at] = found

        return run

    def _lifted(self, base: object, make: Callable[[object], object]) -> object:
        """What is made of a reference, or of each that a counter picks."""
        if not isinstance(base, Turned):
            return make(base)
        return self.state.references.turned(base.counter, tuple([make(each) for each in base.values]))

    def part(self, op: pipe.PartOp) -> Step:
        """A part of a buffer."""
        env, at, source, index = self.state.env, self.state.place(op.result), self.state.place(op.source), self.state.place(op.index)
        axis, count = op.axis.value.data, op.count.value.data
        extent = tile.memref_type(op.result).get_shape()[axis]

        def picked(base: object, part: object) -> BufferRef:
            if not isinstance(base, BufferRef) or not isinstance(part, int):
                raise Undecided(op, "its part depends on values that are not known before the kernel runs")
            if not 0 <= part < count:
                raise Undecided(op, f"part {part} of {count}")
            corner = tuple(c + part * extent if at == axis else c for at, c in enumerate(base.corner))
            return self.state.references.buffer(base.buffer, base.slots, corner)

        def run() -> None:
            part = self.state.fix(index, op)
            env[at] = self._lifted(env[source], lambda base: picked(base, part))

        return run

    def mbarrier_slot(self, op: sync.MbarrierSlotOp) -> Step:
        """One of several mbarriers."""
        env, at, source, index = self.state.env, self.state.place(op.result), self.state.place(op.source), self.state.place(op.index)

        def picked(slot: object) -> MbarrierRef:
            base = env[source]
            if not isinstance(base, MbarrierRef) or not isinstance(slot, int):
                raise Undecided(op, "its slot depends on values that are not known before the kernel runs")
            if not 0 <= slot < base.size:
                raise Undecided(op, f"slot {slot} of {base.size} mbarriers")
            return self.state.references.mbarrier(base.first + slot, 1)

        def run() -> None:
            env[at] = picked(self.state.fix(index, op))

        turned: dict[object, object] = {}

        def turn() -> None:
            base = env[source]
            found = turned.get(base)
            if found is None:
                found = turned[base] = self.state.references.turned(counter, tuple([picked(value) for value in values]))
            env[at] = found

        if (op, 1) not in self._turned:
            return run
        counter, values = self._turned[op, 1]
        return turn

    # --- counters of rings

    def count(self, op: Operation, steps: "Sequence[Going]") -> list[Step]:
        """Counters go on: by constants at once, by a size as a loop of so many iterations that each go on by one.

        Such a loop may be longer by as much as those that make the same steps, so that the size need not be known modulo anything.
        """
        state, modulus = self.state, self._count
        sizes = dict.fromkeys([step.size for step in steps if step.size is not None])
        places = {size: state.place(size) for size in sizes}

        def counted(counter: int, by: int) -> list[int]:
            return [state.node(("count", counter, by % modulus), lambda: Counted(counter, by % modulus))] if by % modulus else []

        def run() -> None:
            for step in steps:
                state.out += counted(step.counter, step.by)
            for size, at in places.items():
                value, symbol = state.env[at], state.symbols[at]
                if not isinstance(value, int) or value < 0:
                    raise Undecided(state.program.kernel, "a ring goes on by a value that is not known before the kernel runs")
                state.commit(state.reasons[at])
                going = [step for step in steps if step.size is size]
                if symbol is None or symbol.iterations or not symbol.terms:
                    if symbol is not None:
                        state.congruent(symbol, value, modulus)
                    state.out += [node for step in going for node in counted(step.counter, step.times * value)]
                elif not value:
                    state.not_negative(scaled(symbol, -1), op)
                else:
                    row = tuple([node for step in going for node in counted(step.counter, step.times)])
                    self._count_along(op, row, value, symbol)

        return [run]

    def _count_along(self, op: Operation, row: tuple[int, ...], value: int, form: Form) -> None:
        """A loop of counting alone, which may be longer as its form is."""
        state, kept = self.state, (Segment((row,), value, 0, 0),)
        node = state.node(("counting", row, value), lambda: LoopNode(kept))
        state.facts.setdefault((node, 0), {})[shifted(form, -value).key] = None
        state.loop_of[node] = state.program.index[op]
        state.covered.shared += 1
        state.out.append(node)

    def _turned_event(self, values: Sequence[int], make: Callable[[Callable[[int], object]], Event]) -> TurnedEvent:
        """The event of what is at these places, of which counters pick some."""
        given = {at: self.state.env[at] for at in values}
        counters = tuple(sorted({value.counter for value in given.values() if isinstance(value, Turned)}))
        events: dict[tuple[object, ...], Event] = {}

        def made(counts: tuple[int, ...]) -> Event:
            of = dict(zip(counters, counts, strict=True))
            picked = {at: value.values[of[value.counter]] if isinstance(value, Turned) else value for at, value in given.items()}
            key = tuple(picked.values())
            if key not in events:
                events[key] = make(picked.__getitem__)
            return events[key]

        self._events += 1
        return TurnedEvent(self._events, counters, self.starts, made)

    def perhaps(self, event: TurnedEvent) -> int:
        """The node of one that may or may not happen."""

        def made() -> TurnedEvent:
            self._events += 1
            return event.perhaps(self._events, self.starts)

        return self.state.node(("perhaps", event.number, "turned"), made)

    # --- events

    def _registers(self, op: Operation, effects: Sequence[Effect]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The values in flight that an operation goes on with as its accumulator, uses otherwise, and leaves in flight."""
        program, registers = self.state.program, self.state.program.registers
        in_flight = [e for e in effects if program.is_in_flight(e)]
        chained = tuple(registers[v] for v in operands_of(op)[2:3] if in_flight and v in registers)
        uses = tuple({registers[v] for at, v in enumerate(operands_of(op)) if v in registers and not (in_flight and at == 2)})
        if op.has_trait(IsTerminator):
            uses = program.released.get(op, ())
        held = (program.held[op],) if op in program.held else ()
        return chained, uses, (*(registers[e.resource] for e in in_flight), *held)

    def _is_ordered(self, effect: Effect) -> bool:
        """Whether accesses to what an effect is on are held against one another: of a register tile its registers are."""
        kind = effect.resource.type
        return not isinstance(kind, builtin.TensorType) and (is_shared(kind) or pointer_of(effect.resource) in self._tracked)

    def _parity(self, op: Operation) -> int:
        """Where the parity of a wait stands, -1 for other operations; one that a counter picks stands somewhere of its own."""
        if not isinstance(op, sync.WaitPhaseOp):
            return -1
        turned = self._turned.get((op, 1))
        return self.state.place(op.parity) if turned is None else self.state.fixed(self.state.references.turned(*turned))

    def event(self, op: Operation) -> list[Step]:
        """What orders memory, or accesses what has to be ordered; nothing for other operations."""
        program = self.state.program
        effects, kind = program.effects(op), KINDS.get(op.name, "access")
        registers = self._registers(op, effects) if program.registers or program.held else _NO_REGISTERS
        memory = [e for e in effects if self._is_ordered(e)]
        if kind == "access" and not (registers[1] or registers[2] or memory):
            return []
        return self._steps_of_event(op, kind, effects, memory, registers)

    def _steps_of_event(
        self, op: Operation, kind: Kind, effects: Sequence[Effect], memory: list[Effect], registers: tuple[tuple[int, ...], ...]
    ) -> list[Step]:
        program, index, env = self.state.program, self.state.program.index[op], self.state.env
        chained, uses, defines = registers
        if isinstance(op, sync.MbarrierAllocOp):
            return [lambda: self.state.out.append(self.state.node(index, lambda: Event(kind, op, index)))]
        resources = [self.state.place(e.resource) if is_shared(e.resource.type) else -1 for e in memory]
        barrier = next((self.state.place(v) for v in operands_of(op) if isinstance(v.type, sync.MbarrierType)), -1)
        parity = self._parity(op)
        values = [place for place in (*resources, barrier, parity) if place >= 0]

        def made(look: Callable[[int], object], group: int, rank: int) -> Event:
            accesses = tuple(self._footprints.access(op, e, look(at) if at >= 0 else None) for e, at in zip(memory, resources, strict=True))
            mbarrier = -1
            if barrier >= 0:
                place = look(barrier)
                if not isinstance(place, MbarrierRef):
                    raise InternalError(f"{op.name} of an unknown mbarrier")
                mbarrier = place.first
            number = look(parity) if parity >= 0 else number_of(op)
            if not isinstance(number, int):
                raise Undecided(op, "its parity depends on values that are not known before the kernel runs")
            queue = queue_of(op, group) or next((name for e in effects if (name := program.queue_name(e))), "")
            event = Event(kind, op, index, accesses, uses, chained, defines, (), queue, number, mbarrier, program.is_elected(op))
            return with_flags(event, rank)

        def make() -> Node:
            group, rank = self.state.group, self.state.rank
            if any(isinstance(env[v], Turned) for v in values):
                return self._turned_event(values, lambda look: made(look, group, rank))
            return made(env.__getitem__, group, rank)

        if isinstance(op, sync.NamedBarrierOp) and op.per_group is not None:
            return [lambda: self.state.out.append(self.state.node((index, self.state.group), make))]
        if not values:
            node: list[int] = []

            def fixed() -> None:
                if not node:
                    node.append(self.state.node(index, make))
                self.state.out.append(node[0])

            return [fixed]

        def run() -> None:
            if parity >= 0 and not isinstance(env[parity], Turned):
                self.state.fix(parity, op)
            self.state.out.append(self.state.node((index, tuple([env[v] for v in values])), make))

        def run_at_peers() -> None:
            self.state.out.append(self.state.node((index, self.state.rank, tuple([env[v] for v in values])), make))

        is_relative = isinstance(op, tile.CopyOp | sync.ArriveOp) and op.relative is not None
        return [run_at_peers if is_relative else run]
