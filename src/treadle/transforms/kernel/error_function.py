"""1 + erf(u) where 16 bits of it are asked for: 2^P(|u|) for negative u, 2 less that for others. Part of simplify-math.

2^P(y) is erfc(y) = 1 - erf(y). One polynomial and one power serve all u, where erf itself takes two polynomials and a choice between them,
and the sum loses no digits where erf is near -1.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from treadle.analysis.needed_precision import constant_float, element_of
from treadle.dialects.precision import FULL, NARROW, error_bits, set_error_bits
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.rewriting import InsertPoint, Pattern, PatternRewriter

LOG2_ERFC: Final = (
    -4.04576694261e-06,
    -1.62801224971,
    -0.917238829704,
    -0.152229154153,
    0.0337835164077,
    -0.00518174487148,
    0.000479165403236,
    -1.98657221575e-05,
)
"""P, fitted on [0, 4.6] with a relative error of 2^-17.1 in the power. Beyond, where erfc is below 2^-33, the power is too small, by 10^-15
at most.
"""
_APPROXIMATE: Final = arith.FastMathFlagsAttr([arith.FastMathFlag.APPROX_FUNC])


class ComplementOfErf(Pattern):
    """1 + erf(u), whose parts have no other use."""

    @property
    def root(self) -> str:
        return arith.AddfOp.name

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.AddfOp) or error_bits(op) > NARROW or not isinstance(element_of(op.results[0]), builtin.Float32Type):
            return
        for one, other in (op.operands, reversed(op.operands)):
            if constant_float(one) == 1.0 and isinstance(other, OpResult) and isinstance(other.op, math.ErfOp) and _is_single(other):
                rewriter.replace(op, (), [_written(op, other.op.operands[0], rewriter)])
                return


def _is_single(value: SSAValue) -> bool:
    return len(tuple(value.uses)) == 1


def _written(op: Operation, u: SSAValue, rewriter: PatternRewriter) -> SSAValue:
    bits = error_bits(op)

    def put(made: Operation, precision: int | None = None) -> Any:
        if precision is not None:
            set_error_bits(made, precision)
        rewriter.insert(made, InsertPoint.before(op))
        return made.results[0]

    number = _constants(op, put)
    size = put(math.AbsFOp(u), FULL)
    power = number(LOG2_ERFC[-1])
    for coefficient in reversed(LOG2_ERFC[:-1]):
        power = put(arith.AddfOp(put(arith.MulfOp(power, size), FULL), number(coefficient)), FULL)
    small = put(math.Exp2Op(power, _APPROXIMATE), bits)
    is_negative = put(arith.CmpfOp(u, number(0.0), "olt"))
    return put(arith.SelectOp(is_negative, small, put(arith.SubfOp(number(2.0), small), FULL)), bits)


def _constants(op: Operation, put: Callable[[Operation], Any]) -> Callable[[float], Any]:
    """Numbers of the type of an operation's result."""
    kind = op.results[0].type

    def number(value: float) -> Any:
        if isinstance(kind, builtin.TensorType):
            typed = cast("builtin.TensorType[builtin.Float32Type]", kind)
            return put(arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(typed, [value])))
        return put(arith.ConstantOp(builtin.FloatAttr(value, builtin.f32)))

    return number
