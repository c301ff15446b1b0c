"""What elementwise operators compute of one element of each operand, and in which type.

A rule is called with scalars of the type that PyTorch computes in (f32 for narrower floats) and the operator's other arguments.
"""

from collections.abc import Callable
from typing import Any, Final

from treadle.ir.builtin import AnyFloat
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.records import Record
from treadle.torch.scalars import Scalars

Compute = Callable[..., SSAValue]


class Rule(Record):
    """One operator. `operands`: how many of its first arguments are tensors or numbers that are computed with; `promotion`: PyTorch's name
    for how the type of the computation follows from theirs, or BOOL for truth values; `options`: the names of its arguments behind them.
    """

    compute: Compute
    operands: int
    promotion: str = "DEFAULT"
    options: tuple[str, ...] = ()


def _add(s: Scalars, a: SSAValue, b: SSAValue, alpha: float = 1) -> SSAValue:
    scaled = b if alpha == 1 else s.multiply(b, s.like(b, alpha))
    return s.put(arith.OrIOp(a, b)) if a.type == builtin.i1 else s.add(a, scaled)


def _subtract(s: Scalars, a: SSAValue, b: SSAValue, alpha: float = 1) -> SSAValue:
    return s.subtract(a, b if alpha == 1 else s.multiply(b, s.like(b, alpha)))


def _subtract_from(s: Scalars, a: SSAValue, b: SSAValue, alpha: float = 1) -> SSAValue:
    return _subtract(s, b, a, alpha)


def _divide(s: Scalars, a: SSAValue, b: SSAValue, rounding_mode: str | None = None) -> SSAValue:
    if not isinstance(a.type, AnyFloat):
        return s.put((arith.FloorDivSIOp if rounding_mode == "floor" else arith.DivSIOp)(a, b))
    quotient = s.put(arith.DivfOp(a, b))
    if rounding_mode is None:
        return quotient
    return s.put((math.FloorOp if rounding_mode == "floor" else math.TruncOp)(quotient))


def _remainder(s: Scalars, a: SSAValue, b: SSAValue) -> SSAValue:
    quotient = _divide(s, a, b, "floor")
    return s.subtract(a, s.multiply(quotient, b))


def _clamp(s: Scalars, a: SSAValue, min: float | None = None, max: float | None = None) -> SSAValue:
    low = a if min is None else s.largest(a, s.like(a, min))
    return low if max is None else s.smallest(low, s.like(a, max))


