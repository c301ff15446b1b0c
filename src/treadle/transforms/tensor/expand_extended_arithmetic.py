"""expand-extended-arithmetic: integer operations with two results become operations with one.

Level: tensor. Reads: `arith.addui_extended`, `arith.mulsi_extended`, `arith.mului_extended` on scalars (in the bodies of generics, once
generalize-named-ops has run). Writes: `arith` operations with one result, which is what every level below computes with.
Leaves alone: everything else. Refuses these operations on `index`, whose width is the machine's.
"""

from collections.abc import Callable
from typing import ClassVar

from treadle.analysis.sizes import cannot_compile
from treadle.ir.builtin import is_integer
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func
from treadle.ir.emitter import before
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import give_way

_WIDEST = 64
_HALF = 32

EXTENDED = (arith.AddUIExtendedOp, arith.MulSIExtendedOp, arith.MulUIExtendedOp)


class _Integers:
    """Scalar integer arithmetic of one type, inserted in front of an operation."""

    def __init__(self, anchor: Operation, kind: builtin.IntegerType) -> None:
        self.anchor = anchor
        self.kind = kind

    def emit(self, make: Callable[..., Operation], *operands: object) -> SSAValue:
        """The first result of `make(*operands)`."""
        return before(self.anchor).insert(make(*operands))

    def constant(self, value: int) -> SSAValue:
        """A constant of the type."""
        return self.emit(arith.ConstantOp, builtin.IntegerAttr(value, self.kind))

    def low_half(self, value: SSAValue) -> SSAValue:
        """The lower 32 of 64 bits."""
        return self.emit(arith.AndIOp, value, self.constant((1 << _HALF) - 1))

    def high_half(self, value: SSAValue) -> SSAValue:
        """The upper 32 of 64 bits, moved down."""
        return self.emit(arith.ShRUIOp, value, self.constant(_HALF))


def _add(emitter: _Integers, left: SSAValue, right: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The sum, and whether it wrapped: then it is less than either operand."""
    total = emitter.emit(arith.AddiOp, left, right)
    return total, emitter.emit(arith.CmpiOp, total, left, "ult")


def _through_wider(emitter: _Integers, left: SSAValue, right: SSAValue, *, signed: bool) -> tuple[SSAValue, SSAValue]:
    """The halves of a product that a type of twice the width holds."""
    width = emitter.kind.width.data
    wide = _Integers(emitter.anchor, builtin.IntegerType(2 * width))
    extend = arith.ExtSIOp if signed else arith.ExtUIOp
    product = wide.emit(arith.MuliOp, *(wide.emit(extend, value, wide.kind) for value in (left, right)))
    upper = wide.emit(arith.ShRUIOp, product, wide.constant(width))
    low, high = (wide.emit(arith.TruncIOp, value, emitter.kind) for value in (product, upper))
    return low, high


def _of_truth_values(emitter: _Integers, left: SSAValue, right: SSAValue) -> tuple[SSAValue, SSAValue]:
    """(-1) * (-1) and 1 * 1 are both 01 in two bits."""
    return emitter.emit(arith.AndIOp, left, right), emitter.constant(0)


def _by_halves(emitter: _Integers, left: SSAValue, right: SSAValue, *, signed: bool) -> tuple[SSAValue, SSAValue]:
    """The halves of the 128-bit product of 64-bit numbers, from the products of their halves.

    The signed product differs from the unsigned one by the other operand times 2^64 for each negative operand.
    """

    def add(*values: SSAValue) -> SSAValue:
        total = values[0]
        for value in values[1:]:
            total = emitter.emit(arith.AddiOp, total, value)
        return total

    (a0, a1), (b0, b1) = ((emitter.low_half(value), emitter.high_half(value)) for value in (left, right))
    low, cross, other, high = (emitter.emit(arith.MuliOp, x, y) for x, y in ((a0, b0), (a0, b1), (a1, b0), (a1, b1)))
    carried = add(emitter.high_half(low), emitter.low_half(cross), emitter.low_half(other))
    upper = add(high, emitter.high_half(cross), emitter.high_half(other), emitter.high_half(carried))
    for negative, value in ((left, right), (right, left)) if signed else ():
        sign = emitter.emit(arith.ShRSIOp, negative, emitter.constant(_WIDEST - 1))
        upper = emitter.emit(arith.SubiOp, upper, emitter.emit(arith.AndIOp, sign, value))
    return emitter.emit(arith.MuliOp, left, right), upper


def expanded(op: Operation) -> tuple[SSAValue, SSAValue]:
    """What stands for the two results, inserted in front of the operation."""
    left, right = op.operands
    kind = left.type
    if not is_integer(kind):
        hint = "compute it on an integer type of known width"
        raise cannot_compile(op, what=f"'{op.name}' on {kind}", hint=hint)
    emitter = _Integers(op, kind)
    if isinstance(op, arith.AddUIExtendedOp):
        return _add(emitter, left, right)
    if kind.width.data == 1:
        return _of_truth_values(emitter, left, right)
    multiply = _by_halves if kind.width.data == _WIDEST else _through_wider
    return multiply(emitter, left, right, signed=isinstance(op, arith.MulSIExtendedOp))


@register_pass
@dataclass(frozen=True)
class ExpandExtendedArithmeticPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "expand-extended-arithmetic"

    def run(self, function: func.FuncOp) -> None:
        """Expand every operation with two results."""
        for found in [inner for inner in function.walk() if isinstance(inner, EXTENDED)]:
            if isinstance(found.results[0].type, builtin.TensorType):
                continue
            give_way(found, expanded(found))
