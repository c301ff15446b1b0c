"""What a loop carries that is the last iteration's number, or the largest so far, as arithmetic on the number itself.

Where each iteration hands on `f(i)`, affine in its number, the next begins with `f(i - step)`, the first with what the loop begins with;
the loop ends with `f` of its last number, or where it makes no iteration with what it begins with. Of `max(carried, f(i))` the same is
true of `max(start, f(i))` where the form grows, of `max(start, f(first))` where it falls; minima the other way round. So the kernel means
the same, and what turned on carried values turns on the number.
"""

from collections.abc import Callable

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Block, Operation, SSAValue, Use
from treadle.ir.dialects import arith, builtin, scf
from treadle.records import Record
from treadle.verify.plain_arithmetic import Origins, in_terms_of
from treadle.verify.program import Program
from treadle.verify.reports import Verdict
from treadle.verify.scalars import Linear, LinearForms, add, yielded

LARGEST, LEAST = "arith.maxsi", "arith.minsi"
EQUAL, LESS = 0, 2


class _Told(Record):
    """What an iteration hands on: `rest`, and so many times its number; or the extreme of that and of what it began with. `is_even`: the
    first iteration begins with what one before it would have handed on.
    """

    factor: int
    rest: Linear
    extreme: Operation | None
    is_even: bool


def with_told_numbers(program: Program) -> tuple[tile.KernelOp, Origins] | None:
    """A clone in which such values are computed from numbers of iterations; None where there are none that something depends on."""
    forms = LinearForms()
    wanted = [
        (loop, at)
        for loop in program.loops
        for at, value in enumerate(loop.body.block.args[1:])
        if value in program.deciding and _told(loop, at, forms) is not None
    ]
    if not wanted:
        return None
    clone = program.kernel.clone()
    origins: Origins = dict(zip(clone.walk(), program.kernel.walk(), strict=True))
    copies = {source: copy for copy, source in origins.items()}
    for loop, at in wanted:
        copy = copies[loop]
        if isinstance(copy, scf.ForOp):
            _Telling(copy, at, origins).tell()
    return clone, origins


def verdict_on_told(program: Program, verdict: Callable[[tile.KernelOp], Verdict]) -> Verdict | None:
    """The verdict on such a clone, in terms of the kernel; None where there is none."""
    told = with_told_numbers(program)
    return None if told is None else in_terms_of(program.kernel, *told, verdict(told[0]))


def _told(loop: scf.ForOp, at: int, forms: LinearForms) -> _Told | None:
    """What is known of a carried value; None where it is none of these."""
    (number, *arguments), end = loop.body.block.args, yielded(loop)[at]
    argument, step, op = arguments[at], forms.of(loop.step), end.owner
    if not isinstance(argument.type, builtin.IndexType) or step[0] or step[1] <= 0:
        return None
    extreme = op if isinstance(op, Operation) and op.name in (LARGEST, LEAST) and argument in op.operands else None
    form = forms.of(end if extreme is None else extreme.operands[int(extreme.operands[0] is argument)])
    own = forms.of(number)
    factor = dict(form[0]).get(own[0][0][0], 0)
    rest = add(form, own, -factor)
    if not factor or any(not _is_outside(forms.value_of(atom), loop) for atom, _ in rest[0]):
        return None
    if extreme is not None:
        return _Told(factor, rest, extreme, False)
    before = add(add(rest, forms.of(loop.lb), factor), step, -factor)
    return _Told(factor, rest, None, before == forms.of(loop.iter_args[at]))


def _is_outside(value: SSAValue, loop: scf.ForOp) -> bool:
    owner = value.owner
    inside = owner if isinstance(owner, Operation) else owner.parent_op()
    return inside is not loop and (inside is None or loop not in ancestors(inside))


class _Telling:
    """One carried value of a loop, replaced."""

    def __init__(self, loop: scf.ForOp, at: int, origins: Origins) -> None:
        self.forms = LinearForms()
        told, end, first, around = _told(loop, at, self.forms), loop.body.block.last_op, loop.body.block.first_op, loop.parent_block()
        if told is None or end is None or first is None or around is None:
            raise InternalError("a carried value is another one in a clone")
        self.loop, self.told, self.origins, self.at = loop, told, origins, at
        self.first, self.end, self.around = first, end, around
        self.start = loop.iter_args[at]
        self._place: tuple[Block, Operation] = loop.body.block, first

    def tell(self) -> None:
        """Compute it where the loop uses it, what the loop ends with, and the extreme so far."""
        loop, body, extreme = self.loop, self.loop.body.block, self.told.extreme
        number, argument, result = body.args[0], body.args[self.at + 1], loop.results[self.at]
        uses = [use for use in argument.uses if use.operation is not extreme]
        if uses:
            if self.told.is_even:
                self._replace(uses, self._value(number, back=self.forms.of(loop.step)[1]))
            else:  # no less than the first number, so that what is none is not below zero where numbers never are
                last = self._made(arith.MaxSIOp(self._made(arith.SubiOp(number, loop.step)), loop.lb))
                self._replace(uses, self._either(arith.CmpiOp(number, loop.lb, EQUAL), self.start, self._value(last)))
        if extreme is not None and (uses := [use for use in extreme.results[0].uses if use.operation is not self.end]):
            self._place = body, extreme
            self._replace(uses, self._value(number))
        if uses := list(result.uses):
            behind = loop.next_op
            if behind is None:
                raise InternalError("a loop ends its block")
            self._place = self.around, behind
            span = self._made(arith.SubiOp(self._made(arith.SubiOp(loop.ub, loop.lb)), self._constant(1)))
            steps = self._made(arith.DivUIOp(self._made(arith.MaxSIOp(span, self._constant(0))), loop.step))
            last = self._made(arith.AddiOp(loop.lb, self._made(arith.MuliOp(steps, loop.step))))
            self._replace(uses, self._either(arith.CmpiOp(loop.lb, loop.ub, LESS), self._value(last), self.start))

    def _replace(self, uses: list[Use], value: SSAValue) -> None:
        for use in uses:
            use.operation.operands[use.index] = value

    def _value(self, number: SSAValue, *, back: int = 0) -> SSAValue:
        """What an iteration hands on whose number is so much less than this one."""
        constant, extreme = self.told.rest[1] - self.told.factor * back, self.told.extreme
        is_largest = extreme is not None and extreme.name == LARGEST
        if extreme is not None and (self.told.factor > 0) != is_largest:
            number = self.loop.lb  # none goes further than the first
        found = self._scaled(number, self.told.factor)
        for atom, factor in self.told.rest[0]:
            found = self._made(arith.AddiOp(found, self._scaled(self.forms.value_of(atom), factor)))
        if constant:
            found = self._made(arith.AddiOp(found, self._constant(constant)))
        if extreme is None:
            return found
        return self._made(arith.MaxSIOp(self.start, found) if is_largest else arith.MinSIOp(self.start, found))

    def _scaled(self, value: SSAValue, factor: int) -> SSAValue:
        return value if factor == 1 else self._made(arith.MuliOp(value, self._constant(factor)))

    def _constant(self, number: int) -> SSAValue:
        return self._made(arith.ConstantOp.from_int_and_width(number, builtin.IndexType()))

    def _either(self, condition: Operation, one: SSAValue, other: SSAValue) -> SSAValue:
        return self._made(arith.SelectOp(self._made(condition), one, other))

    def _made(self, op: Operation) -> SSAValue:
        block, before = self._place
        block.insert_ops_before([op], before)
        self.origins[op] = self.origins[self.loop]
        return op.results[0]