def _where(s: Scalars, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
    return s.select(condition, a, b)


def _addcmul(s: Scalars, a: SSAValue, b: SSAValue, c: SSAValue, value: float = 1) -> SSAValue:
    return _add(s, a, s.multiply(b, c), value)


def _addcdiv(s: Scalars, a: SSAValue, b: SSAValue, c: SSAValue, value: float = 1) -> SSAValue:
    return _add(s, a, s.put(arith.DivfOp(b, c)), value)


def _lerp(s: Scalars, a: SSAValue, b: SSAValue, weight: SSAValue) -> SSAValue:
    return s.add(a, s.multiply(weight, s.subtract(b, a)))


def _relu(s: Scalars, a: SSAValue) -> SSAValue:
    return s.largest(a, s.like(a, 0))


def _sign(s: Scalars, a: SSAValue) -> SSAValue:
    zero, one = s.like(a, 0), s.like(a, 1)
    signed = s.select(s.compare("lt", a, zero), s.negate(one), a)
    return s.select(s.compare("gt", a, zero), one, signed)


def _not(s: Scalars, a: SSAValue) -> SSAValue:
    return s.put(arith.XOrIOp(a, s.like(a, -1)))


def _truncated_remainder(s: Scalars, a: SSAValue, b: SSAValue) -> SSAValue:
    return s.put((arith.RemfOp if isinstance(a.type, AnyFloat) else arith.RemSIOp)(a, b))


def _compare(predicate: str) -> Rule:
    def compute(s: Scalars, a: SSAValue, b: SSAValue) -> SSAValue:
        return s.compare(predicate, a, b)

    return Rule(compute, 2)


def _unary(make: Callable[..., Operation]) -> Rule:
    """An operation on floats; integers become floats first."""

    def compute(s: Scalars, a: SSAValue) -> SSAValue:
        return s.put(make(a))

    return Rule(compute, 1, "INT_TO_FLOAT")


def _binary(make: Callable[..., Operation], promotion: str = "DEFAULT") -> Rule:
    def compute(s: Scalars, a: SSAValue, b: SSAValue) -> SSAValue:
        return s.put(make(a, b))

    return Rule(compute, 2, promotion)


def _rounding(make: Callable[..., Operation]) -> Rule:
    """An operation on floats; integers are what it would make of them."""

    def compute(s: Scalars, a: SSAValue) -> SSAValue:
        return s.put(make(a)) if isinstance(a.type, AnyFloat) else a

    return Rule(compute, 1)


RULES: Final[dict[str, Rule]] = {
    "aten::add": Rule(_add, 2, options=("alpha",)),
    "aten::sub": Rule(_subtract, 2, options=("alpha",)),
    "aten::rsub": Rule(_subtract_from, 2, options=("alpha",)),
    "aten::mul": Rule(Scalars.multiply, 2),
    "aten::div": Rule(_divide, 2, "INT_TO_FLOAT", ("rounding_mode",)),
    "aten::remainder": Rule(_remainder, 2),
    "aten::fmod": Rule(_truncated_remainder, 2),
    "aten::neg": Rule(Scalars.negate, 1),
    "aten::abs": Rule(Scalars.magnitude, 1),
    "aten::sign": Rule(_sign, 1),
    "aten::reciprocal": Rule(Scalars.reciprocal, 1, "INT_TO_FLOAT"),
    "aten::sigmoid": Rule(Scalars.logistic, 1, "INT_TO_FLOAT"),
    "aten::relu": Rule(_relu, 1),
    "aten::pow.Tensor_Scalar": Rule(Scalars.power, 1, options=("exponent",)),
    "aten::pow.Tensor_Tensor": _binary(math.PowFOp),
    "aten::clamp": Rule(_clamp, 1, options=("min", "max")),
    "aten::clamp_min": Rule(Scalars.largest, 2),
    "aten::clamp_max": Rule(Scalars.smallest, 2),
    "aten::maximum": Rule(Scalars.largest, 2),
    "aten::minimum": Rule(Scalars.smallest, 2),
    "aten::addcmul": Rule(_addcmul, 3, options=("value",)),
    "aten::addcdiv": Rule(_addcdiv, 3, "INT_TO_FLOAT", ("value",)),
    "aten::lerp": Rule(_lerp, 3),
    "aten::where": Rule(_where, 3),
    "aten::logical_not": Rule(_not, 1, "BOOL"),
    "aten::logical_and": _binary(arith.AndIOp, "BOOL"),
    "aten::logical_or": _binary(arith.OrIOp, "BOOL"),
    "aten::bitwise_not": Rule(_not, 1),
    "aten::bitwise_and": _binary(arith.AndIOp),
    "aten::bitwise_or": _binary(arith.OrIOp),
    "aten::bitwise_xor": _binary(arith.XOrIOp),
    "aten::floor": _rounding(math.FloorOp),
    "aten::ceil": _rounding(math.CeilOp),
    "aten::round": _rounding(math.RoundEvenOp),
    "aten::trunc": _rounding(math.TruncOp),
    **{f"aten::{name}": _compare(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{
        f"aten::{name}": _unary(make)
        for name, make in {
            "exp": math.ExpOp,
            "exp2": math.Exp2Op,
            "expm1": math.ExpM1Op,
            "log": math.LogOp,
            "log2": math.Log2Op,
            "log10": math.Log10Op,
            "log1p": math.Log1pOp,
            "erf": math.ErfOp,
            "tanh": math.TanhOp,
            "sqrt": math.SqrtOp,
            "rsqrt": math.RsqrtOp,
            "sin": math.SinOp,
            "cos": math.CosOp,
            "tan": math.TanOp,
            "atan": math.AtanOp,
        }.items()
    },
}
"""By the operator's name, with its overload where overloads differ."""

BOOL_CONDITION: Final = frozenset({"aten::where"})
"""Operators whose first operand is a truth value and has no part in promotion."""

CASTS: Final = frozenset({"aten::_to_copy", "prims::convert_element_type"})


def full_name(target: Any) -> str:
    """`aten::add.Tensor` of an operator's overload, the name of a plain function."""
    name = getattr(target, "name", None)
    return str(name()) if callable(name) else str(getattr(target, "__name__", ""))


def name_of(target: Any) -> str:
    """`aten::add` of an operator's overload, "" for what is no operator."""
    return full_name(target).split(".")[0]


def rule_of(target: Any) -> Rule | None:
    """The rule of an operator's overload, None where it is not elementwise."""
    full = full_name(target)
    return RULES.get(full) or RULES.get(full.split(".")[0])


def is_elementwise(target: Any) -> bool:
    """Whether each element of the result is computed from one element of each operand."""
    return rule_of(target) is not None or name_of(target) in CASTS
