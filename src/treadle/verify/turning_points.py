"""Which comparisons turn once as a loop goes on: those of a form that is affine in the number of the iteration.

Where they turn is known when the loop begins, so that between two such points all iterations decide alike, and the loop's state (slots,
parities, ..) alone says what an iteration does.
"""

from typing import cast

from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.records import Record
from treadle.verify.linear_forms import Linear, LinearForms, add
from treadle.verify.program import Program, yielded
from treadle.verify.scalars import INDEX_BITS, constant_value, width_of

_EQUAL, _SIGNED_LAST = (0, 1), 5


class Turn(Record):
    """A comparison of a loop. `per_iteration`: how much the form grows. `rest`: values with factors, and a constant, that make up the form
    of iteration 0. `counters`: carried values of the loop with their factors, and `numbers`: the factor of its induction variable.
    `limits`: the form's values from which on (upwards where it grows, downwards where it falls) the comparison is another.
    `least`: a form that has to be zero or more at iteration 0.
    """

    per_iteration: int
    rest: tuple[tuple[SSAValue, int], ...]
    constant: int
    limits: tuple[int, ...]
    least: "Turn | None" = None


class LoopFacts(Record):
    """What is fixed about a loop: carried values that grow by a constant (by position), and its turning points."""

    steps: dict[int, int]
    turns: tuple[Turn, ...]


class TurningPoints:
    """The loops of a program. `exempt`: comparisons that turning points cover."""

    def __init__(self, program: Program, forms: LinearForms) -> None:
        self.program, self.forms = program, forms
        self.exempt: dict[Operation, tuple[Turn, ...]] = {}
        self._loops: dict[Operation, LoopFacts] = {}
        self._home: dict[SSAValue, scf.ForOp] = {}
        self._steps: dict[Operation, dict[int, int]] = {op: self._counters(op) for op in program.all(scf.ForOp)}
        turns: dict[Operation, list[Turn]] = {op: [] for op in self._steps}
        for loop, steps in self._steps.items():
            block = loop.body.block
            self._home[block.args[0]] = loop
            self._home |= {block.args[at + 1]: loop for at in steps}
        for op in program.ops:
            if op.name == "arith.cmpi" and op.results[0] in program.deciding and (found := self._turns(op)):
                loop, made = found
                self.exempt[op] = made
                turns[loop] += made
        for loop, steps in self._steps.items():
            self._loops[loop] = LoopFacts(steps, tuple(dict.fromkeys(turns[loop])))

    def of(self, loop: Operation) -> LoopFacts:
        """The facts of a loop."""
        return self._loops[loop]

    def _counters(self, loop: scf.ForOp) -> dict[int, int]:
        """Carried values that each iteration changes by the same constant."""
        found: dict[int, int] = {}
        for at, (argument, end) in enumerate(zip(loop.body.block.args[1:], yielded(loop), strict=True)):
            if width_of(argument.type) >= INDEX_BITS:
                change = add(self.forms.of(end), self.forms.of(argument), -1)
                if not change[0] and (change[1] or end is argument):
                    found[at] = change[1]
        return found

    def _turns(self, op: Operation) -> tuple[scf.ForOp, tuple[Turn, ...]] | None:
        predicate = op.properties["predicate"]
        which = int(predicate.value.data) if isinstance(predicate, builtin.IntegerAttr) else 0
        left, right = self.forms.of(op.operands[0]), self.forms.of(op.operands[1])
        difference = add(left, right, -1)
        forms = [(difference, (0, 1))] if which <= _SIGNED_LAST else [(difference, (0, 1)), (left, (0,)), (right, (0,))]
        if which <= _SIGNED_LAST and (made := self._of_quotient(difference)) is not None:
            return made
        found: list[Turn] = []
        loops: set[scf.ForOp] = set()
        for form, limits in forms:
            loop = self._innermost(form)
            if loop is None:
                if len(forms) == 1:
                    return None
                continue
            turn = self._turn(loop, form, limits)
            if turn is None:
                return None
            loops.add(loop)
            found.append(turn)
        return (loops.pop(), tuple(found)) if len(loops) == 1 else None

    def _of_quotient(self, form: Linear) -> tuple[scf.ForOp, tuple[Turn, ...]] | None:
        """Turns of a form in which a counter stands as a quotient: `floor(x / d) + r` reaches a limit where `x + d * r` reaches d times it."""
        for atom, factor in form[0]:
            found = self._quotient(self.forms.value_of(atom))
            if found is None or abs(factor) != 1:
                continue
            divided, divisor = found
            inner = self.forms.of(divided)
            loop = self._innermost(inner)
            if loop is None:
                continue
            rest = add(form, (((atom, 1),), 0), -factor)
            least = self._turn(loop, inner, ())
            turn = self._turn(loop, add(inner, rest, factor * divisor), (0, divisor))
            if self._innermost(rest) is not loop and least is not None and turn is not None and least.per_iteration > 0:
                return loop, (Turn(turn.per_iteration, turn.rest, turn.constant, turn.limits, least),)
        return None

    @staticmethod
    def _quotient(value: SSAValue) -> tuple[SSAValue, int] | None:
        """What a value is a quotient of, and by which constant."""
        op = value.owner
        if not isinstance(op, Operation) or op.name not in ("arith.divui", "arith.divsi", "arith.floordivsi", "arith.shrui", "arith.shrsi"):
            return None
        by = op.operands[1].owner
        known = constant_value(by) if isinstance(by, Operation) and by.name == "arith.constant" else None
        divisor = None if known is None or known < 0 else 1 << known if "shr" in op.name else known
        return (op.operands[0], divisor) if divisor else None

    def _innermost(self, form: Linear) -> scf.ForOp | None:
        loops = [self._home[value] for atom, _ in form[0] if (value := self.forms.value_of(atom)) in self._home]
        return max(loops, key=_depth, default=None)

    def _turn(self, loop: scf.ForOp, form: Linear, limits: tuple[int, ...]) -> Turn | None:
        grows, rest = 0, list[tuple[SSAValue, int]]()
        step = loop.step.owner
        for atom, factor in form[0]:
            value = self.forms.value_of(atom)
            if self._home.get(value) is not loop:
                if not _is_outside(value, loop):
                    return None
                rest.append((value, factor))
            elif isinstance(value, BlockArgument) and value.index:
                grows += factor * self._steps[loop][value.index - 1]
                rest.append((loop.iter_args[value.index - 1], factor))
            else:
                known = constant_value(step) if isinstance(step, Operation) and step.name == "arith.constant" else None
                if known is None:
                    return None
                grows += factor * known
                rest.append((loop.lb, factor))
        return Turn(grows, tuple(rest), form[1], limits) if grows else None


def _depth(loop: Operation) -> int:
    depth, parent = 0, loop.parent_op()
    while parent is not None:
        depth, parent = depth + 1, parent.parent_op()
    return depth


def _is_outside(value: SSAValue, loop: Operation) -> bool:
    """Whether a value is there before the loop begins."""
    at = cast(Block, value.owner).parent_op() if isinstance(value, BlockArgument) else value.owner
    while isinstance(at, Operation):
        if at is loop:
            return False
        at = at.parent_op()
    return True
