"""Which comparisons turn once as a loop goes on: those of a form that is affine in the number of the iteration.

Where they turn is known when the loop begins, so that between two such points all iterations decide alike, and the loop's state (slots,
parities, ..) alone says what an iteration does.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from treadle.dialects import pipe, sync
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.records import Record
from treadle.verify.classes import Form
from treadle.verify.program import Program
from treadle.verify.scalars import INDEX_BITS, LinearForms, add, loop_around, width_of, yielded

if TYPE_CHECKING:
    from treadle.verify.loop_comparisons import ComparisonsOfLoops, Covered, Placed, Turn
    from treadle.verify.reasons import Constraint, Reason

EXTREMES = ("arith.minsi", "arith.maxsi")
UNSIGNED_DIVISIONS = ("arith.remui", "arith.divui", "arith.shrui")
_TURNING = frozenset(("arith.cmpi", *EXTREMES, *UNSIGNED_DIVISIONS))
_CHAIN = frozenset(
    f"arith.{name}"
    for name in (
        *("addi", "subi", "muli", "minsi", "maxsi", "select", "index_cast", "index_castui"),
        *("divui", "divsi", "floordivsi", "ceildivui", "ceildivsi", "shrui", "shrsi", "remui", "remsi"),
    )
)


Position = tuple[int, Form]
"""The number of an iteration in the run, and its form."""
Choices = frozenset[tuple[Operation, int]]
"""Minima, maxima and selections, and the operand that each is."""


class LoopFacts(Record):
    """What is fixed about a loop: carried values that grow by a constant (by position), the comparisons that it covers, where else it
    turns (`signs`: operands of unsigned divisions change theirs, or loops inside turn at another of their iterations), and `placed`: its
    turning points of which such points of a loop around it say at which iteration they are. `inside`: comparisons of the loops inside
    that one such point decides, and that point.
    """

    steps: dict[int, int]
    covered: dict[Operation, "Covered"]
    signs: "tuple[Turn, ...]" = ()
    placed: "frozenset[Turn]" = frozenset()
    inside: "tuple[tuple[Operation, Turn, Placed], ...]" = ()

    @property
    def is_even(self) -> bool:
        """Whether it turns nowhere."""
        return not (self.covered or self.signs or self.inside)

    def turns(self, comparisons: Iterable[Operation]) -> "tuple[Turn, ...]":
        """The turning points of some of them."""
        return tuple(dict.fromkeys(turn for op in comparisons for turn in self.covered[op].turns))


class Stretches:
    """`positions`: where stretches begin and end, relative to the start of the loop; `until`: the first turning point that the loop does
    not reach. `needs`, `shared`: what the class shares where the points are in this order.
    """

    __slots__ = ("needs", "positions", "shared", "until")

    def __init__(self, positions: list[Position], until: int, needs: "list[Reason]", shared: "list[Constraint]") -> None:
        self.positions, self.until, self.needs, self.shared = positions, until, needs, shared

    @property
    def cut(self) -> object:
        """What decides how the loop is followed."""
        return self.until, [(at, form.key, form.iterations) for at, form in self.positions]


class NoTurns:
    """The turning points of a loop that has none. `open`: the comparisons that may be left out where nothing depends on them."""

    open: frozenset[Operation] = frozenset()

    def known(self, comparisons: Iterable[Operation]) -> frozenset[Operation]:
        """Those of which it is known where they turn."""
        return frozenset()

    def stretches(self, used: frozenset[Operation], count: int, length: Form, until: int) -> Stretches:
        """The stretches of an execution of `count` iterations in which something depends on `used`; `until` at the latest."""
        return Stretches([(0, Form((), 0)), (count, length)], until, [], [])

    def choices(self, used: frozenset[Operation], at: int) -> Choices:
        """Which operand is chosen throughout the stretch that begins with iteration `at`, where one turning point decides it."""
        return frozenset()


class TurningPoints:
    """The loops of a program.

    `exempt`: comparisons that turning points cover, `extremes`: minima and maxima that they cover and more than comparisons is made of.
    `silent`: arithmetic of such comparisons alone. `measured`: what of it residues are taken of, and what that is made of.
    """

    def __init__(self, program: Program, forms: LinearForms) -> None:
        self.program, self.forms = program, forms
        self.exempt: dict[Operation, Covered] = {}
        self.silent: set[Operation] = set()
        self.measured: set[Operation] = set()
        self.extremes: dict[Operation, Covered] = {}
        self._of_one_sign: set[Operation] = set()
        self._loops: dict[Operation, LoopFacts] = {}
        self._steps: dict[scf.ForOp, dict[int, int]] = {op: self._counters(op) for op in program.all(scf.ForOp)}
        turning: list[Operation] = []
        if self._steps and not _TURNING.isdisjoint(program.names):
            turning = [
                op for op in program.ops if op.name in _TURNING and op.results[0] in program.deciding and loop_around(op) is not None
            ]
        if turning:
            self._add_comparisons(turning)
            return
        if self._steps:
            self._add_silent()
        for loop, steps in self._steps.items():
            self._loops[loop] = LoopFacts(steps, {})

    def _add_comparisons(self, turning: list[Operation]) -> None:
        """What turns in loops, given what may."""
        from treadle.verify.loop_comparisons import ComparisonsOfLoops  # many kernels decide nothing in their loops

        home: dict[SSAValue, scf.ForOp] = {}
        for loop, steps in self._steps.items():
            block = loop.body.block
            home[block.args[0]] = loop
            home |= {block.args[at + 1]: loop for at in steps}
        found = ComparisonsOfLoops(self.forms, self._steps, home)
        covered: dict[Operation, dict[Operation, Covered]] = {op: {} for op in self._steps}
        for op in turning:
            if op.name == "arith.cmpi" and (made := found.covered(op)):
                self.exempt[op] = covered[made[0]][op] = made[1]
        self._add_silent()
        self._add_measured()
        for op in turning:
            if op.name in EXTREMES and op not in self.silent and (made := found.covered(op)):
                self.extremes[op] = covered[made[0]][op] = made[1]
        signs, placed = self._signs(found, turning), found.placed(covered)
        inside: dict[Operation, list[tuple[Operation, Turn, Placed]]] = {}
        for (inner, turn), where in placed.items():
            signs.setdefault(where.around, {})[where.turn] = None
            deciding = [op for op, each in covered[inner].items() if each.only_limit is not None and each.turns == (turn,)]
            inside.setdefault(where.around, []).extend((op, turn, where) for op in deciding)
        for loop, steps in self._steps.items():
            own = frozenset(turn for inner, turn in placed if inner is loop)
            self._loops[loop] = LoopFacts(steps, covered[loop], tuple(signs.get(loop, ())), own, tuple(inside.get(loop, ())))

    def of(self, loop: Operation) -> LoopFacts:
        """The facts of a loop."""
        return self._loops[loop]

    def is_of_one_sign(self, op: Operation) -> bool:
        """Whether the operand of an unsigned division by a constant keeps its sign between turning points."""
        if op in self._of_one_sign or loop_around(op) is not None or op.results[0] not in self.program.deciding:
            return op in self._of_one_sign
        from treadle.verify.signs import never_negative

        return never_negative(op.operands[0])

    def _counters(self, loop: scf.ForOp) -> dict[int, int]:
        """Carried values that each iteration changes by the same constant."""
        found: dict[int, int] = {}
        for at, (argument, end) in enumerate(zip(loop.body.block.args[1:], yielded(loop), strict=True)):
            if width_of(argument.type) >= INDEX_BITS:
                change = add(self.forms.of(end), self.forms.of(argument), -1)
                if not change[0] and (change[1] or end is argument):
                    found[at] = change[1]
                elif self._is_number(loop, at, end):
                    found[at] = self.forms.of(loop.step)[1]
        return found

    def _is_number(self, loop: scf.ForOp, at: int, end: SSAValue) -> bool:
        """Whether a carried value is the number of the iteration: it starts as the first one, and is handed on as the next."""
        number, step = loop.body.block.args[0], self.forms.of(loop.step)
        is_next = add(self.forms.of(end), self.forms.of(number), -1) == step
        return not step[0] and is_next and self.forms.of(loop.iter_args[at]) == self.forms.of(loop.lb)

    def _add_silent(self) -> None:
        """Arithmetic in loops of which nothing but such comparisons is made."""
        for op in reversed(self.program.ops):
            if op.name in _CHAIN and op.results[0] in self.program.deciding and loop_around(op) is not None:
                users = [use.operation for use in op.results[0].uses]
                if users and all(user in self.exempt or user in self.silent or self._is_idle(user) for user in users):
                    self.silent.add(op)

    def _add_measured(self) -> None:
        """What the class has to share the residues of needs a form, be it of silent arithmetic."""
        work: list[SSAValue] = [value for found in self.exempt.values() for value, _ in found.residues]
        while work:
            op = work.pop().owner
            if isinstance(op, Operation) and op in self.silent and op not in self.measured:
                self.measured.add(op)
                work += op.operands

    def _signs(self, comparisons: "ComparisonsOfLoops", turning: list[Operation]) -> "dict[scf.ForOp, dict[Turn, None]]":
        """Unsigned divisions that repeat with their operand, and where those of a loop change their sign."""
        found: dict[scf.ForOp, dict[Turn, None]] = {}
        for op in turning:
            if op.name not in UNSIGNED_DIVISIONS:
                continue
            if op in self.silent:
                self._of_one_sign.add(op)
            elif (turns := comparisons.changes_of_sign(op)) is not None:
                self._of_one_sign.add(op)
                for loop, each in turns.items():
                    found.setdefault(loop, {}).update(each)
        return found

    def _is_idle(self, op: Operation) -> bool:
        """Whether nothing depends on an operation's results, nor on itself."""
        decides = isinstance(op, scf.ForOp | scf.IfOp | scf.YieldOp | pipe.SlotOp | pipe.PartOp | sync.MbarrierSlotOp | sync.WaitPhaseOp)
        decides = decides and op not in self.program.quiet and op not in self.program.idle
        return not decides and not any(result in self.program.deciding for result in op.results)
