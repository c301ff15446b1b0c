"""Ways through a block that sizes, workgroup ids and iterations allow: its events in order, and what holds where it goes that way.

What is decided on the way (a comparison, a slot, a parity) goes any way that does not contradict what was decided before, by integer sets;
the same comparison goes the same way. Nothing else ties decisions to one another, least of all those of different iterations.
"""

from collections.abc import Iterator, Sequence

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify import integer_sets
from treadle.verify.affine import Forms
from treadle.verify.formulas import Formula, both, symbols_in
from treadle.verify.integer_sets import Set
from treadle.verify.program import Program
from treadle.verify.scalars import constant_value
from treadle.verify.trace_memory import MemorySteps
from treadle.verify.trace_state import State, Step, Values

MAX_PATHS = 256
MAX_QUESTIONS = 3000
MAX_OPERATIONS = 20_000
"""What one question to the integer sets may cost; one that costs more is answered with "perhaps"."""


class NotFollowed(Exception):
    """What a block does is not covered."""


class Inner:
    """A loop on the way: what holds where it begins, which truth values are known, and the values that it starts with."""

    def __init__(self, op: scf.ForOp, holds: tuple[Formula, ...], truths: dict[object, bool], values: Values) -> None:
        self.op, self.holds, self.truths, self.values = op, holds, truths, values


Items = tuple["int | Inner", ...]
"""A way: nodes of events, and loops."""


