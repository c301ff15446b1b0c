"""Elementary functions in f64 from adds, multiplies, fma and a few divisions, at most 2 units in the last place off.

Exponentials reduce by ln 2 to |r| <= ln 2 / 2, logarithms to s = (m - 1) / (m + 1) with |s| <= 0.172, sines by pi / 2; what is left are
the functions' own power series, as long as their terms reach 2^-56. erf beyond 1 is 1 - exp(-x^2) G(t), G a fit. Where the last bit would
suffer (powers, reductions) values are sums of two f64. `sin`, `cos` and `tan` are defined for |x| < 2^30 and NaN beyond.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, TypeAlias

from treadle.codegen.llvm_text import F64, I32, I64, Builder, Value, floating, i32, i64
from treadle.targets.simt.polynomials import SCALED_ERFC, polynomial

Pair: TypeAlias = tuple[Value, Value]
"""A number as the sum of two f64, the second below half a unit in the last place of the first."""

_INF: Final = math.inf
_LOG2E, _LN2, _LN2_REST = 1.4426950408889634, 0.6931471805599453, 2.3190468138462996e-17
# ln 2 with 12 zero bits at the end, so that its products with exponents are exact, and the rest.
_LN2_HIGH, _LN2_LOW = 0.693147180559663, 2.8235290563031577e-13
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_MAGIC = 1.5 * 2.0**52  # adding it rounds to an integer, which is then the low bits
_LARGEST_ANGLE = 2.0**30
_TWO_THIRDS, _TWO_THIRDS_REST = 0.6666666666666666, 3.700743415417188e-17


def _series(terms: int, term: Callable[[int], Fraction]) -> list[float]:
    return [float(term(k)) for k in range(terms)]


_EXP = _series(12, lambda k: Fraction(1, math.factorial(k + 2)))  # e^r = 1 + r + r^2 (..)
_SIN = _series(8, lambda k: Fraction((-1) ** (k + 1), math.factorial(2 * k + 3)))  # sin r = r + r^3 (..)
_COS = _series(7, lambda k: Fraction((-1) ** k, math.factorial(2 * k + 4)))  # cos r = 1 - r^2 / 2 + r^4 (..)
_LOG = _series(10, lambda k: Fraction(2, 2 * k + 5))  # log m = 2 s + 2/3 s^3 + s^5 (..)
_ERF = [2 / math.sqrt(math.pi) * c for c in _series(20, lambda k: Fraction((-1) ** k, math.factorial(k) * (2 * k + 1)))]


def _d(value: float) -> Value:
    return floating(F64, value)


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.math("llvm.fma", [x, y, z], "")


def _add(b: Builder, *terms: Value) -> Value:
    total = terms[0]
    for term in terms[1:]:
        total = b.fadd(total, term, "")
    return total


def _mul(b: Builder, x: Value, y: Value) -> Value:
    return b.fmul(x, y, "")


def _abs(b: Builder, x: Value) -> Value:
    return b.math("llvm.fabs", [x], "")


def _copysign(b: Builder, x: Value, sign: Value) -> Value:
    return b.math("llvm.copysign", [x, sign], "")


def _sum(b: Builder, large: Value, small: Value) -> Pair:
    """`large + small` exactly, for |large| >= |small|."""
    high = b.fadd(large, small, "")
    return high, b.fadd(b.fsub(large, high, ""), small, "")


def _product(b: Builder, x: Value, y: Value) -> Pair:
    """`x * y` exactly."""
    high = _mul(b, x, y)
    return high, _fma(b, x, y, b.fneg(high, ""))


def _round(b: Builder, x: Value) -> Pair:
    """The nearest integer of a number below 2^50 in magnitude, as f64 and i64."""
    shifted = b.fadd(x, _d(_MAGIC), "")
    return b.fsub(shifted, _d(_MAGIC), ""), b.sub(b.bitcast(shifted, I64), b.bitcast(_d(_MAGIC), I64))


def _power_of_two(b: Builder, exponent: Value) -> Value:
    return b.bitcast(b.shl(b.add(exponent, i64(1023)), i64(52)), F64)


def _scaled(b: Builder, x: Value, exponent: Value) -> Value:
    """X * 2^exponent, in two steps so that results near the ends of the range come out right."""
    half = b.ashr(exponent, i64(1))
    return _mul(b, _mul(b, x, _power_of_two(b, half)), _power_of_two(b, b.sub(exponent, half)))


def _clamped(b: Builder, x: Value, low: float, high: float) -> Value:
    """Between two bounds; NaN stays."""
    x = b.select(b.fcmp("ogt", x, _d(high)), _d(high), x)
    return b.select(b.fcmp("olt", x, _d(low)), _d(low), x)


def _exp_minus_one(b: Builder, r: Value) -> Value:
    """e^r - 1 for |r| <= ln 2 / 2."""
    return _fma(b, _mul(b, r, r), polynomial(b, r, _EXP), r)


def _reduced(b: Builder, x: Value) -> tuple[Value, Value]:
    """`(r, n)`: x = n ln 2 + r."""
    whole, exponent = _round(b, _mul(b, x, _d(_LOG2E)))
    return _fma(b, whole, _d(-_LN2_REST), _fma(b, whole, _d(-_LN2), x)), exponent


def _exp_of_pair(b: Builder, x: Value, rest: Value) -> Value:
    r, exponent = _reduced(b, _clamped(b, x, -746.0, 710.0))
    return _scaled(b, b.fadd(_exp_minus_one(b, b.fadd(r, rest, "")), _d(1.0), ""), exponent)


def exp(b: Builder, x: Value) -> Value:
    """e^x."""
    return _exp_of_pair(b, x, _d(0.0))


def exp2(b: Builder, x: Value) -> Value:
    """2^x."""
    limited = _clamped(b, x, -1076.0, 1025.0)
    whole, exponent = _round(b, limited)
    power, rest = _product(b, b.fsub(limited, whole, ""), _d(_LN2))
    return _scaled(b, b.fadd(_exp_minus_one(b, b.fadd(power, rest, "")), _d(1.0), ""), exponent)


def expm1(b: Builder, x: Value) -> Value:
    """e^x - 1."""
    r, exponent = _reduced(b, _clamped(b, x, -1.5, 1.5))
    scale = _power_of_two(b, exponent)
    small = _fma(b, scale, _exp_minus_one(b, r), b.fsub(scale, _d(1.0), ""))
    is_small = b.fcmp("olt", _abs(b, x), _d(1.0))
    found = b.select(is_small, small, b.fsub(exp(b, x), _d(1.0), ""))
    return b.select(b.fcmp("oeq", x, _d(0.0)), x, found)


def _log_parts(b: Builder, x: Value) -> tuple[Pair, Value, Value]:
    """`(s, s rest), s^2, exponent` of positive finite x: log x = exponent ln 2 + 2 atanh(s)."""
    tiny = b.fcmp("olt", x, _d(2.0**-1022))
    bits = b.bitcast(b.select(tiny, _mul(b, x, _d(2.0**54)), x), I64)
    exponent = b.ashr(b.sub(bits, b.bitcast(_d(math.sqrt(0.5)), I64)), i64(52))
    f = b.fsub(b.bitcast(b.sub(bits, b.shl(exponent, i64(52))), F64), _d(1.0), "")
    divisor, divisor_rest = _sum(b, _d(2.0), f)
    inverse = b.fdiv(_d(1.0), divisor, "")
    near = _mul(b, f, inverse)
    s = _fma(b, _fma(b, b.fneg(near, ""), divisor, f), inverse, near)
    left = _fma(b, b.fneg(s, ""), divisor_rest, _fma(b, b.fneg(s, ""), divisor, f))
    e = b.sitofp(b.sub(b.trunc(exponent, I32), b.select(tiny, i32(54), i32(0))), F64)
    return (s, _mul(b, left, inverse)), _mul(b, s, s), e


def _log_pair(b: Builder, x: Value) -> Pair:
    """Logarithm of positive finite x, good to 2^-62."""
    (s, s_rest), square, e = _log_parts(b, x)
    high, low = _sum(b, _mul(b, e, _d(_LN2_HIGH)), _mul(b, s, _d(2.0)))
    square_rest = _fma(b, _mul(b, s, _d(2.0)), s_rest, _fma(b, s, s, b.fneg(square, "")))
    cube, cube_rest = _product(b, s, square)
    cube_rest = _add(b, cube_rest, _mul(b, s, square_rest), _mul(b, s_rest, square))
    third, third_rest = _product(b, _d(_TWO_THIRDS), cube)
    third_rest = _fma(b, _d(_TWO_THIRDS), cube_rest, _fma(b, _d(_TWO_THIRDS_REST), cube, third_rest))
    high, middle = _sum(b, high, third)
    tail = _fma(b, _mul(b, cube, square), polynomial(b, square, _LOG), _mul(b, e, _d(_LN2_LOW)))
    return _sum(b, high, _add(b, tail, third_rest, _mul(b, s_rest, _d(2.0)), low, middle))


def _special_log(b: Builder, x: Value, result: Value) -> Value:
    result = b.select(b.fcmp("oeq", x, _d(_INF)), x, result)
    result = b.select(b.fcmp("oeq", x, _d(0.0)), _d(-_INF), result)
    result = b.select(b.fcmp("olt", x, _d(0.0)), _d(math.nan), result)
    return b.select(b.fcmp("uno", x, x), x, result)


def log(b: Builder, x: Value) -> Value:
    """Natural logarithm."""
    (s, s_rest), square, e = _log_parts(b, x)
    high, low = _sum(b, _mul(b, e, _d(_LN2_HIGH)), _mul(b, s, _d(2.0)))
    curve = _mul(b, _mul(b, s, square), polynomial(b, square, [_TWO_THIRDS, *_LOG]))
    tail = _add(b, _fma(b, e, _d(_LN2_LOW), curve), _mul(b, s_rest, _d(2.0)), low)
    return _special_log(b, x, b.fadd(high, tail, ""))


def _scaled_log(factor: float, rest: float) -> "Function":
    def function(b: Builder, x: Value) -> Value:
        high, low = _log_pair(b, x)
        product, product_rest = _product(b, high, _d(factor))
        tail = _fma(b, high, _d(rest), _fma(b, low, _d(factor), product_rest))
        return _special_log(b, x, b.fadd(product, tail, ""))

    return function


def log1p(b: Builder, x: Value) -> Value:
    """log(1 + x): what rounding 1 + x lost is added back to first order."""
    u = b.fadd(x, _d(1.0), "")
    is_large = b.fcmp("ogt", x, _d(1.0))
    lost = b.select(is_large, b.fsub(_d(1.0), b.fsub(u, x, ""), ""), b.fsub(x, b.fsub(u, _d(1.0), ""), ""))
    corrected = b.fadd(log(b, u), b.fdiv(lost, u, ""), "")
    result = b.select(b.fcmp("oeq", u, _d(_INF)), u, corrected)
    result = b.select(b.fcmp("oeq", u, _d(0.0)), _d(-_INF), result)
    return b.select(b.fcmp("olt", _abs(b, x), _d(2.0**-54)), x, result)


def tanh(b: Builder, x: Value) -> Value:
    """Hyperbolic tangent, from e^2|x| - 1 up to 0.55 and from e^2|x| beyond."""
    size = _abs(b, x)
    twice = _mul(b, size, _d(2.0))
    grown = expm1(b, _clamped(b, twice, 0.0, 1.5))
    small = b.fdiv(grown, b.fadd(grown, _d(2.0), ""), "")
    large = b.fsub(_d(1.0), b.fdiv(_d(2.0), b.fadd(exp(b, twice), _d(1.0), ""), ""), "")
    # 2|x| itself where it is below the normal range, and NaN.
    return _copysign(b, b.select(b.fcmp("ult", size, _d(0.499)), small, large), x)


def erf(b: Builder, x: Value) -> Value:
    """Error function: its series below 1, 1 - exp(-x^2) G((x - 3) / (x + 3)) above."""
    size = _abs(b, x)
    small = _mul(b, x, polynomial(b, _mul(b, x, x), _ERF))
    limited = b.select(b.fcmp("olt", size, _d(1.0)), _d(1.0), _clamped(b, size, 0.0, 6.0))
    square, rest = _product(b, limited, limited)
    t = b.fdiv(b.fsub(limited, _d(3.0), ""), b.fadd(limited, _d(3.0), ""), "")
    tail = _mul(b, _exp_of_pair(b, b.fneg(square, ""), b.fneg(rest, "")), polynomial(b, t, SCALED_ERFC))
    large = _copysign(b, b.fsub(_d(1.0), tail, ""), x)
    return b.select(b.fcmp("olt", size, _d(1.0)), small, large)


def _quadrant(b: Builder, x: Value) -> tuple[Pair, Value]:
    """`((r, r rest), k)`: x = k pi/2 + r with |r| <= pi/4."""
    whole, k = _round(b, _mul(b, x, _d(2 / math.pi)))
    first = _fma(b, whole, _d(-_HALF_PI[0]), x)  # exact
    second, second_rest = _product(b, whole, _d(-_HALF_PI[1]))
    total = b.fadd(first, second, "")
    part = b.fsub(total, first, "")
    lost = b.fadd(b.fsub(first, b.fsub(total, part, ""), ""), b.fsub(second, part, ""), "")
    rest = _fma(b, whole, _d(-_HALF_PI[2]), b.fadd(lost, second_rest, ""))
    return _sum(b, total, rest), b.trunc(k, I32)


def _sine(shift: int) -> "Function":
    def function(b: Builder, x: Value) -> Value:
        (r, rest), k = _quadrant(b, x)
        k = b.add(k, i32(shift))
        square = _mul(b, r, r)
        sine = b.fadd(r, _fma(b, _mul(b, r, square), polynomial(b, square, _SIN), rest), "")
        half, half_rest = _sum(b, _d(1.0), _mul(b, square, _d(-0.5)))
        tail = _fma(b, _mul(b, square, square), polynomial(b, square, _COS), _fma(b, b.fneg(r, ""), rest, half_rest))
        cosine = b.fadd(half, tail, "")
        value = b.select(b.icmp("ne", b.and_(k, i32(1)), i32(0)), cosine, sine)
        flipped = b.select(b.icmp("ne", b.and_(k, i32(2)), i32(0)), b.fneg(value, ""), value)
        inside = b.fcmp("olt", _abs(b, x), _d(_LARGEST_ANGLE))
        result = b.select(inside, flipped, _d(math.nan))
        return result if shift else b.select(b.fcmp("oeq", x, _d(0.0)), x, result)

    return function


def tan(b: Builder, x: Value) -> Value:
    """Tangent."""
    return b.fdiv(_sine(0)(b, x), _sine(1)(b, x), "")


def rsqrt(b: Builder, x: Value) -> Value:
    """1 / sqrt(x)."""
    return b.fdiv(_d(1.0), b.math("llvm.sqrt", [x], ""), "")


def round_away(b: Builder, x: Value) -> Value:
    """Nearest integer, halves away from zero."""
    whole = b.math("llvm.trunc", [x], "")
    is_up = b.fcmp("oge", _abs(b, b.fsub(x, whole, "")), _d(0.5))
    return _copysign(b, b.select(is_up, b.fadd(whole, _copysign(b, _d(1.0), x), ""), whole), x)


def powf(b: Builder, x: Value, y: Value) -> Value:
    """x^y as e^(y log |x|) in sums of two f64, with the signs and special cases of IEEE 754."""
    size = _abs(b, x)
    high, low = _log_pair(b, size)
    edge = b.or_(b.fcmp("oeq", size, _d(0.0)), b.fcmp("oeq", size, _d(_INF)))
    high = b.select(edge, b.select(b.fcmp("oeq", size, _d(0.0)), _d(-_INF), _d(_INF)), high)
    product = _mul(b, y, high)
    product = b.select(b.fcmp("oeq", high, _d(0.0)), _d(0.0), product)  # 1^inf
    product = b.select(b.fcmp("uno", y, size), _d(math.nan), product)
    rest = _fma(b, y, low, _fma(b, y, high, b.fneg(product, "")))
    near = b.and_(b.fcmp("olt", _abs(b, product), _d(1000.0)), b.fcmp("olt", _abs(b, y), _d(_INF)))
    result = _exp_of_pair(b, product, b.select(near, rest, _d(0.0)))
    is_whole = b.fcmp("oeq", b.math("llvm.floor", [y], ""), y)
    half = _mul(b, y, _d(0.5))
    is_odd = b.and_(is_whole, b.fcmp("une", b.math("llvm.floor", [half], ""), half))
    negative = b.icmp("slt", b.bitcast(x, I64), i64(0))
    result = b.select(b.and_(negative, is_odd), b.fneg(result, ""), result)
    finite_negative = b.and_(b.fcmp("olt", x, _d(0.0)), b.fcmp("ogt", x, _d(-_INF)))
    result = b.select(b.and_(finite_negative, b.not_(is_whole)), _d(math.nan), result)
    is_one = b.or_(b.fcmp("oeq", y, _d(0.0)), b.fcmp("oeq", x, _d(1.0)))
    return b.select(is_one, _d(1.0), result)


Function = Callable[[Builder, Value], Value]

_LOG10E, _LOG10E_REST = 0.4342944819032518, 1.098319650216765e-17
_LOG2E_REST = 2.0355273740931033e-17
_UNARY: dict[str, Function] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": _scaled_log(_LOG2E, _LOG2E_REST),
    "log10": _scaled_log(_LOG10E, _LOG10E_REST),
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "rsqrt": rsqrt,
    "sin": _sine(0),
    "cos": _sine(1),
    "tan": tan,
    "round": round_away,
}


def emit(b: Builder, name: str, args: Sequence[Value]) -> Value | None:
    """A function of f64 by its name in the `math` dialect, or None where there is none."""
    if name == "powf":
        return powf(b, args[0], args[1])
    if name == "fpowi":
        return powf(b, args[0], b.sitofp(args[1], F64))
    return _UNARY[name](b, args[0]) if name in _UNARY else None
