"""Steps that make events: accesses to memory that has to be ordered, and what orders them; and the memory and barriers they name."""

from collections.abc import Sequence

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import Effect
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.core import IsTerminator, Operation
from treadle.ir.dialects import builtin
from treadle.verify.decode import KINDS, BufferRef, MbarrierRef, number_of, queue_of, with_flags
from treadle.verify.events import Event, Node
from treadle.verify.footprints import Footprints
from treadle.verify.program import pointer_of
from treadle.verify.trace_state import State, Step, Undecided


class MemorySteps:
    """Makes them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._footprints = Footprints(state.program)

    def slot(self, op: pipe.SlotOp) -> Step:
        """A slot of a buffer."""
        env, at, source = self.state.env, self.state.place(op.result), self.state.place(op.source)
        indices = [self.state.place(v) for v in op.indices]
        shape = tile.memref_type(op.source).get_shape()

        known: dict[tuple[object, ...], BufferRef] = {}

        def run() -> None:
            key = (env[source], *[self.state.fix(i, op) for i in indices])
            found = known.get(key)
            if found is None:
                base, slots = key[0], [s for s in key[1:] if isinstance(s, int)]
                if not isinstance(base, BufferRef) or len(slots) != len(indices):
                    raise Undecided(op, "its slot depends on values that are not known before the kernel runs")
                if any(not 0 <= s < limit for s, limit in zip(slots, shape, strict=False)):
                    raise Undecided(op, f"slot {slots} of a buffer that has {list(shape[: len(slots)])}")
                picked = [c + s for c, s in zip(base.corner, slots, strict=False)]
                found = known[key] = self.state.references.buffer(base.buffer, (*base.slots, *picked), base.corner[len(slots) :])
            env[at] = found

        return run

    def part(self, op: pipe.PartOp) -> Step:
        """A part of a buffer."""
        env, at, source, index = self.state.env, self.state.place(op.result), self.state.place(op.source), self.state.place(op.index)
        axis, count = op.axis.value.data, op.count.value.data
        extent = tile.memref_type(op.result).get_shape()[axis]

        def run() -> None:
            base, part = env[source], self.state.fix(index, op)
            if not isinstance(base, BufferRef) or not isinstance(part, int):
                raise Undecided(op, "its part depends on values that are not known before the kernel runs")
            if not 0 <= part < count:
                raise Undecided(op, f"part {part} of {count}")
            corner = tuple(c + part * extent if at == axis else c for at, c in enumerate(base.corner))
            env[at] = self.state.references.buffer(base.buffer, base.slots, corner)

        return run

    def mbarrier_slot(self, op: sync.MbarrierSlotOp) -> Step:
        """One of several mbarriers."""
        env, at, source, index = self.state.env, self.state.place(op.result), self.state.place(op.source), self.state.place(op.index)

        def run() -> None:
            base, slot = env[source], self.state.fix(index, op)
            if not isinstance(base, MbarrierRef) or not isinstance(slot, int):
                raise Undecided(op, "its slot depends on values that are not known before the kernel runs")
            if not 0 <= slot < base.size:
                raise Undecided(op, f"slot {slot} of {base.size} mbarriers")
            env[at] = self.state.references.mbarrier(base.first + slot, 1)

        return run

    def _registers(self, op: Operation, effects: Sequence[Effect]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The values in flight that an operation goes on with as its accumulator, uses otherwise, and leaves in flight."""
        program, registers = self.state.program, self.state.program.registers
        in_flight = [e for e in effects if program.is_in_flight(e)]
        chained = tuple(registers[v] for v in op.operands[2:3] if in_flight and v in registers)
        uses = tuple({registers[v] for at, v in enumerate(op.operands) if v in registers and not (in_flight and at == 2)})
        if op.has_trait(IsTerminator):
            uses = program.released.get(op, ())
        held = (program.held[op],) if op in program.held else ()
        return chained, uses, (*(registers[e.resource] for e in in_flight), *held)

    def event(self, op: Operation) -> list[Step]:
        """What orders memory, or accesses what has to be ordered; nothing for other operations."""
        program, index, env = self.state.program, self.state.program.index[op], self.state.env
        effects = program.effects(op)
        chained, uses, defines = self._registers(op, effects)
        memory = [e for e in effects if not isinstance(e.resource.type, builtin.TensorType)]
        memory = [e for e in memory if is_shared(e.resource.type) or pointer_of(e.resource) in program.tracked_pointers]
        kind = KINDS.get(op.name, "access")
        if kind == "access" and not (uses or defines or memory):
            return []
        if isinstance(op, sync.MbarrierAllocOp):
            return [lambda: self.state.out.append(self.state.node(index, lambda: Event(kind, op, index)))]
        resources = [self.state.place(e.resource) if is_shared(e.resource.type) else -1 for e in memory]
        barrier = next((self.state.place(v) for v in op.operands if isinstance(v.type, sync.MbarrierType)), -1)
        parity = self.state.place(op.parity) if isinstance(op, sync.WaitPhaseOp) else -1
        values = [r for r in resources if r >= 0] + ([barrier] if barrier >= 0 else []) + ([parity] if parity >= 0 else [])

        def make() -> Node:
            accesses = tuple(self._footprints.access(op, e, env[at] if at >= 0 else None) for e, at in zip(memory, resources, strict=True))
            mbarrier = -1
            if barrier >= 0:
                place = env[barrier]
                if not isinstance(place, MbarrierRef):
                    raise InternalError(f"{op.name} of an unknown mbarrier")
                mbarrier = place.first
            number = env[parity] if parity >= 0 else number_of(op)
            if not isinstance(number, int):
                raise Undecided(op, "its parity depends on values that are not known before the kernel runs")
            queue = queue_of(op, self.state.group) or next((name for e in effects if (name := program.queue_name(e))), "")
            event = Event(kind, op, index, accesses, uses, chained, defines, (), queue, number, mbarrier, program.is_elected(op))
            return with_flags(event)

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
            if parity >= 0:
                self.state.fix(parity, op)
            self.state.out.append(self.state.node((index, tuple([env[v] for v in values])), make))

        return [run]