class Possible:
    """Answers whether formulas may hold together. Each is made a set once, of sizes, ids and iterations as parameters."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._sets: dict[Formula, Set | None] = {}
        self._all: dict[tuple[Formula, ...], Set] = {(): self._made("0 = 0")}
        self._answers: dict[tuple[tuple[Formula, ...], Formula], bool] = {}

    def __call__(self, holds: tuple[Formula, ...], formula: Formula) -> bool:
        """Whether there may be an execution in which these hold, and another one besides."""
        key = holds, formula
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= MAX_QUESTIONS:
                raise NotFollowed
            found = self._answers[key] = self._asked(holds, formula)
        return found

    def _asked(self, holds: tuple[Formula, ...], formula: Formula) -> bool:
        one, other = self._of_all(holds), self._set(formula)
        try:
            with integer_sets.bounded(MAX_OPERATIONS):
                return other is None or not one.intersect(other).is_empty()
        except integer_sets.TooHard:
            return True

    def _of_all(self, holds: tuple[Formula, ...]) -> Set:
        """Where all of these hold, or more than that."""
        found = self._all.get(holds)
        if found is None:
            one, other = self._of_all(holds[:-1]), self._set(holds[-1])
            try:
                with integer_sets.bounded(MAX_OPERATIONS):
                    found = one if other is None else one.intersect(other)
            except integer_sets.TooHard:
                found = one
            self._all[holds] = found
        return found

    def _set(self, formula: Formula) -> Set | None:
        """Where a formula holds; None where that is too hard to say."""
        if formula not in self._sets:
            try:
                with integer_sets.bounded(MAX_OPERATIONS):
                    self._sets[formula] = self._made(formula)
            except integer_sets.TooHard:
                self._sets[formula] = None
        return self._sets[formula]

    def _made(self, formula: Formula) -> Set:
        forms = self._forms
        names = sorted(forms.closed(symbols_in(formula) | forms.depends(*forms.ids)))
        facts = [fact for name in names for fact in forms.symbols[name].facts]
        body = both([formula, *facts]).format_map({name: name for name in names})
        return integer_sets.integer_set(f"[{', '.join(names)}] -> {{ : {body} }}")


class Paths:
    """Finds the ways through the blocks of a program whose warps all do the same. Raises `NotFollowed`."""

    def __init__(self, program: Program, state: State, memory: MemorySteps) -> None:
        self.program, self.state = program, state
        self.forms = Forms(program.kernel)
        self.possible = Possible(self.forms)
        self._steps: dict[Operation, list[Step]] = {}
        self._memory = memory

    def of(self, ops: Sequence[Operation], holds: tuple[Formula, ...], truths: dict[object, bool], values: Values) -> Iterator[Items]:
        """All ways through the operations of a block, from these values on."""
        script: list[tuple[int, int]] = []
        for _ in range(MAX_PATHS):
            self.state.restore(values)
            way = _Way(self, holds, truths, script)
            way.follow(ops)
            yield tuple(way.items)
            script = way.script
            while script and script[-1][0] + 1 == script[-1][1]:
                script.pop()
            if not script:
                return
            script[-1] = script[-1][0] + 1, script[-1][1]
        raise NotFollowed

    def steps(self, op: Operation) -> list[Step]:
        """The steps of an operation without regions."""
        found = self._steps.get(op)
        if found is None:
            found = self._steps[op] = self._made(op)
        return found

    def _made(self, op: Operation) -> list[Step]:
        memory = self._memory
        match op:
            case pipe.SlotOp():
                return [memory.slot(op)]
            case pipe.PartOp():
                return [memory.part(op)]
            case sync.MbarrierSlotOp():
                return [memory.mbarrier_slot(op)]
            case tile.AllocOp() | sync.MbarrierAllocOp() | tile.ProgramIdOp():  # known since the program was looked at
                return []
            case scf.YieldOp():
                return memory.event(op) if op in self.program.released else []
            case _ if isinstance(op, HasEffects) or any(value in self.program.registers for value in op.operands):
                return memory.event(op)
            case _:
                return []


class _Way:
    """One way. `script`: for each decision the alternative that is taken, and how many there are."""

    def __init__(self, paths: Paths, holds: tuple[Formula, ...], truths: dict[object, bool], script: list[tuple[int, int]]) -> None:
        self.paths, self.holds, self.truths, self.given = paths, holds, dict(truths), script
        self.script: list[tuple[int, int]] = []
        self.items: list[int | Inner] = []

    def follow(self, ops: Sequence[Operation]) -> None:
        """Go through operations."""
        state, registers = self.paths.state, self.paths.program.registers
        for op in ops:
            if op in self.paths.program.idle:
                continue
            if isinstance(op, scf.IfOp | scf.ForOp) and any(result in registers for result in op.results):
                raise NotFollowed
            if isinstance(op, scf.IfOp):
                self._branch(op)
            elif isinstance(op, scf.ForOp):
                self.items.append(Inner(op, self.holds, dict(self.truths), state.values()))
            elif op.regions and not isinstance(op, tile.ReduceOp):
                raise NotFollowed
            else:
                self._number(op)
                state.out = []
                for step in self.paths.steps(op):
                    step()
                self.items += state.out

    def _branch(self, op: scf.IfOp) -> None:
        region = op.regions[0 if self._truth(op.cond) else 1]
        if region.blocks:
            self.follow(list(region.block.ops))

    # --- decisions

    def _take(self, formulas: Sequence[Formula]) -> int:
        """Which of some formulas, of which one holds, holds on this way."""
        possible = [at for at, formula in enumerate(formulas) if self.paths.possible(self.holds, formula)]
        if not possible:
            raise NotFollowed  # the way itself is not possible, which was too hard to see
        taken = possible[self._chosen(len(possible))]
        if len(possible) > 1:
            self.holds = (*self.holds, formulas[taken])
        return taken

    def _chosen(self, count: int) -> int:
        if count == 1:
            return 0
        at = len(self.script)
        found = self.given[at] if at < len(self.given) else (0, count)
        self.script.append(found)
        return found[0]

    def _truth(self, value: SSAValue) -> bool:
        """A truth value on this way."""
        op = value.owner
        if not isinstance(op, Operation):
            return self._atom(value)
        operands = op.operands
        match op.name:
            case "arith.constant":
                return bool(constant_value(op))
            case "arith.andi":
                return self._truth(operands[0]) and self._truth(operands[1])
            case "arith.ori":
                return self._truth(operands[0]) or self._truth(operands[1])
            case "arith.xori":
                return self._truth(operands[0]) != self._truth(operands[1])
            case "arith.select":
                return self._truth(operands[1 if self._truth(operands[0]) else 2])
            case _:
                return self._atom(value)

    def _atom(self, value: SSAValue) -> bool:
        formula = self.paths.forms.condition(value)
        key: object = value if formula is None else formula
        found = self.truths.get(key)
        if found is None:
            taken = self._chosen(2) if formula is None else self._take((formula, f"not ({formula})"))
            found = self.truths[key] = taken == 0
        return found

    def _number(self, op: Operation) -> None:
        """Decide the numbers that an operation asks for."""
        match op:
            case pipe.SlotOp():
                for value, limit in zip(op.indices, tile.memref_type(op.source).get_shape(), strict=False):
                    self._decide(value, limit)
            case pipe.PartOp():
                self._decide(op.index, op.count.value.data)
            case sync.MbarrierSlotOp():
                owner = op.source.owner
                self._decide(op.index, owner.slot_count() if isinstance(owner, sync.MbarrierAllocOp) else 0)
            case sync.WaitPhaseOp():
                self._decide(op.parity, 2)
            case _:
                return

    def _decide(self, value: SSAValue, limit: int) -> None:
        number = self.paths.forms.formula(self.paths.forms.of(value))
        if self.paths.possible(self.holds, f"not (0 <= {number} < {limit})"):
            raise NotFollowed
        self.paths.state.put(self.paths.state.place(value), self._take([f"{number} = {at}" for at in range(limit)]))


def is_followed(program: Program) -> bool:
    """Whether all warps do the same, for reasons that are computed of sizes, ids and numbers of iterations."""
    if program.cluster > 1 or program.all(pipe.RolesOp) or program.all(pipe.GroupIdOp) or len({s.group for s in program.strands}) > 1:
        return False
    return all(_is_computed(value) for value in program.deciding)


def _is_computed(value: SSAValue) -> bool:
    owner = value.owner
    if not isinstance(owner, Operation) or is_shared(value.type) or isinstance(value.type, sync.MbarrierType):
        return True
    return owner.name.startswith(("arith.", "scf.", "tile.program_id"))
