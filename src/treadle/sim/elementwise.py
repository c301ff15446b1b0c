"""Values of `arith` and `math` operations, on NumPy scalars and arrays alike.

One table serves every level. What differs is the NumPy type that holds a scalar type: the exact storage type in the tile interpreter, so
that every operation rounds as the machine's does; float64 for every float in the reference. Floats narrower than 32 bits are computed in
float32 and rounded once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.dialects.mlir_ext.classification import IsFiniteOp, IsInfOp, IsNanOp, IsNormalOp
from treadle.dialects.mlir_ext.shapes import BitcastOp
from treadle.errors import NOT_EXECUTABLE, TreadleError
from treadle.ir.core import Attribute, Operation
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.locations import location_of
from treadle.sim.element_types import Array, DType, element_type, is_float, precision_of, storage_dtype, unsigned
from treadle.sim.special_functions import erf

Formats = Callable[[Attribute], DType]
Function = Callable[..., Any]
Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]
Ternary = Callable[[Any, Any, Any], Any]


def unary(function: Unary) -> Function:
    """A function of one value, as its type says of a lambda."""
    return function


def _signed(function: Binary) -> Binary:
    """An unsigned operation on signless integers: reinterpret, compute, reinterpret back."""

    def apply(a: Array, b: Array) -> Any:
        return np.asarray(function(unsigned(np.asarray(a)), unsigned(np.asarray(b)))).view(np.asarray(a).dtype)

    return apply


def _divide(function: Binary) -> Binary:
    """Integer division; by zero (undefined) it gives zero."""

    def apply(a: Array, b: Array) -> Any:
        safe = np.where(b == 0, np.ones_like(b), b)
        return np.where(b == 0, np.zeros_like(a), function(a, safe))

    return apply


def _truncating_quotient(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype)


def _shift(function: Binary) -> Binary:
    """A shift; by the width or more (undefined) it gives zero."""

    def apply(a: Array, b: Array) -> Any:
        width = np.asarray(a).dtype.itemsize * 8
        inside = unsigned(np.asarray(b)) < width
        return np.where(inside, function(a, np.where(inside, b, np.zeros_like(b))), np.zeros_like(a))

    return apply


def _bool_or(on_bool: Binary, on_int: Binary) -> Binary:
    """i1 arithmetic is modulo 2; NumPy's is logical or refused."""
    return lambda a, b: on_bool(a, b) if np.asarray(a).dtype == np.bool_ else on_int(a, b)


def _signed_order(on_int: Binary, on_bool: Binary) -> Binary:
    """Order of signed integers; the i1 that is true is -1, so NumPy's order of booleans is the wrong way round."""
    return lambda a, b: on_bool(a, b) if np.asarray(a).dtype == np.bool_ else on_int(a, b)


def _count_ones(x: Array) -> Array:
    return np.bitwise_count(unsigned(np.asarray(x))).astype(np.asarray(x).dtype)


def _count_trailing_zeros(x: Array) -> Array:
    x = np.asarray(x)
    return np.bitwise_count(unsigned(np.bitwise_and(np.invert(x), np.subtract(x, np.ones_like(x))))).astype(x.dtype)


def _count_leading_zeros(x: Array) -> Array:
    bits, width = unsigned(np.asarray(x)), np.asarray(x).dtype.itemsize * 8
    shift = 1
    while shift < width:
        bits = bits | (bits >> np.asarray(shift, dtype=bits.dtype))
        shift *= 2
    return (width - np.bitwise_count(bits).astype(np.int64)).astype(np.asarray(x).dtype)


