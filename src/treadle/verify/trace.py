"""From a program to traces: index arithmetic is run on numbers, everything else becomes an event.

Each operation is looked at once and becomes a step, a closure over one list of values; loops only call steps. A run also says for which
other sizes and workgroups it would be the same (its class).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.ancestry import operands_of
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.classes import kept, scaled, shifted
from treadle.verify.events import Event, RolesNode, Trace
from treadle.verify.program import Program, is_first_axis
from treadle.verify.scalars import Function, LinearForms, constant_value, known_result, scalar_function, width_of
from treadle.verify.trace_memory import MemorySteps
from treadle.verify.trace_state import State, Step, Undecided
from treadle.verify.turning_points import Choices, TurningPoints
from treadle.verify.unknowns import Unknowns

if TYPE_CHECKING:
    from treadle.verify.scalar_forms import ScalarForms
    from treadle.verify.trace_branches import Moves, Way


class ScalarSteps:
    """Makes the steps of scalar operations."""

    def __init__(self, state: State, points: TurningPoints) -> None:
        self.state, self.points = state, points
        self._free = {value for unknown in state.unknowns.all for value in unknown.values}
        self._made_forms: ScalarForms | None = None

    def of(self, op: Operation) -> list[Step]:
        """The steps of an operation; none where nothing depends on it."""
        state, program = self.state, self.state.program
        if program.deciding.isdisjoint(op.results) or op.results[0] in self._free:
            return []
        at = state.place(op.results[0])
        if op.name == "arith.constant":
            state.put(at, constant_value(op))
            return []
        function = scalar_function(op)
        if function is None:
            return [lambda: state.put(at, None)] if width_of(op.results[0].type) else []
        operands = [state.place(v) for v in operands_of(op)]
        numbers = self._numbers(op, function, at, operands)
        if op in self.points.exempt or op in self.points.extremes:
            return [self._forms().covered(op, numbers, at, operands)]
        if op.results[0] not in state.unknowns.varies:
            return [numbers]
        if op in self.points.silent:
            return [self._forms().silent(op, numbers, at, operands)]
        return [self._forms().with_form(op, numbers, at, operands)]

    def _forms(self) -> "ScalarForms":
        if self._made_forms is None:
            from treadle.verify.scalar_forms import ScalarForms  # nothing has a form in many kernels

            self._made_forms = ScalarForms(self.state, self.points)
        return self._made_forms

    def _numbers(self, op: Operation, function: Function, at: int, operands: list[int]) -> Step:
        """Numbers alone."""
        env = self.state.env

        def compute() -> None:
            values = [env[v] for v in operands]
            if None in values:
                env[at] = known_result(op, values)  # type: ignore[arg-type]
                return
            try:
                env[at] = function(*values)
            except ArithmeticError:
                env[at] = None

        return compute


class Tracer:
    """Runs a program's control for one choice of the unknown values. Nodes are shared between the runs of one tracer."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.points = TurningPoints(program, LinearForms())
        self.unknowns = Unknowns(program, self.points)
        self.state = State(program, self.unknowns)
        self._asked: dict[tuple[frozenset[Operation], Choices], dict[SSAValue, int]] = {}
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
        self._given: dict[str, Callable[..., list[Step]]] = {
            "sync.mbarrier_alloc": self._mbarriers,
            "tile.alloc": self._buffer,
            "pipe.group_id": self._group_id,
            "pipe.cluster_rank": self._cluster_rank,
            "tile.program_id": self._program_id,
            "scf.yield": self._yield,
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
        if (given := self._given.get(op.name)) is not None:
            return given(op)
        registers = self.program.registers
        uses_tokens = bool(registers) and any(v in registers for v in operands_of(op))
        if op.name.startswith("arith.") and not uses_tokens:
            return self._scalars.of(op)
        if op.regions and not isinstance(op, tile.ReduceOp):
            raise Undecided(op, f"the control flow of {op.name} is not known")
        return (self.memory.event(op) if uses_tokens or self.program.may_access(op) else []) or self._scalars.of(op)

    # --- what needs no step in a run, or one number

    def _mbarriers(self, op: sync.MbarrierAllocOp) -> list[Step]:
        found = self.state.references.mbarrier(self.program.mbarriers.base[op], op.slot_count())
        self.state.env[self.state.place(op.result)] = found
        return self.memory.event(op) if self.program.cluster > 1 else []

    def _buffer(self, op: tile.AllocOp) -> list[Step]:
        rank = len(tile.memref_type(op.result).get_shape())
        self.state.env[self.state.place(op.result)] = self.state.references.buffer(self.program.buffers[op.result], (), (0,) * rank)
        return []

    def _group_id(self, op: pipe.GroupIdOp) -> list[Step]:
        at = self.state.place(op.result)
        return [lambda: self.state.put(at, self.state.group)]

    def _cluster_rank(self, op: pipe.ClusterRankOp) -> list[Step]:
        at = self.state.place(op.result)
        return [lambda: self.state.put(at, self.state.rank)]

    def _program_id(self, op: tile.ProgramIdOp) -> list[Step]:
        return []

    def _yield(self, op: scf.YieldOp) -> list[Step]:
        return self.memory.event(op) if op in self.program.released else []

    # --- control flow

    def _moves(self, op: Operation, key: str, pairs: list[tuple[SSAValue, SSAValue]]) -> "Moves":
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
        from treadle.verify.trace_loops import LoopSteps  # there are kernels without

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
        from treadle.verify.demand import demands

        found = self._asked.get((unused, chosen))
        if found is not None:
            return found
        results: list[tuple[SSAValue, int]] = []
        if unused or chosen:
            asked = self._demands(frozenset(), frozenset())
            results += [(value, asked[value]) for op in self.program.loops for value in op.results if value in asked]
        if chosen:
            results += self._carried(self._demands(unused, frozenset()))
        found = self._asked[unused, chosen] = demands(self.program, self.points, unused, results, dict(chosen))
        return found

    def _carried(self, asked: Mapping[SSAValue, int]) -> list[tuple[SSAValue, int]]:
        """What is asked of carried values that iterations do not know from their number: they go on to where other operands are chosen."""
        loops = [(op, self.points.of(op).steps) for op in self.program.loops]
        values = [value for op, steps in loops for at, value in enumerate(op.body.block.args[1:]) if at not in steps]
        return [(value, asked[value]) for value in values if value in asked]

    def _branch(self, op: scf.IfOp) -> Step:
        from treadle.verify.trace_branches import BranchSteps  # most kernels have none that matter

        if op in self.program.quiet:
            return BranchSteps(self.state, self.memory).quiet(op)
        ways: list[Way] = []
        for which, region in enumerate(op.regions):
            if region.blocks:
                end = region.block.last_op
                operands = list(end.operands) if end is not None else []
                ways.append((self._block(region.block), self._moves(op, f"way {which}", list(zip(op.results, operands, strict=True)))))
            else:
                ways.append(([], ([], None)))
        return BranchSteps(self.state, self.memory).branch(op, ways)

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


MAX_REMEMBERED = 4096


class _Followed:
    """What a run of the loop did: nodes, trip counts and the loops of nodes, and the values of its results by their places."""

    __slots__ = ("loop_of", "nodes", "results", "trips")

    def __init__(
        self, nodes: tuple[int, ...], trips: dict[int, int], loop_of: dict[int, int], results: tuple[tuple[int, object], ...]
    ) -> None:
        self.nodes, self.trips, self.loop_of, self.results = nodes, trips, loop_of, results


def remembered(state: State, op: scf.ForOp, follow: Step) -> Step:
    """`follow`, or what it did the last time with the same inputs."""
    around = list(op.walk())
    made = {value for each in around[1:] for value in each.results}
    made |= {value for each in around for region in each.regions for block in region.blocks for value in block.args}
    if not made.isdisjoint([unknown for each in state.unknowns.all for unknown in each.values]):
        return follow
    used = dict.fromkeys([value for each in around for value in operands_of(each) if value not in made and _matters(state, value)])
    inputs, results = [state.place(value) for value in used], [state.place(value) for value in op.results]
    known: dict[tuple[object, ...], _Followed] = {}

    def run() -> None:
        if len(known) > MAX_REMEMBERED or any(state.symbols[at] is not None or state.reasons[at] is not None for at in inputs):
            follow()
            return
        key = (state.group, state.rank, *[state.env[at] for at in inputs])
        found = known.get(key)
        if found is None:
            shared = state.covered.shared
            found = _followed(state, results, follow)
            if state.covered.shared == shared and all(state.symbols[at] is None and state.reasons[at] is None for at in results):
                known[key] = found
        else:
            for at, value in found.results:
                state.put(at, value)
        state.out += found.nodes
        state.loop_of |= found.loop_of
        for loop, count in found.trips.items():
            state.trips[loop] = max(count, state.trips.get(loop, 0))

    return run


def _matters(state: State, value: SSAValue) -> bool:
    """Whether steps look at a value."""
    return value in state.program.deciding or is_shared(value.type) or isinstance(value.type, sync.MbarrierType)


def _followed(state: State, results: list[int], follow: Step) -> _Followed:
    kept = state.out, state.trips, state.loop_of
    state.out, state.trips, state.loop_of = [], {}, {}
    try:
        follow()
        return _Followed(tuple(state.out), state.trips, state.loop_of, tuple([(at, state.env[at]) for at in results]))
    finally:
        state.out, state.trips, state.loop_of = kept
