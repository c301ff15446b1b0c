"""From a program to traces: index arithmetic is run on numbers, everything else becomes an event.

Each operation is looked at once and becomes a step, a closure over one list of values; loops only call steps. A run also says for which
other sizes and workgroups it would be the same (its class).
"""

from collections.abc import Callable, Mapping
from functools import partial

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.operands import operands_of
from treadle.verify.demand import demands
from treadle.verify.events import Event, RolesNode, Trace, TurnedEvent
from treadle.verify.linear_forms import LinearForms
from treadle.verify.loop_turns import Choices
from treadle.verify.program import Program, is_first_axis
from treadle.verify.reasons import Reason, all_of
from treadle.verify.remembered_loops import remembered
from treadle.verify.symbols import Symbol, kept, scaled, shifted
from treadle.verify.trace_loops import LoopSteps
from treadle.verify.trace_memory import MemorySteps
from treadle.verify.trace_scalars import ScalarSteps
from treadle.verify.trace_state import State, Step, Undecided
from treadle.verify.turning_points import TurningPoints
from treadle.verify.unknowns import Unknowns


class Tracer:
    """Runs a program's control for one choice of the unknown values. Nodes are shared between the runs of one tracer."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.points = TurningPoints(program, LinearForms())
        self.unknowns = Unknowns(program, self.points)
        self.state = State(program, self.unknowns)
        self._asked = demands(program, self.points)
        self._less_asked: dict[tuple[frozenset[Operation], Choices], dict[SSAValue, int]] = {}
        self._scalars = ScalarSteps(self.state, self.points)
        self.memory = MemorySteps(self.state)
        self._control: dict[str, Callable[..., Step]] = {
            "scf.for": self._loop,
            "scf.if": self._branch,
            "pipe.roles": self._roles,
            "pipe.slot": self.memory.slot,
            "pipe.part": self.memory.part,
            "sync.mbarrier_slot": self.memory.mbarrier_slot,
        }
        self._values: tuple[int, ...] = ()
        self._counted = program.rings.steps if program.rings is not None else {}
        self._steps = self._block(program.kernel.body.block)

    def run(self, values: tuple[int, ...]) -> Trace:
        """The trace where the unknowns have these values; `state.covered` is then the class it stands for, but for the lengths of loops.

        The workgroups of a cluster are neighbours along the first axis: an id is the cluster's number times the size, plus the rank.
        """
        state = self.state
        state.begin()
        roots: list[tuple[int, ...]] = []
        self._values = values
        for rank in range(self.program.cluster):
            state.out, state.group, state.rank = [], 0, rank
            self._give(-1)
            for step in self._steps:
                step()
            roots.append(tuple(state.out))
        return Trace(state.nodes, tuple(roots), state.trips, frozenset(node for node, _ in state.facts))

    def _give(self, group: int) -> None:
        """Set the values that are unknown in a group of a role (-1: anywhere)."""
        state, rank = self.state, self.state.rank
        for at, (unknown, value) in enumerate(zip(self.unknowns.all, self._values, strict=True)):
            if not unknown.is_in(rank, group):
                continue
            mine = rank if unknown.factor > 1 or (self.program.cluster > 1 and is_first_axis(unknown.values[0])) else 0
            form = shifted(scaled(state.atoms.unknown(at), unknown.factor), mine)
            for known in unknown.values:
                state.put(state.place(known), unknown.factor * value + mine, form)

    # --- steps

    def _block(self, block: Block) -> list[Step]:
        return [step for op in block.ops for step in self._steps_of(op)]

    def _steps_of(self, op: Operation) -> list[Step]:
        if op in self.program.idle:
            return []
        if (steps := self._counted.get(op)) is not None:
            return [*self.memory.count(op, steps), *self._own_steps_of(op)]
        return self._own_steps_of(op)

    def _own_steps_of(self, op: Operation) -> list[Step]:
        if (control := self._control.get(op.name)) is not None:
            return [control(op)]
        if op.name.startswith("arith.") and not any(v in self.program.registers for v in operands_of(op)):
            return self._scalars.of(op)
        match op:
            case sync.MbarrierAllocOp():
                self.state.env[self.state.place(op.result)] = self.state.references.mbarrier(
                    self.program.mbarriers.base[op], op.slot_count()
                )
                return self.memory.event(op) if self.program.cluster > 1 else []
            case tile.AllocOp():
                rank = len(tile.memref_type(op.result).get_shape())
                self.state.env[self.state.place(op.result)] = self.state.references.buffer(self.program.buffers[op.result], (), (0,) * rank)
                return []
            case pipe.GroupIdOp():
                at = self.state.place(op.result)
                return [lambda: self.state.put(at, self.state.group)]
            case pipe.ClusterRankOp():
                at = self.state.place(op.result)
                return [lambda: self.state.put(at, self.state.rank)]
            case tile.ProgramIdOp():
                return []
            case scf.YieldOp():
                return self.memory.event(op) if op in self.program.released else []
            case _ if op.regions and not isinstance(op, tile.ReduceOp):
                raise Undecided(op, f"the control flow of {op.name} is not known")
            case _ if isinstance(op, HasEffects) or any(v in self.program.registers for v in operands_of(op)):
                return self.memory.event(op) or self._scalars.of(op)
            case _:
                return self._scalars.of(op)

    # --- control flow

    def _moves(self, op: Operation, key: str, pairs: list[tuple[SSAValue, SSAValue]]) -> tuple[list[tuple[int, int]], int | None]:
        """What a hand-over of values does: pairs of the environment, and the event that moves register tokens."""
        numbers = self.program.registers
        copies = [(self.state.place(to), self.state.place(source)) for to, source in pairs if to in self.program.deciding]
        moves = tuple((numbers[to], numbers.get(source, -1)) for to, source in pairs if to in numbers)
        if not moves:
            return copies, None
        index = self.program.index[op]
        return copies, self.state.node((index, key), lambda: Event("move", op, index, moves=moves))

    def _hand_over(self, copies: list[tuple[int, int]], event: int | None, *, to_others: bool = False) -> None:
        """Move values; what a loop carries decides about its iterations. `to_others`: other iterations see them than compute them."""
        state, env, symbols = self.state, self.state.env, self.state.symbols
        for _, source in copies:
            state.commit(state.reasons[source])
        values = [(env[source], symbols[source]) for _, source in copies]
        for (to, _), (value, symbol) in zip(copies, values, strict=True):
            state.put(to, value, kept(symbol) if to_others and symbol is not None else symbol)
        if event is not None:
            state.out.append(event)

    def _loop(self, op: scf.ForOp) -> Step:
        block = op.body.block
        end = block.last_op
        if end is None:
            raise InternalError("scf.for without scf.yield")
        enter = self._moves(op, "enter", list(zip(block.args[1:], op.iter_args, strict=True)))
        turn = self._moves(op, "turn", list(zip(block.args[1:], end.operands, strict=True)))
        leave = self._moves(op, "leave", list(zip(op.results, block.args[1:], strict=True)))
        quiet = (turn[0], None)
        hand_overs = (
            partial(self._hand_over, *enter),
            *(partial(self._hand_over, *moves, to_others=True) for moves in (turn, quiet, leave)),
        )
        body = self._block(block)
        return remembered(self.state, op, LoopSteps(self.state, op, self.points.of(op), body, hand_overs, self._demands).run)

    def _demands(self, unused: frozenset[Operation], chosen: Choices) -> dict[SSAValue, int]:
        """To which modulus values matter where nothing depends on some comparisons, and some operations are one of their operands; what
        loops end with matters as ever.
        """
        if not unused and not chosen:
            return self._asked
        found = self._less_asked.get((unused, chosen))
        if found is None:
            results = [(value, self._asked[value]) for op in self.program.loops for value in op.results if value in self._asked]
            if chosen:
                results += self._carried(self._demands(unused, frozenset()))
            found = self._less_asked[unused, chosen] = demands(self.program, self.points, unused, results, dict(chosen))
        return found

    def _carried(self, asked: Mapping[SSAValue, int]) -> list[tuple[SSAValue, int]]:
        """What is asked of carried values that iterations do not know from their number: they go on to where other operands are chosen."""
        loops = [(op, self.points.of(op).steps) for op in self.program.loops]
        values = [value for op, steps in loops for at, value in enumerate(op.body.block.args[1:]) if at not in steps]
        return [(value, asked[value]) for value in values if value in asked]

    def _quiet(self, op: scf.IfOp) -> Step:
        """A conditional that computes register tiles alone: it needs what either way reads."""
        state, index, numbers = self.state, self.program.index[op], self.program.registers
        uses = tuple(dict.fromkeys(numbers[value] for inner in op.walk() for value in inner.operands if value in numbers))

        def run() -> None:
            if uses:
                state.out.append(state.node(index, lambda: Event("access", op, index, uses=uses)))

        return run

    def _branch(self, op: scf.IfOp) -> Step:
        if op in self.program.quiet:
            return self._quiet(op)
        state, env = self.state, self.state.env
        condition = state.place(op.cond)
        ways: list[tuple[list[Step], tuple[list[tuple[int, int]], int | None]]] = []
        for which, region in enumerate(op.regions):
            if region.blocks:
                end = region.block.last_op
                operands = list(end.operands) if end is not None else []
                ways.append((self._block(region.block), self._moves(op, f"way {which}", list(zip(op.results, operands, strict=True)))))
            else:
                ways.append(([], ([], None)))

        def run() -> None:
            if env[condition] is None:
                self._both_ways(op, ways)
                return
            steps, moves = ways[0 if state.fix(condition, op) else 1]
            for step in steps:
                step()
            copies, event = moves
            values = [(env[source], state.symbols[source], state.reasons[source]) for _, source in copies]
            for (to, _), found in zip(copies, values, strict=True):
                state.put(to, *found)
            if event is not None:
                state.out.append(event)

        return run

    def _both_ways(self, op: scf.IfOp, ways: list[tuple[list[Step], tuple[list[tuple[int, int]], int | None]]]) -> None:
        """A branch of which nobody knows the way, this time: right where what either way does may or may not have been done."""
        state, outer = self.state, self.state.out
        done: list[tuple[int, ...]] = []
        ends: list[dict[int, tuple[object, object, Reason | None]]] = []
        events = list[int | None]()
        for steps, (copies, event) in ways:
            kept = state.values()
            state.out = []
            for step in steps:
                step()
            done.append(tuple(state.out))
            ends.append({to: (state.env[source], _key_of(state.symbols[source]), state.reasons[source]) for to, source in copies})
            events.append(event)
            state.restore(kept)
        state.out = outer
        for to, (value, form, reason) in ends[0].items():
            other = ends[1].get(to)
            is_same = other is not None and other[:2] == (value, form) and form is None
            state.put(to, value if is_same else None, None, all_of([reason, other[2]]) if is_same and other else None)
        if done[0] == done[1] and events[0] == events[1]:
            state.out += [*done[0], *(event for event in events[:1] if event is not None)]
        elif events[0] is events[1] is None:
            state.out += [self._perhaps(op, number) for way in done for number in way]
        else:
            raise Undecided(op, "its condition is not known before the kernel runs, and its results are those of queued operations")

    def _perhaps(self, op: Operation, number: int) -> int:
        """The node of an event that may or may not happen."""
        event = self.state.nodes[number]
        if isinstance(event, TurnedEvent) and event.at(self.memory.starts).is_plain:
            return self.memory.perhaps(event)
        if not isinstance(event, Event) or not event.is_plain:
            raise Undecided(op, "its condition is not known before the kernel runs, and it holds synchronisation or queued operations")
        return self.state.node(("perhaps", number), event.perhaps)

    def _roles(self, op: pipe.RolesOp) -> Step:
        index, state = self.program.index[op], self.state
        roles = [(count, self._block(region.block)) for count, region in zip(op.role_groups(), op.roles, strict=True)]
        has_own = any(unknown.group >= 0 for unknown in self.unknowns.all)

        def run() -> None:
            outer, traces = state.out, list[tuple[int, ...]]()
            for count, steps in roles:
                for group in range(count):
                    state.out, state.group = [], group
                    if has_own:
                        self._give(group)
                    for step in steps:
                        step()
                    traces.append(tuple(state.out))
            state.out, state.group = outer, 0
            state.out.append(state.node((index, tuple(traces)), lambda: RolesNode(index, tuple(traces))))

        return run


def _key_of(symbol: Symbol) -> object:
    return None if symbol is None else symbol.key
