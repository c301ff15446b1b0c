"""Elementary functions in f32 (errors of a few units in the last place, NaN and infinities right), from adds, multiplies and fma.

`powf`, `sin` and `cos` compute in f64 where f32 would lose digits;
`sin` and `cos` are accurate for |x| < 2^30. A machine's own exp2, rsqrt and so on are used where the hooks give them.
"""

import math
from collections.abc import Callable, Sequence

from treadle.codegen.llvm_text import F32, F64, I32, I64, Builder, Value, floating, i32, i64
from treadle.dialects.precision import EXACT
from treadle.errors import InternalError
from treadle.targets.simt import approximations
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.polynomials import COS, ERF, EXP2, EXPM1, LOG, LOG_ERFC, SIN, TANH, polynomial
from treadle.targets.simt.sign_bits import copy_sign

_INF = math.inf
_LOG2E = 1.4426950408889634
_LN2 = 0.6931471805599453
# ln 2 in two parts: the first has few bits, so that its products with small integers are exact in f32.
_LN2_HIGH = 0.693145751953125
_LN2_LOW = _LN2 - _LN2_HIGH
_MAGIC_F32 = 1.5 * 2.0**23  # adding it rounds to an integer, which is then the low bits
_MAGIC_F64 = 1.5 * 2.0**52


def _f(value: float) -> Value:
    return floating(F32, value)


def _d(value: float) -> Value:
    return floating(F64, value)


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.math("llvm.fma", [x, y, z], "")


def _clamp(b: Builder, x: Value, low: float, high: float) -> Value:
    """Between two bounds; NaN stays."""
    top, bottom = floating(x.type, high), floating(x.type, low)
    x = b.select(b.fcmp("ogt", x, top), top, x)
    return b.select(b.fcmp("olt", x, bottom), bottom, x)


def _abs(b: Builder, x: Value) -> Value:
    return b.math("llvm.fabs", [x], "")


def _round(b: Builder, x: Value) -> tuple[Value, Value]:
    """The nearest integer of a float below 2^22 in magnitude, as float and i32."""
    shifted = b.fadd(x, _f(_MAGIC_F32), "")
    return b.fsub(shifted, _f(_MAGIC_F32), ""), b.sub(b.bitcast(shifted, I32), b.bitcast(_f(_MAGIC_F32), I32))


def _power_of_two(b: Builder, exponent: Value) -> Value:
    return b.bitcast(b.shl(b.add(exponent, i32(127)), i32(23)), F32)


def _scale(b: Builder, x: Value, exponent: Value) -> Value:
    """X * 2^exponent, in two steps so that results near the ends of the range come out right."""
    half = b.ashr(exponent, i32(1))
    return b.fmul(b.fmul(x, _power_of_two(b, half), ""), _power_of_two(b, b.sub(exponent, half)), "")