def _reciprocal_root(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _round_half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def by_name(table: dict[type[Operation], Function]) -> dict[str, Function]:
    """A table over operation names."""
    return {kind.name: function for kind, function in table.items()}


_INTEGER: dict[type[Operation], Function] = {
    arith.AddiOp: _bool_or(np.bitwise_xor, np.add),
    arith.SubiOp: _bool_or(np.bitwise_xor, np.subtract),
    arith.MuliOp: _bool_or(np.bitwise_and, np.multiply),
    arith.DivSIOp: _divide(_truncating_quotient),
    arith.DivUIOp: _signed(_divide(np.floor_divide)),
    arith.FloorDivSIOp: _divide(np.floor_divide),
    arith.CeilDivSIOp: _divide(lambda a, b: np.negative(np.floor_divide(np.negative(a), b))),
    arith.CeilDivUIOp: _signed(_divide(lambda a, b: np.floor_divide(a, b) + (np.remainder(a, b) != 0).astype(a.dtype))),
    arith.RemSIOp: _divide(np.fmod),
    arith.RemUIOp: _signed(_divide(np.remainder)),
    arith.MinSIOp: _signed_order(np.minimum, np.logical_or),
    arith.MaxSIOp: _signed_order(np.maximum, np.logical_and),
    arith.MinUIOp: _signed(np.minimum),
    arith.MaxUIOp: _signed(np.maximum),
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
    arith.ShLIOp: _shift(np.left_shift),
    arith.ShRSIOp: _shift(np.right_shift),
    arith.ShRUIOp: _signed(_shift(np.right_shift)),
    math.AbsIOp: np.abs,
    math.CtPopOp: _count_ones,
    math.CountLeadingZerosOp: _count_leading_zeros,
    math.CountTrailingZerosOp: _count_trailing_zeros,
    math.IPowIOp: np.power,
}

_FLOAT: dict[type[Operation], Function] = {
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    arith.RemfOp: np.fmod,
    arith.NegfOp: np.negative,
    arith.MaximumfOp: np.maximum,
    arith.MinimumfOp: np.minimum,
    arith.MaxnumfOp: np.fmax,
    arith.MinnumfOp: np.fmin,
    math.AbsFOp: np.abs,
    math.AcosOp: np.arccos,
    math.AcoshOp: np.arccosh,
    math.AsinOp: np.arcsin,
    math.AsinhOp: np.arcsinh,
    math.AtanOp: np.arctan,
    math.AtanhOp: np.arctanh,
    math.Atan2Op: np.arctan2,
    math.CbrtOp: np.cbrt,
    math.CeilOp: np.ceil,
    math.CopySignOp: np.copysign,
    math.CosOp: np.cos,
    math.CoshOp: np.cosh,
    math.ErfOp: erf,
    math.ExpOp: np.exp,
    math.Exp2Op: np.exp2,
    math.ExpM1Op: np.expm1,
    math.FloorOp: np.floor,
    math.LogOp: np.log,
    math.Log10Op: np.log10,
    math.Log1pOp: np.log1p,
    math.Log2Op: np.log2,
    math.PowFOp: np.power,
    math.RoundOp: _round_half_away,
    math.RoundEvenOp: np.rint,
    math.RsqrtOp: _reciprocal_root,
    math.SinOp: np.sin,
    math.SinhOp: np.sinh,
    math.SqrtOp: np.sqrt,
    math.TanOp: np.tan,
    math.TanhOp: np.tanh,
    math.TruncOp: np.trunc,
}

_CLASS: dict[type[Operation], Function] = {
    IsNanOp: np.isnan,
    IsInfOp: np.isinf,
    IsFiniteOp: np.isfinite,
}

INTEGER, FLOAT, CLASS = by_name(_INTEGER), by_name(_FLOAT), by_name(_CLASS)


def _of_unsigned(function: Binary) -> Binary:
    return lambda a, b: function(unsigned(np.asarray(a)), unsigned(np.asarray(b)))


_CMPI: tuple[Binary, ...] = (
    np.equal,
    np.not_equal,
    _signed_order(np.less, np.greater),
    _signed_order(np.less_equal, np.greater_equal),
    _signed_order(np.greater, np.less),
    _signed_order(np.greater_equal, np.less_equal),
    *(_of_unsigned(f) for f in (np.less, np.less_equal, np.greater, np.greater_equal)),
)


def _is_unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _or_unordered(function: Binary) -> Binary:
    return lambda a, b: function(a, b) | _is_unordered(a, b)


def _differ(a: Array, b: Array) -> Array:
    return (a < b) | (a > b)


def _always(answer: bool) -> Binary:
    return lambda a, b: np.full(np.broadcast(a, b).shape, answer, dtype=np.bool_)


_ORDERED: tuple[Binary, ...] = (np.equal, np.greater, np.greater_equal, np.less, np.less_equal)
_CMPF: tuple[Binary, ...] = (
    _always(False),
    *_ORDERED,
    _differ,
    lambda a, b: ~_is_unordered(a, b),
    *(_or_unordered(f) for f in _ORDERED),
    np.not_equal,
    _is_unordered,
    _always(True),
)


def _to_integer(x: Array, dtype: DType, *, as_unsigned: bool) -> Array:
    """Truncation towards zero; outside the range (undefined) it saturates, NaN gives zero."""
    limits = np.iinfo(np.dtype(f"u{dtype.itemsize}") if as_unsigned else dtype)
    wide = np.nan_to_num(np.trunc(np.asarray(x).astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    middle = np.where((wide >= float(limits.max)) | (wide <= float(limits.min)), 0.0, wide).astype(np.uint64 if as_unsigned else np.int64)
    exact = np.where(wide >= float(limits.max), limits.max, np.where(wide <= float(limits.min), limits.min, middle))
    return np.asarray(exact).astype(limits.dtype).view(dtype)


def _is_normal(element: Attribute) -> Unary:
    smallest = precision_of(storage_dtype(element)).smallest_normal
    return lambda x: np.isfinite(x) & (np.abs(np.asarray(x).astype(np.float64)) >= smallest)


def _cast(op: Operation, formats: Formats) -> Unary | None:
    source, target = element_type(op.operands[0].type), element_type(op.results[0].type)
    dtype = formats(target)
    match op:
        case arith.ExtFOp() | arith.TruncFOp() | arith.SIToFPOp():
            if storage_dtype(source) == np.bool_:
                return lambda x: np.negative(np.asarray(x).astype(np.float32)).astype(dtype)
            return lambda x: np.asarray(x).astype(dtype)
        case arith.UIToFPOp():
            return lambda x: unsigned(np.asarray(x)).astype(dtype)
        case arith.ExtSIOp():
            if storage_dtype(source) == np.bool_:
                return lambda x: np.negative(np.asarray(x).astype(dtype))
            return lambda x: np.asarray(x).astype(dtype)
        case arith.ExtUIOp():
            return lambda x: unsigned(np.asarray(x)).astype(dtype)
        case arith.TruncIOp() if dtype == np.bool_:
            return lambda x: (np.asarray(x) & 1).astype(dtype)
        case arith.IndexCastUIOp():
            return lambda x: unsigned(np.asarray(x)).astype(dtype)
        case arith.TruncIOp() | arith.IndexCastOp():
            return lambda x: np.asarray(x).astype(dtype)
        case arith.FPToSIOp():
            return lambda x: _to_integer(x, dtype, as_unsigned=False)
        case arith.FPToUIOp():
            return lambda x: _to_integer(x, dtype, as_unsigned=True)
        case arith.BitcastOp() | BitcastOp():
            stored, wanted = storage_dtype(source), storage_dtype(target)
            return lambda x: np.ascontiguousarray(np.asarray(x).astype(stored)).view(wanted).astype(dtype).reshape(np.shape(x))
        case _:
            return None


def constant_value(op: arith.ConstantOp, formats: Formats) -> Array:
    """The value of a constant, rounded to its declared type; 0-d for scalars."""
    return attribute_value(op.value, formats)


def attribute_value(value: Attribute, formats: Formats) -> Array:
    """The value of an integer, float or dense attribute, rounded to its declared type."""
    given: Any = value  # the element types of these attributes are free parameters
    if isinstance(value, builtin.DenseIntOrFPElementsAttr):
        scalar, raw, shape = given.get_element_type(), list(given.get_values()), given.get_shape()
    elif isinstance(value, builtin.IntegerAttr | builtin.FloatAttr):
        scalar, raw, shape = given.type, [given.value.data], ()
    else:
        raise TreadleError(NOT_EXECUTABLE, name="arith.constant", reason=f"its value {value} is not dense")
    stored = storage_dtype(scalar)
    if is_float(scalar):
        exact = np.array(raw, dtype=np.float64).astype(stored)
    else:
        mask = (1 << (stored.itemsize * 8)) - 1
        exact = np.array([int(v) & mask for v in raw], dtype=f"u{stored.itemsize}").astype(stored)
    return np.broadcast_to(exact.reshape(() if exact.size == 1 else shape), shape).astype(formats(scalar))


def _in_format(function: Function, dtype: DType) -> Function:
    """Compute in float32 at least, round once to `dtype`."""
    if dtype.kind == "f" and dtype.itemsize >= 4:
        return lambda *args: np.asarray(function(*args)).astype(dtype, copy=False)
    return lambda *args: np.asarray(function(*(np.asarray(a).astype(np.float32) for a in args))).astype(dtype)


def _integer_power(x: Array, n: Array) -> Array:
    return np.power(x, np.asarray(n).astype(np.asarray(x).dtype))


def _fused_multiply_add(dtype: DType) -> Ternary:
    """The product of two f32 is exact in f64, that of two f16 in f32: one rounding, nearly always."""
    wide = np.float32 if dtype.itemsize < 4 else np.float64
    return lambda a, b, c: np.asarray(np.asarray(a).astype(wide) * np.asarray(b).astype(wide) + c).astype(dtype)


def _not_executable(op: Operation, reason: str) -> TreadleError:
    return TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason=reason)


def elementwise_function(op: Operation, formats: Formats) -> Function | None:
    """What computes the single result of an `arith` or `math` operation from its operands' values; None for other operations."""
    if isinstance(op, arith.ConstantOp):
        value = constant_value(op, formats)
        return lambda: value
    if not op.name.startswith(("arith.", "math.")) and not isinstance(op, BitcastOp):
        return None
    if len(op.results) != 1:
        raise _not_executable(op, "it has several results")
    dtype = formats(element_type(op.results[0].type))
    if op.name in INTEGER:
        return INTEGER[op.name]
    if op.name in FLOAT:
        return _in_format(FLOAT[op.name], dtype)
    if op.name in CLASS:
        return CLASS[op.name]
    if isinstance(op, IsNormalOp):
        return _is_normal(element_type(op.operand.type))
    if isinstance(op, math.FmaOp):
        return _fused_multiply_add(dtype)
    if isinstance(op, math.FPowIOp):
        return _in_format(_integer_power, dtype)
    if isinstance(op, arith.CmpiOp):
        return _CMPI[op.predicate.value.data]
    if isinstance(op, arith.CmpfOp):
        return _CMPF[op.predicate.value.data]
    if isinstance(op, arith.SelectOp):
        return np.where
    if (cast := _cast(op, formats)) is not None:
        return cast
    raise _not_executable(op, "it has no definition here")
