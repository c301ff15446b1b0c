"""Index values of the IR as congruences, and what the edges of a loop do to them.

The number of an iteration is an atom of its own (`Trip`), so that values of different iterations can be compared: an access made some
iterations ago is the same form with `Trip - 1` for `Trip` once for every back edge since. Carried values that step evenly, modulo
something or exactly, alone or rotating among each other, are forms of `Trip` too. Indices are never negative and never overflow.
"""

from collections.abc import Sequence
from math import gcd
from typing import cast

from treadle.analysis.slots import UNKNOWN, Atom, Congruence, Linear, Quotient, atom, congruence, exactly
from treadle.analysis.structured_flow import yielded
from treadle.ir.core import BlockArgument, Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Trip:
    """The number of the current iteration of a loop, from 0."""

    loop: Operation


@dataclass(frozen=True, slots=True)
class Trips:
    """How many iterations a loop makes."""

    loop: Operation


class SlotValues:
    """What is known of index and integer values; of a kernel as it stands (use a new one after rewriting it)."""

    def __init__(self) -> None:
        self._known: dict[SSAValue, Congruence] = {}
        self._outer: tuple[SlotValues, Operation] | None = None
        self._trips: dict[Operation, Congruence] = {}
        self._speeds: dict[SSAValue, Congruence] = {}

    def of(self, value: SSAValue | int) -> Congruence:
        """What is known of a value."""
        if isinstance(value, int):
            return exactly(Linear(value))
        found = self._known.get(value)
        if found is None and self._outer is not None and not is_inside(value, self._outer[1]):
            return self._outer[0].of(value)
        if found is None:
            found = self._known[value] = self._argument(value) if isinstance(value, BlockArgument) else self._result(cast(OpResult, value))
        return found

    def trips(self, loop: scf.ForOp) -> Congruence:
        """How many iterations a loop makes: a number where that is known, else the atom `Trips`."""
        if loop not in self._trips:
            self._trips[loop] = self._count(loop)
        return self._trips[loop]

    def _count(self, loop: scf.ForOp) -> Congruence:
        low, high, step = self.of(loop.lb), self.of(loop.ub), self.of(loop.step).constant
        span = high - low
        if step is None or step < 1 or span.modulus:
            return _atom(Trips(loop))
        if (known := span.constant) is not None:
            return exactly(Linear(max(0, -(-known // step))))
        if low.constant == 0 and self._is_at_least_zero(loop.ub):
            return (span + exactly(Linear(step - 1))).quotient(step)
        return _atom(Trips(loop))

    def _is_at_least_zero(self, value: SSAValue) -> bool:
        """Whether a value is a size or computed from sizes so that it cannot be negative."""
        if isinstance(value, BlockArgument):
            return not isinstance(value.block.parent_op(), scf.ForOp | scf.IfOp)
        match cast(OpResult, value).op:
            case arith.ConstantOp():
                return (self.of(value).constant or 0) >= 0
            case arith.AddiOp() | arith.MuliOp() | arith.DivUIOp() | arith.DivSIOp() | arith.CeilDivSIOp() | arith.RemUIOp() as op:
                return all(self._is_at_least_zero(v) for v in op.operands)
            case arith.MaxSIOp() as op:
                return any(self._is_at_least_zero(v) for v in op.operands)
            case arith.MinSIOp() as op:
                return all(self._is_at_least_zero(v) for v in op.operands)
            case _:
                return False

    # --- definitions

    def _argument(self, value: BlockArgument) -> Congruence:
        loop = value.block.parent_op()
        if not isinstance(loop, scf.ForOp):
            return _atom(value)
        if value.index == 0:
            step = self.of(loop.step).constant
            low = self.of(loop.lb)
            return _atom(value) if step is None or low.modulus else low + exactly(atom(Trip(loop)) * step)
        return self._carried(loop)[value.index - 1]

    def _carried(self, loop: scf.ForOp) -> list[Congruence]:
        """The carried values of a loop as forms of `Trip`; those that no form describes are atoms."""
        arguments = loop.body.block.args[1:]
        induction = loop.body.block.args[0]
        trial = SlotValues()
        trial._outer = (self, loop)
        trial._known = {**{a: _atom(a) for a in arguments}, induction: self.of(induction)}
        steps = [trial.of(v) if _is_integer(v) else UNKNOWN for v in yielded(loop.body.block)]
        entries = [self.of(v) if _is_integer(v) else UNKNOWN for v in loop.iter_args]
        links = [_link(step, arguments) for step in steps]
        found: list[Congruence] = []
        for number, argument in enumerate(arguments):
            form = _rotation(number, arguments, links, steps, entries, Trip(loop)) if _is_integer(argument) else None
            self._known[argument] = form if form is not None else _atom(argument)
            found.append(self._known[argument])
            if form is None and links[number] == number:
                added = congruence(steps[number].form - atom(argument), steps[number].modulus)
                self._speeds[argument] = UNKNOWN if any(is_inside(a, loop) for a in atoms(added.form)) else added
        return found

    def speed(self, loop: scf.ForOp, number: int) -> Congruence:
        """What an iteration adds to an argument of a loop's body that is no form of `Trip`."""
        argument = loop.body.block.args[number]
        self.of(argument)
        return self.of(loop.step) if number == 0 else self._speeds.get(argument, UNKNOWN)

    def _result(self, value: OpResult) -> Congruence:
        op = value.op
        match op:
            case arith.ConstantOp():
                return exactly(Linear(op.value.value.data)) if isinstance(op.value, builtin.IntegerAttr) else _atom(value)
            case scf.ForOp():
                argument = op.body.block.args[1 + value.index]
                last = self.of(argument).substitute(lambda a: self.trips(op) if a == Trip(op) else _atom(a))
                return _atom(value) if any(is_inside(a, op) for a in atoms(last.form)) else last
            case scf.IfOp():
                ends = [self.of(yielded(region.block)[value.index]) for region in op.regions]
                found = ends[0].either(ends[1])
            case arith.SelectOp():
                found = self._selected(op)
            case _:
                found = self._arithmetic(op)
        return found if found.modulus != 1 else Congruence(atom(value), 0, found.bound)

    def _selected(self, op: arith.SelectOp) -> Congruence:
        """One of two values. Where `a == b` selects the first, it may be written with a - b added: wrapping to 0 at n is `x + 1` mod n."""
        one, other = self.of(op.operands[1]), self.of(op.operands[2])
        test = op.operands[0].owner
        if isinstance(test, arith.CmpiOp) and test.predicate.value.data in (0, 1):  # eq, ne
            if test.predicate.value.data == 1:
                one, other = other, one
            zero = self.of(test.lhs) - self.of(test.rhs)
            found = [(one + zero.scaled(sign)).either(other) for sign in (1, -1)]
            if exact := [f for f in found if f.modulus != 1]:
                return exact[0]
        return one.either(other)

    def _arithmetic(self, op: Operation) -> Congruence:
        match op:
            case arith.AddiOp():
                return self.of(op.lhs) + self.of(op.rhs)
            case arith.SubiOp():
                return self.of(op.lhs) - self.of(op.rhs)
            case arith.IndexCastOp() | arith.ExtUIOp() | arith.ExtSIOp():
                return self.of(op.input)
            case arith.MuliOp():
                for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                    if (factor := self.of(other).constant) is not None:
                        return self.of(one).scaled(factor)
            case arith.XOrIOp() if self.of(op.rhs).constant == 1:
                return congruence((self.of(op.lhs) + exactly(Linear(1))).form, gcd(self.of(op.lhs).modulus, 2))
            case arith.AndIOp() if (mask := self.of(op.rhs).constant) is not None and mask > 0 and mask & (mask + 1) == 0:
                return self.of(op.lhs).remainder(mask + 1)
            case _ if op.name in ("arith.remsi", "arith.remui", "arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi"):
                divisor = self.of(op.operands[1]).constant
                if divisor is None or divisor < 1:
                    return UNKNOWN
                dividend = self.of(op.operands[0])
                if "rem" in op.name:
                    return dividend.remainder(divisor)
                return (dividend + exactly(Linear(divisor - 1 if "ceil" in op.name else 0))).quotient(divisor)
            case _:
                pass
        return UNKNOWN


def _atom(of: Atom) -> Congruence:
    return exactly(atom(of))


def _is_integer(value: SSAValue) -> bool:
    return isinstance(value.type, builtin.IndexType | builtin.IntegerType)


def atoms(form: Linear) -> set[Atom]:
    """All atoms of a form, those inside quotients included."""
    found: set[Atom] = set()
    for a, _ in form.terms:
        found |= atoms(a.numerator) if isinstance(a, Quotient) else {a}
    return found


def is_inside(a: Atom, loop: Operation) -> bool:
    """Whether an atom means something within one iteration of a loop only (its own iteration number left out)."""
    if isinstance(a, Trip | Trips):
        return a.loop is not loop and _holds(loop, a.loop)
    if not isinstance(a, SSAValue):
        return False
    owner = a.owner
    return _holds(loop, owner if isinstance(owner, Operation) else owner.parent_op()) and owner is not loop


def _holds(loop: Operation, op: Operation | None) -> bool:
    while op is not None and op is not loop:
        op = op.parent_op()
    return op is loop


def _link(step: Congruence, arguments: Sequence[SSAValue]) -> int | None:
    """Which carried value, with coefficient one, the next value of another is computed from; None where there is not exactly one."""
    used = [n for n, a in enumerate(arguments) if a in atoms(step.form)]
    if len(used) == 1 and step.form.coefficient(arguments[used[0]]) == 1 and step.modulus != 1:
        return used[0]
    return None


def _rotation(
    number: int,
    arguments: Sequence[SSAValue],
    links: list[int | None],
    steps: list[Congruence],
    entries: list[Congruence],
    trip: Trip,
) -> Congruence | None:
    """The carried value as entry + c * trip, where the carried values that it goes on from allow it.

    x_j(t + 1) = x_k(t) + C_j is solved by x_j(t) = I_j + c t where I_k + C_j - I_j = c for all j on the way from x, and around the cycle
    that it ends in, here modulo what the differences leave.
    """
    modulus, speed, at = 0, None, number
    seen: set[int] = set()
    while at not in seen:
        seen.add(at)
        following = links[at]
        if following is None:
            return None
        step = steps[at]
        change = entries[following].form + step.form - atom(arguments[following]) - entries[at].form
        modulus = gcd(modulus, step.modulus, entries[at].modulus)
        if not change.is_constant:
            return None
        speed = change.constant if speed is None else speed
        modulus = gcd(modulus, change.constant - speed)
        at = following
    if speed is None or modulus == 1:
        return None
    found = exactly(atom(trip) * speed) + entries[number]
    return congruence(found.form, gcd(found.modulus, modulus))
