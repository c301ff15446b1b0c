"""Kernels that are right whatever way their conditions go, as far as sizes, ids and iterations allow it.

All states that a run can come to are gathered: from each state at the head of a loop every way through the loop's body is run (`paths.py`),
until no new state turns up. There are few where what hangs on a condition is complete in itself, however many classes conditions make.
A fault on one of these ways says nothing: the way may need decisions that no run makes together.
"""

from collections.abc import Sequence
from math import lcm

from treadle.dialects import pipe, sync, tile
from treadle.ir.dialects import scf
from treadle.verify.clocks import Restore
from treadle.verify.engine import Engine
from treadle.verify.formulas import Formula
from treadle.verify.memory import Geometry
from treadle.verify.paths import Inner, Items, NotFollowed, Paths, is_followed
from treadle.verify.program import Program
from treadle.verify.trace import Tracer
from treadle.verify.trace_state import Undecided

MAX_HEADS = 400
"""States at the heads of one execution of a loop."""
MAX_COST = 60_000
"""Nodes of all rows that are run."""
MAX_ROUND = 12
States = dict[int, Restore]
"""What brings a state back, by the state's number."""


def is_right_any_way(program: Program, tracer: Tracer, geometry: Geometry) -> bool:
    """Whether no way through the kernel shows a fault; False where one does, or where that is not followed."""
    if geometry.tracked is not None or not is_followed(program):
        return False
    kept = tracer.state.values()
    try:
        return _Search(program, tracer, geometry).is_right()
    except (NotFollowed, Undecided):
        return False
    finally:
        tracer.state.restore(kept)


class _Search:
    def __init__(self, program: Program, tracer: Tracer, geometry: Geometry) -> None:
        self.program, self.state = program, tracer.state
        self.engine = Engine(program, tracer.state.nodes, geometry, 1)
        self.paths = Paths(program, tracer.state, tracer.memory)
        self._numbers: dict[object, int] = {}
        self._next: dict[tuple[int, tuple[int, ...]], int] = {}
        self._restores: States = {}
        self._ways: dict[tuple[object, ...], list[Items]] = {}
        self._round = _round_of(program)

    def is_right(self) -> bool:
        """Follow the kernel from its start."""
        body = list(self.program.kernel.body.block.ops)
        start = self._noted(self.engine.state())
        for items in self.paths.of(body, (), {}, self.state.values()):
            for number in self._after(items, [start]):
                self._restores[number]()
                if not self.engine.may_end():
                    return False
        return True

    def _after(self, items: Items, numbers: Sequence[int]) -> list[int]:
        """The states behind these items."""
        row: list[int] = []
        states = dict.fromkeys(numbers)
        for item in (*items, None):
            if isinstance(item, int):
                row.append(item)
                continue
            if row:
                states = dict.fromkeys([self._run(number, tuple(row)) for number in states])
                row = []
            if item is not None:
                states = self._behind(item, list(states))
        return list(states)

    def _run(self, number: int, row: tuple[int, ...]) -> int:
        """The state after a row of events. Raises `NotFollowed` where it shows a fault."""
        found = self._next.get((number, row))
        if found is None:
            self._restores[number]()
            if not self.engine.follow(row) or self.engine.cost > MAX_COST:
                raise NotFollowed
            found = self._next[number, row] = self._noted(self.engine.state())
        return found

    def _noted(self, state: object) -> int:
        number = self._numbers.setdefault(state, len(self._numbers))
        if number not in self._restores:
            self._restores[number] = self.engine.saved()
        return number

    # --- loops

    def _behind(self, loop: Inner, numbers: list[int]) -> dict[int, None]:
        """The states in which a loop that begins in one of these may end."""
        heads = dict.fromkeys([(number, 0) for number in numbers])
        work, ends = list(heads), dict[int, None]()
        while work:
            number, phase = work.pop()
            if self._may_end(loop, phase):
                ends[number] = None
            for items in self._ways_of(loop, phase):
                for after in self._after(items, [number]):
                    head = after, phase + 1 if phase + 1 < 2 * self._round else self._round
                    if head not in heads:
                        heads[head] = None
                        work.append(head)
                        if len(heads) > MAX_HEADS:
                            raise NotFollowed
        return ends

    def _ways_of(self, loop: Inner, phase: int) -> list[Items]:
        """The ways through a loop's body in an iteration of this phase."""
        key = loop.op, loop.holds, tuple(loop.truths.items()), phase
        ways = self._ways.get(key)
        if ways is None:
            holds, begins = (*loop.holds, self._is_at(loop.op, phase)), f"{self._induction(loop.op)} < {self._limit(loop.op)}"
            is_possible, ops = self.paths.possible(holds, begins), list(loop.op.body.block.ops)
            ways = self._ways[key] = list(self.paths.of(ops, (*holds, begins), loop.truths, loop.values)) if is_possible else []
        return ways

    def _may_end(self, loop: Inner, phase: int) -> bool:
        """Whether a loop may have ended where an iteration of this phase would begin."""
        induction, limit = self._induction(loop.op), self._limit(loop.op)
        before = (f"{induction} - {self._step(loop.op)} < {limit}",) if phase else ()
        return self.paths.possible((*loop.holds, self._is_at(loop.op, phase), *before), f"{induction} >= {limit}")

    def _is_at(self, loop: scf.ForOp, phase: int) -> Formula:
        """The number of an iteration: the phase itself in the first round, in others a residue."""
        number = self.paths.forms.formula(self.paths.forms.number(loop))
        if phase < self._round:
            return f"{number} = {phase}"
        return f"{number} >= {self._round} and {number} mod {self._round} = {phase - self._round}"

    def _induction(self, loop: scf.ForOp) -> Formula:
        return self.paths.forms.formula(self.paths.forms.of(loop.body.block.args[0]))

    def _limit(self, loop: scf.ForOp) -> Formula:
        return self.paths.forms.formula(self.paths.forms.of(loop.ub))

    def _step(self, loop: scf.ForOp) -> int:
        step = self.paths.forms.of(loop.step).as_int()
        if step is None or step <= 0:
            raise NotFollowed
        return step


def _round_of(program: Program) -> int:
    """After how many iterations slots and parities may come back: so many are told apart."""
    counts = [count for op in program.all(pipe.SlotOp) for count in tile.memref_type(op.source).get_shape()[: len(op.indices)]]
    counts += [op.slot_count() for op in program.all(sync.MbarrierAllocOp)]
    whole = lcm(*counts, 2 if program.all(sync.WaitPhaseOp) else 1)
    return whole if whole <= MAX_ROUND else 1
