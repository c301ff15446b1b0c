"""Bounds of index values as size expressions: what decides how wide an index has to be.

Walks from a value to the operations it is computed by. What a leaf is bounded by (a size, a workgroup's id, a loop of the user's text) is
for the caller to say; a value that nothing is known about has no bound.
"""

from collections.abc import Callable

from treadle.ir.builtin import integer_width
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, tensor
from treadle.ir.tables import table_of
from treadle.plan.expr import Expr, constant, maximum, minimum
from treadle.records import dataclass

ZERO = constant(0)


@dataclass(frozen=True, slots=True)
class Bound:
    """`-negative <= value <= positive`, neither of which is negative. `exact`: the value itself where it depends on sizes alone."""

    negative: Expr
    positive: Expr
    exact: Expr | None = None

    @property
    def is_natural(self) -> bool:
        """Whether the value is never negative."""
        return self.negative == ZERO

    @property
    def magnitude(self) -> Expr:
        """No value is further from zero."""
        return self.negative + self.positive if self.negative != ZERO else self.positive


Leaf = Callable[[SSAValue], Bound | None]
Rule = Callable[[Bound, Bound], Bound]


def up_to(value: Expr) -> Bound:
    """0 <= value <= `value`."""
    return Bound(ZERO, value)


def exactly(value: Expr) -> Bound:
    """A value that is known, as far as its symbols are; it is not negative."""
    return Bound(ZERO, value, value)


def of_number(number: int) -> Bound:
    """The bound of a constant."""
    return Bound(constant(max(-number, 0)), constant(max(number, 0)), constant(number))


def _add(a: Bound, b: Bound) -> Bound:
    return Bound(a.negative + b.negative, a.positive + b.positive, None if a.exact is None or b.exact is None else a.exact + b.exact)


def _subtract(a: Bound, b: Bound) -> Bound:
    return Bound(a.negative + b.positive, a.positive + b.negative)


def _multiply(a: Bound, b: Bound) -> Bound:
    if a.is_natural and b.is_natural:
        return Bound(ZERO, a.positive * b.positive, None if a.exact is None or b.exact is None else a.exact * b.exact)
    for one, other in ((a, b), (b, a)):
        if other.exact is not None and (by := other.exact.as_int()) is not None:
            scaled = Bound(one.negative * abs(by), one.positive * abs(by))
            return scaled if by >= 0 else Bound(scaled.positive, scaled.negative)
    return _within(a.magnitude * b.magnitude)


def _within(magnitude: Expr) -> Bound:
    return Bound(magnitude, magnitude)


def _divide(a: Bound, b: Bound) -> Bound:
    if not (a.is_natural and b.is_natural):
        return _within(a.magnitude)
    if b.exact is None:
        return up_to(a.positive)
    return Bound(ZERO, a.positive // maximum(b.exact, 1), None if a.exact is None else a.exact // maximum(b.exact, 1))


def _remainder(a: Bound, b: Bound) -> Bound:
    return up_to(minimum(a.positive, b.positive)) if a.is_natural and b.is_natural else _within(minimum(a.magnitude, b.magnitude))


def _minimum(a: Bound, b: Bound) -> Bound:
    return Bound(_either(a.negative, b.negative), minimum(a.positive, b.positive))


def _maximum(a: Bound, b: Bound) -> Bound:
    return Bound(minimum(a.negative, b.negative), _either(a.positive, b.positive))


def _either(a: Expr, b: Expr) -> Expr:
    """What bounds both."""
    return b if a == ZERO else a if b == ZERO else maximum(a, b)


def _join(a: Bound, b: Bound) -> Bound:
    return Bound(_either(a.negative, b.negative), _either(a.positive, b.positive))


def _shift_left(a: Bound, b: Bound) -> Bound | None:
    by = b.exact.as_int() if b.exact is not None else None
    return _multiply(a, of_number(1 << by)) if by is not None and 0 <= by < 63 else None


def _shrink(a: Bound, b: Bound) -> Bound:
    """A shift to the right, and an `and`: of values that are not negative nothing becomes larger."""
    return up_to(a.positive) if a.is_natural else _within(a.magnitude + b.magnitude)


def _bits(a: Bound, b: Bound) -> Bound | None:
    """`or` and `xor` set no bit that neither operand may have: below twice the sum."""
    return up_to((a.positive + b.positive) * 2) if a.is_natural and b.is_natural else None


_RULES: dict[str, Callable[[Bound, Bound], Bound | None]] = {
    "arith.addi": _add,
    "arith.subi": _subtract,
    "arith.muli": _multiply,
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi", "arith.ceildivui"), _divide),
    **dict.fromkeys(("arith.remsi", "arith.remui"), _remainder),
    **dict.fromkeys(("arith.minsi", "arith.minui"), _minimum),
    **dict.fromkeys(("arith.maxsi", "arith.maxui"), _maximum),
    "arith.shli": _shift_left,
    **dict.fromkeys(("arith.shrsi", "arith.shrui", "arith.andi"), _shrink),
    **dict.fromkeys(("arith.ori", "arith.xori"), _bits),
}
_UNSIGNED = frozenset(("arith.divui", "arith.remui", "arith.ceildivui", "arith.minui", "arith.maxui", "arith.shrui"))


class IndexBounds:
    """Bounds of index values, each computed once; None where there is none."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self._known: dict[SSAValue, Bound | None] = {}

    def of(self, value: SSAValue) -> Bound | None:
        """The bound of a value."""
        if value not in self._known:
            self._known[value] = None  # for cycles
            self._known[value] = self._compute(value)
        return self._known[value]

    def _compute(self, value: SSAValue) -> Bound | None:
        op = value.owner
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.IntegerAttr):
            return of_number(op.value.value.data)
        if isinstance(op, arith.SelectOp):
            return self._both(op.lhs, op.rhs, _join)
        if isinstance(op, tensor.ExtractOp) and (table := table_of(op)) is not None:
            return Bound(constant(max(0, -min(table))), constant(max(0, *table)))
        if isinstance(op, Operation) and op.name in _RULES:
            left, right = op.operands
            found = self._both(left, right, _RULES[op.name])
            return found if op.name not in _UNSIGNED or self._are_natural(left, right) else None
        if isinstance(op, Operation) and op.name in ("arith.index_cast", "arith.index_castui"):
            return self._cast(op.operands[0])
        return self._leaf(value)

    def _both(self, left: SSAValue, right: SSAValue, rule: Callable[[Bound, Bound], Bound | None]) -> Bound | None:
        a, b = self.of(left), self.of(right)
        return None if a is None or b is None else rule(a, b)

    def _are_natural(self, *values: SSAValue) -> bool:
        return all(bound is not None and bound.is_natural for bound in map(self.of, values))

    def _cast(self, source: SSAValue) -> Bound | None:
        """An integer as an index, or the other way. Integer arithmetic wraps: its type bounds it, and i64 as good as not."""
        followed = isinstance(source.type, builtin.IndexType) or isinstance(source.owner, arith.ConstantOp | arith.IndexCastOp)
        width = integer_width(source.type)
        if followed or width is None:
            return self.of(source)
        return Bound(constant(1 << (width - 1)), constant((1 << (width - 1)) - 1)) if width < 64 else None
