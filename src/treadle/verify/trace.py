"""From a program to traces: index arithmetic is run on numbers, everything else becomes an event.

Each operation is looked at once and becomes a step, a closure over one list of values; loops only call steps. A loop whose number does not
matter and whose carried values come back repeats from there on, so that long loops cost nothing.
"""

from collections.abc import Callable, Mapping

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.verify.conditions import Conditions
from treadle.verify.decode import KINDS, BufferRef, MbarrierRef, References, number_of, queue_of, with_flags
from treadle.verify.events import Event, LoopNode, Node, RolesNode, Trace, compress
from treadle.verify.findings import unverifiable
from treadle.verify.footprints import Footprints
from treadle.verify.program import Program, is_async_queue, is_elected, is_first_axis, pointer_of
from treadle.verify.scalars import Function, constant_value, scalar_function, width_of

Step = Callable[[], None]
MAX_ITERATIONS = 1 << 20


class Tracer:
    """Runs a program's control for one choice of the unknown values. Nodes are shared between the runs of one tracer."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._slot_of: dict[SSAValue, int] = {}
        self._env: list[object] = []
        self._references = References()
        self._out: list[int] = []
        self._nodes: list[Node] = []
        self._ids: dict[object, int] = {}
        self._footprints = Footprints(program)
        self._group = self._rank = 0
        self._forced: Mapping[object, bool] = {}
        self._trips: dict[int, int] = {}
        self.conditions = Conditions()
        self.open_branches: dict[object, None] = {}
        self.branches: set[tuple[int, bool]] = set()
        self._unknown_at = [[self._at(value) for value in program.same_as(unknown)] for unknown in program.unknowns]
        self._control: dict[str, Callable[..., Step]] = {
            "scf.for": self._loop,
            "scf.if": self._branch,
            "pipe.roles": self._roles,
            "pipe.slot": self._slot,
            "pipe.part": self._part,
            "sync.mbarrier_slot": self._mbarrier_slot,
        }
        self._steps = self._block(program.kernel.body.block)

    def run(self, unknowns: tuple[int, ...], forced: Mapping[object, bool] | None = None) -> Trace:
        """The trace where the program's unknowns have these values; `forced` says which way conditions go, by their keys.

        The workgroups of a cluster are neighbours along the first axis: their ids are the value given for it, but for their rank.
        """
        self._forced = forced or {}
        self._trips = {}
        roots: list[tuple[int, ...]] = []
        for rank in range(self.program.cluster):
            self._out = []
            self._group, self._rank = 0, rank
            for known, places, value in zip(self.program.unknowns, self._unknown_at, unknowns, strict=True):
                mine = value - value % self.program.cluster + rank if is_first_axis(known) else value
                for at in places:
                    self._env[at] = mine
            for step in self._steps:
                step()
            roots.append(tuple(self._out))
        return Trace(self._nodes, tuple(roots), self._trips)

    # --- nodes

    def _intern(self, key: object, make: Callable[[], Node]) -> int:
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._nodes)
            self._nodes.append(make())
        return found

    def _at(self, value: SSAValue) -> int:
        found = self._slot_of.get(value)
        if found is None:
            found = self._slot_of[value] = len(self._env)
            self._env.append(None)
        return found

    # --- steps

    def _block(self, block: Block) -> list[Step]:
        return [step for op in block.ops for step in self._steps_of(op)]

    def _steps_of(self, op: Operation) -> list[Step]:
        if (control := self._control.get(op.name)) is not None:
            return [control(op)]
        match op:
            case sync.MbarrierAllocOp():
                self._env[self._at(op.result)] = self._references.mbarrier(self.program.mbarriers.base[op], op.slot_count())
                return self._event(op) if self.program.cluster > 1 else []
            case tile.AllocOp():
                rank = len(tile.memref_type(op.result).get_shape())
                self._env[self._at(op.result)] = self._references.buffer(self.program.buffers[op.result], (), (0,) * rank)
                return []
            case pipe.GroupIdOp():
                at = self._at(op.result)
                return [lambda: self._set(at, self._group)]
            case pipe.ClusterRankOp():
                at = self._at(op.result)
                return [lambda: self._set(at, self._rank)]
            case tile.ProgramIdOp() | scf.YieldOp():
                return []
            case _ if op.regions and not isinstance(op, tile.ReduceOp):
                raise unverifiable(op, f"the control flow of {op.name} is not known")
            case _ if isinstance(op, HasEffects) or any(v in self.program.registers for v in op.operands):
                return self._event(op)
            case _:
                return self._scalar(op)

    def _set(self, at: int, value: object) -> None:
        self._env[at] = value

    def _scalar(self, op: Operation) -> list[Step]:
        if not any(result in self.program.deciding for result in op.results):
            return []
        at, env = self._at(op.results[0]), self._env
        if op.name == "arith.constant":
            value = constant_value(op)
            env[at] = value
            return []
        function = scalar_function(op)
        operands = tuple(self._at(v) for v in op.operands)
        if width_of(op.results[0].type) == 1:
            return [self._condition(op, function, operands)]
        if function is None:
            return []
        if len(operands) == 2:
            left, right = operands

            def binary() -> None:
                try:
                    env[at] = function(env[left], env[right])
                except (TypeError, ZeroDivisionError):
                    env[at] = None

            return [binary]

        def compute() -> None:
            try:
                env[at] = function(*(env[v] for v in operands))
            except (TypeError, ZeroDivisionError):
                env[at] = None

        return [compute]

    def _condition(self, op: Operation, function: Function | None, operands: tuple[int, ...]) -> Step:
        """A truth value: what it is forced to be, else computed; equal conditions are forced alike."""
        at, env, known = self._at(op.results[0]), self._env, self.conditions.of(op.results[0])

        def decide() -> None:
            forced = self._forced.get(known.key) if self._forced else None
            if forced is not None:
                env[at] = int(forced != known.is_negated)
                return
            try:
                env[at] = function(*(env[v] for v in operands)) if function is not None else None
            except (TypeError, ZeroDivisionError):
                env[at] = None

        return decide

    # --- control flow

    def _moves(self, op: Operation, key: str, pairs: list[tuple[SSAValue, SSAValue]]) -> tuple[list[tuple[int, int]], int | None]:
        """What a hand-over of values does: pairs of the environment, and the event that moves register tokens."""
        numbers = self.program.registers
        copies = [(self._at(to), self._at(source)) for to, source in pairs if to in self.program.deciding]
        moves = tuple((numbers[to], numbers.get(source, -1)) for to, source in pairs if to in numbers)
        if not moves:
            return copies, None
        index = self.program.index[op]
        return copies, self._intern((index, key), lambda: Event("move", op, index, moves=moves))

    def _hand_over(self, copies: list[tuple[int, int]], event: int | None) -> None:
        env = self._env
        values = [env[source] for _, source in copies]
        for (to, _), value in zip(copies, values, strict=True):
            env[to] = value
        if event is not None:
            self._out.append(event)

    def _loop(self, op: scf.ForOp) -> Step:
        block, index, env = op.body.block, self.program.index[op], self._env
        lb, ub, step = self._at(op.lb), self._at(op.ub), self._at(op.step)
        number = self._at(block.args[0])
        end = block.last_op
        if end is None:
            raise InternalError("scf.for without scf.yield")
        enter = self._moves(op, "enter", list(zip(block.args[1:], op.iter_args, strict=True)))
        turn = self._moves(op, "turn", list(zip(block.args[1:], end.operands, strict=True)))
        leave = self._moves(op, "leave", list(zip(op.results, block.args[1:], strict=True)))
        body = self._block(block)
        carried = [self._at(a) for a in block.args[1:] if a in self.program.deciding]
        is_numbered = block.args[0] in self.program.deciding

        def run() -> None:
            first, last, by = env[lb], env[ub], env[step]
            if not isinstance(first, int) or not isinstance(last, int) or not isinstance(by, int) or by <= 0:
                raise unverifiable(op, "its bounds depend on values that are not known before the kernel runs")
            count = max(0, -((first - last) // by))
            self._trips[index] = max(count, self._trips.get(index, 0))
            self._hand_over(*enter)
            outer, ids, seen = self._out, list[tuple[int, ...]](), dict[tuple[object, ...], int]()
            for at in range(count):
                if at > MAX_ITERATIONS:
                    raise unverifiable(op, f"{count} iterations without repetition are too many to follow")
                if not is_numbered:
                    state = tuple([env[c] for c in carried])
                    before = seen.setdefault(state, at)
                    if before != at:
                        left, again = count - at, ids[before:at]
                        kept = _shortened(left, len(again))
                        ids += again * (kept // len(again)) + again[: kept % len(again)]
                        for _ in range(left % (at - before)):
                            self._out = []
                            for inner in body:
                                inner()
                            self._hand_over(turn[0], None)
                        break
                env[number] = first + at * by
                self._out = []
                for inner in body:
                    inner()
                self._hand_over(*turn)
                ids.append(tuple(self._out))
            self._out = outer
            segments = compress(ids)
            if segments:
                self._out.append(self._intern((index, segments), lambda: LoopNode(segments)))
            self._hand_over(*leave)

        return run

    def _branch(self, op: scf.IfOp) -> Step:
        index, env = self.program.index[op], self._env
        condition, key = self._at(op.cond), self.conditions.of(op.cond).key
        ways: list[tuple[list[Step], tuple[list[tuple[int, int]], int | None]]] = []
        for which, region in enumerate(op.regions):
            if region.blocks:
                end = region.block.last_op
                operands = list(end.operands) if end is not None else []
                ways.append((self._block(region.block), self._moves(op, f"way {which}", list(zip(op.results, operands, strict=True)))))
            else:
                ways.append(([], ([], None)))

        def run() -> None:
            known = env[condition]
            if known is None:
                self.open_branches[key] = None
                known = True
            self.branches.add((index, bool(known)))
            steps, moves = ways[0 if known else 1]
            for step in steps:
                step()
            self._hand_over(*moves)

        return run

    def _roles(self, op: pipe.RolesOp) -> Step:
        index = self.program.index[op]
        roles = [(count, self._block(region.block)) for count, region in zip(op.role_groups(), op.roles, strict=True)]

        def run() -> None:
            outer, traces = self._out, list[tuple[int, ...]]()
            for count, steps in roles:
                for group in range(count):
                    self._out, self._group = [], group
                    for step in steps:
                        step()
                    traces.append(tuple(self._out))
            self._out, self._group = outer, 0
            self._out.append(self._intern((index, tuple(traces)), lambda: RolesNode(index, tuple(traces))))

        return run

    # --- memory

    def _slot(self, op: pipe.SlotOp) -> Step:
        env, at, source = self._env, self._at(op.result), self._at(op.source)
        indices = [self._at(v) for v in op.indices]
        shape = tile.memref_type(op.source).get_shape()

        known: dict[tuple[object, ...], BufferRef] = {}

        def run() -> None:
            key = (env[source], *[env[i] for i in indices])
            found = known.get(key)
            if found is None:
                base, slots = key[0], [s for s in key[1:] if isinstance(s, int)]
                if not isinstance(base, BufferRef) or len(slots) != len(indices):
                    raise unverifiable(op, "its slot depends on values that are not known before the kernel runs")
                if any(not 0 <= s < limit for s, limit in zip(slots, shape, strict=False)):
                    raise unverifiable(op, f"slot {slots} of a buffer that has {list(shape[: len(slots)])}")
                picked = [c + s for c, s in zip(base.corner, slots, strict=False)]
                found = known[key] = self._references.buffer(base.buffer, (*base.slots, *picked), base.corner[len(slots) :])
            env[at] = found

        return run

    def _part(self, op: pipe.PartOp) -> Step:
        env, at, source, index = self._env, self._at(op.result), self._at(op.source), self._at(op.index)
        axis, count = op.axis.value.data, op.count.value.data
        extent = tile.memref_type(op.result).get_shape()[axis]

        def run() -> None:
            base, part = env[source], env[index]
            if not isinstance(base, BufferRef) or not isinstance(part, int):
                raise unverifiable(op, "its part depends on values that are not known before the kernel runs")
            if not 0 <= part < count:
                raise unverifiable(op, f"part {part} of {count}")
            corner = tuple(c + part * extent if at == axis else c for at, c in enumerate(base.corner))
            env[at] = self._references.buffer(base.buffer, base.slots, corner)

        return run

    def _mbarrier_slot(self, op: sync.MbarrierSlotOp) -> Step:
        env, at, source, index = self._env, self._at(op.result), self._at(op.source), self._at(op.index)

        def run() -> None:
            base, slot = env[source], env[index]
            if not isinstance(base, MbarrierRef) or not isinstance(slot, int):
                raise unverifiable(op, "its slot depends on values that are not known before the kernel runs")
            if not 0 <= slot < base.size:
                raise unverifiable(op, f"slot {slot} of {base.size} mbarriers")
            env[at] = self._references.mbarrier(base.first + slot, 1)

        return run

    def _event(self, op: Operation) -> list[Step]:
        program, index, env = self.program, self.program.index[op], self._env
        effects = program.effects(op)
        registers = program.registers
        chains = {e.queue for e in effects if is_async_queue(e)}
        chained = tuple(registers[v] for v in op.operands[2:3] if chains and v in registers)
        uses = tuple({registers[v] for at, v in enumerate(op.operands) if v in registers and not (chains and at == 2)})
        defines = tuple(registers[e.resource] for e in effects if is_async_queue(e))
        memory = [e for e in effects if not isinstance(e.resource.type, builtin.TensorType)]
        memory = [e for e in memory if is_shared(e.resource.type) or pointer_of(e.resource) in program.tracked_pointers]
        kind = KINDS.get(op.name, "access")
        if kind == "access" and not (uses or defines or memory):
            return self._scalar(op) if not isinstance(op, HasEffects) else []
        if isinstance(op, sync.MbarrierAllocOp):
            return [lambda: self._out.append(self._intern(index, lambda: Event(kind, op, index)))]
        resources = [self._at(e.resource) if is_shared(e.resource.type) else -1 for e in memory]
        barrier = next((self._at(v) for v in op.operands if isinstance(v.type, sync.MbarrierType)), -1)
        parity = self._at(op.parity) if isinstance(op, sync.WaitPhaseOp) else -1
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
                raise unverifiable(op, "its parity depends on values that are not known before the kernel runs")
            queue = queue_of(op, effects, self._group)
            event = Event(kind, op, index, accesses, uses, chained, defines, (), queue, number, mbarrier, is_elected(op))
            return with_flags(event)

        if isinstance(op, sync.NamedBarrierOp) and op.per_group is not None:
            return [lambda: self._out.append(self._intern((index, self._group), make))]
        if not values:
            node: list[int] = []

            def fixed() -> None:
                if not node:
                    node.append(self._intern(index, make))
                self._out.append(node[0])

            return [fixed]

        def run() -> None:
            self._out.append(self._intern((index, tuple([env[v] for v in values])), make))

        return [run]


def _shortened(left: int, period: int) -> int:
    """How many of `left` repeating iterations to keep: all that a checker can tell apart, the last round whole."""
    return left if left <= 4096 else 4096 - 4096 % period + left % period