def _exp2_small(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """2^x for |x| <= 1/2."""
    return hooks.math(b, "exp2", [x]) or polynomial(b, x, EXP2)


def exp2(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """2^x."""
    native = hooks.math(b, "exp2", [x])
    if native is not None:
        return native
    x = _clamp(b, x, -160.0, 140.0)
    whole, exponent = _round(b, x)
    return _scale(b, polynomial(b, b.fsub(x, whole, ""), EXP2), exponent)


def exp(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """e^x: 2^k e^r with |r| <= ln 2 / 2."""
    x = _clamp(b, x, -108.0, 90.0)
    whole, exponent = _round(b, b.fmul(x, _f(_LOG2E), ""))
    rest = _fma(b, whole, _f(-_LN2_HIGH), x)
    rest = _fma(b, whole, _f(-_LN2_LOW), rest)
    return _scale(b, _exp2_small(b, hooks, b.fmul(rest, _f(_LOG2E), "")), exponent)


def expm1(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """e^x - 1."""
    square = b.fmul(x, x, "")
    cubic = _fma(b, b.fmul(square, x, ""), polynomial(b, x, EXPM1), b.fmul(square, _f(0.5), ""))
    small = b.fadd(x, cubic, "")
    large = b.fsub(exp(b, hooks, x), _f(1.0), "")
    is_small = b.fcmp("olt", _abs(b, x), _f(0.6))
    # -0 must stay: the polynomial keeps it, since every other term is of higher order and +0.
    return b.select(b.fcmp("oeq", x, _f(0.0)), x, b.select(is_small, small, large))


def _split(b: Builder, x: Value) -> tuple[Value, Value]:
    """`(m - 1, exponent)` of positive finite x = m 2^exponent, sqrt(1/2) <= m < sqrt(2)."""
    tiny = b.fcmp("olt", x, _f(2.0**-126))
    bits = b.bitcast(b.select(tiny, b.fmul(x, _f(2.0**24), ""), x), I32)
    shifted = b.sub(bits, b.bitcast(_f(math.sqrt(0.5)), I32))
    exponent = b.ashr(shifted, i32(23))
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, i32(23))), F32)
    return b.fsub(mantissa, _f(1.0), ""), b.sub(exponent, b.select(tiny, i32(24), i32(0)))


def _log_of_split(b: Builder, f: Value) -> Value:
    """log(1 + f) for sqrt(1/2) - 1 <= f < sqrt(2) - 1."""
    square = b.fmul(f, f, "")
    tail = _fma(b, b.fmul(square, f, ""), polynomial(b, f, LOG), b.fmul(square, _f(-0.5), ""))
    return b.fadd(f, tail, "")


def _special_log(b: Builder, x: Value, result: Value) -> Value:
    result = b.select(b.fcmp("oeq", x, _f(_INF)), x, result)
    result = b.select(b.fcmp("oeq", x, _f(0.0)), _f(-_INF), result)
    result = b.select(b.fcmp("olt", x, _f(0.0)), _f(math.nan), result)
    return b.select(b.fcmp("uno", x, x), x, result)


def log(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Natural logarithm."""
    _ = hooks
    f, exponent = _split(b, x)
    e = b.sitofp(exponent, F32)
    square = b.fmul(f, f, "")
    tail = _fma(b, b.fmul(square, f, ""), polynomial(b, f, LOG), _fma(b, e, _f(_LN2_LOW), b.fmul(square, _f(-0.5), "")))
    result = _fma(b, e, _f(_LN2_HIGH), b.fadd(f, tail, ""))
    return _special_log(b, x, result)


def _scaled_log(factor: float, per_exponent: float) -> "Function":
    def function(b: Builder, hooks: SimtHooks, x: Value) -> Value:
        _ = hooks
        f, exponent = _split(b, x)
        result = _fma(b, b.sitofp(exponent, F32), _f(per_exponent), b.fmul(_log_of_split(b, f), _f(factor), ""))
        return _special_log(b, x, result)

    return function


def log1p(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """log(1 + x): what rounding 1 + x lost is added back to first order."""
    u = b.fadd(x, _f(1.0), "")
    # The part of x (or of 1, whichever is smaller) that u does not hold.
    is_large = b.fcmp("ogt", x, _f(1.0))
    lost = b.select(is_large, b.fsub(_f(1.0), b.fsub(u, x, ""), ""), b.fsub(x, b.fsub(u, _f(1.0), ""), ""))
    corrected = b.fadd(log(b, hooks, u), b.fdiv(lost, u, ""), "")
    result = b.select(b.fcmp("oeq", u, _f(_INF)), u, corrected)
    result = b.select(b.fcmp("oeq", u, _f(0.0)), _f(-_INF), result)
    return b.select(b.fcmp("olt", _abs(b, x), _f(2.0**-25)), x, result)


def tanh(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Hyperbolic tangent."""
    size = _abs(b, x)
    square = b.fmul(x, x, "")
    small = _fma(b, b.fmul(x, square, ""), polynomial(b, square, TANH), x)
    grown = exp(b, hooks, b.fmul(size, _f(2.0), ""))
    large = b.fsub(_f(1.0), b.fdiv(_f(2.0), b.fadd(grown, _f(1.0), ""), ""), "")
    return copy_sign(b, b.select(b.fcmp("olt", size, _f(0.6)), small, large), x)


def erf(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Error function: x P(x^2) below 1, 1 - exp(Q(x)) above."""
    size = _abs(b, x)
    small = b.fmul(x, polynomial(b, b.fmul(x, x, ""), ERF), "")
    limited = b.select(b.fcmp("ogt", size, _f(4.0)), _f(4.0), size)
    large = b.fsub(_f(1.0), exp(b, hooks, polynomial(b, limited, LOG_ERFC)), "")
    return b.select(b.fcmp("olt", size, _f(1.0)), small, copy_sign(b, large, x))


def sqrt(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Square root."""
    _ = hooks
    return b.math("llvm.sqrt", [x], "")


def rsqrt(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """1 / sqrt(x)."""
    return hooks.math(b, "rsqrt", [x]) or b.fdiv(_f(1.0), sqrt(b, hooks, x), "")


def _quadrant(b: Builder, x: Value) -> tuple[Value, Value]:
    """`(r, k)`: x = k pi/2 + r with |r| <= pi/4, reduced in f64."""
    wide = b.fpext(x, F64)
    shifted = b.fadd(b.fmul(wide, _d(2 / math.pi), ""), _d(_MAGIC_F64), "")
    whole = b.fsub(shifted, _d(_MAGIC_F64), "")
    rest = _fma(b, whole, _d(-math.pi / 2), wide)
    rest = _fma(b, whole, _d(-6.123233995736766e-17), rest)  # what the f64 nearest pi/2 lacks
    return b.fptrunc(rest, F32), b.trunc(b.bitcast(shifted, I64), I32)


def _sine(shift: int) -> "Function":
    def function(b: Builder, hooks: SimtHooks, x: Value) -> Value:
        _ = hooks
        r, k = _quadrant(b, x)
        k = b.add(k, i32(shift))
        square = b.fmul(r, r, "")
        sine = _fma(b, b.fmul(r, square, ""), polynomial(b, square, SIN), r)
        tail = _fma(b, b.fmul(square, square, ""), polynomial(b, square, COS), b.fmul(square, _f(-0.5), ""))
        cosine = b.fadd(_f(1.0), tail, "")
        value = b.select(b.icmp("ne", b.and_(k, i32(1)), i32(0)), cosine, sine)
        flipped = b.select(b.icmp("ne", b.and_(k, i32(2)), i32(0)), b.fneg(value, ""), value)
        return b.select(b.fcmp("oeq", _abs(b, x), _f(_INF)), _f(math.nan), flipped)

    return function


def tan(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Tangent."""
    return b.fdiv(_sine(0)(b, hooks, x), _sine(1)(b, hooks, x), "")


def powf(b: Builder, hooks: SimtHooks, x: Value, y: Value) -> Value:
    """x^y as 2^(y log2 |x|) in f64, with the signs and special cases of IEEE 754."""
    _ = hooks
    size, power = b.fpext(_abs(b, x), F64), b.fpext(y, F64)
    bits = b.bitcast(size, I64)
    shifted = b.sub(bits, b.bitcast(_d(math.sqrt(0.5)), I64))
    exponent = b.ashr(shifted, i64(52))
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, i64(52))), F64)
    s = b.fdiv(b.fsub(mantissa, _d(1.0), ""), b.fadd(mantissa, _d(1.0), ""), "")
    series = polynomial(b, b.fmul(s, s, ""), [2 * _LOG2E / (2 * i + 1) for i in range(8)])
    logarithm = _fma(b, s, series, b.sitofp(b.trunc(exponent, I32), F64))
    logarithm = b.select(b.fcmp("oeq", size, _d(0.0)), _d(-_INF), logarithm)
    logarithm = b.select(b.fcmp("oeq", size, _d(_INF)), _d(_INF), logarithm)
    product = b.fmul(power, logarithm, "")
    product = b.select(b.fcmp("oeq", logarithm, _d(0.0)), b.fmul(logarithm, _d(0.0), ""), product)  # 1^inf
    product = b.select(b.fcmp("uno", power, size), _d(math.nan), product)
    product = _clamp(b, product, -400.0, 400.0)
    rounded = b.fadd(product, _d(_MAGIC_F64), "")
    rest = b.fsub(product, b.fsub(rounded, _d(_MAGIC_F64), ""), "")
    value = polynomial(b, rest, [_LN2**i / math.factorial(i) for i in range(12)])
    whole = b.sub(b.bitcast(rounded, I64), b.bitcast(_d(_MAGIC_F64), I64))
    scale = b.bitcast(b.shl(b.add(whole, i64(1023)), i64(52)), F64)
    result = b.fptrunc(b.fmul(value, scale, ""), F32)
    is_whole = b.fcmp("oeq", b.math("llvm.floor", [y], ""), y)
    half = b.fmul(y, _f(0.5), "")
    is_odd = b.and_(is_whole, b.fcmp("une", b.math("llvm.floor", [half], ""), half))
    negative = b.icmp("slt", b.bitcast(x, I32), i32(0))
    result = b.select(b.and_(negative, is_odd), b.fneg(result, ""), result)
    finite_negative = b.and_(b.fcmp("olt", x, _f(0.0)), b.fcmp("ogt", x, _f(-_INF)))
    result = b.select(b.and_(finite_negative, b.not_(is_whole)), _f(math.nan), result)
    is_one = b.or_(b.fcmp("oeq", y, _f(0.0)), b.fcmp("oeq", x, _f(1.0)))
    return b.select(is_one, _f(1.0), result)


def round_away(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Nearest integer, halves away from zero."""
    _ = hooks
    whole = b.math("llvm.trunc", [x], "")
    step = copy_sign(b, _f(1.0), x)
    is_up = b.fcmp("oge", _abs(b, b.fsub(x, whole, "")), _f(0.5))
    return copy_sign(b, b.select(is_up, b.fadd(whole, step, ""), whole), x)


Function = Callable[[Builder, SimtHooks, Value], Value]

_UNARY: dict[str, Function] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": _scaled_log(_LOG2E, 1.0),
    "log10": _scaled_log(1 / math.log(10), math.log10(2)),
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "rsqrt": rsqrt,
    "sin": _sine(0),
    "cos": _sine(1),
    "tan": tan,
    "round": round_away,
}

NAMES = (*_UNARY, "powf")


def emit(b: Builder, hooks: SimtHooks, name: str, args: Sequence[Value], bits: int = EXACT, *, may_flush: bool = False) -> Value:
    """A function of f32 by its name in the `math` dialect; raises InternalError for an unknown one.

    `bits`, `may_flush`: what `approximations.emit` makes use of.
    """
    if name == "powf":
        return powf(b, hooks, args[0], args[1])
    if name not in _UNARY:
        raise InternalError(f"math.{name} has no code")
    return approximations.emit(b, hooks, name, args[0], bits, may_flush=may_flush) or _UNARY[name](b, hooks, args[0])
