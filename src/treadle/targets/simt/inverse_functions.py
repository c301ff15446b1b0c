"""Inverse trigonometric, hyperbolic and inverse hyperbolic functions and the cube root in f32, to a few units in the last place.

Polynomials are near-minimax fits (Chebyshev) made for these intervals; the rest comes from `math_functions`.
"""

import math
from collections.abc import Sequence

from treadle.codegen.llvm_text import F32, I32, Builder, Value, floating, i32
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.math_functions import Function, exp, expm1, log, log1p
from treadle.targets.simt.sign_bits import copy_sign

# (atan(x) - x) / x^3 for x in [0, 1] and (asin(x) - x) / x^3 for x in [0, 1/2], in x^2.
_ATAN = (
    -0.333333332988,
    0.199999913346,
    -0.14285351959,
    0.111051322717,
    -0.0903945688878,
    0.0742747315306,
    -0.0578308657558,
    0.0386384730621,
    -0.0195227854751,
    0.00632931350362,
    -0.000960518316106,
)
_ASIN = (0.16666666317, 0.0750009874682, 0.0445980357936, 0.0311161238493, 0.0170779897383, 0.0338055586757)
_HALF_PI_LOW = -4.371139000186241e-08  # pi/2 less the f32 nearest to it
_LN2 = math.log(2)


def _f(value: float) -> Value:
    return floating(F32, value)


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.math("llvm.fma", [x, y, z], "")


def _abs(b: Builder, x: Value) -> Value:
    return b.math("llvm.fabs", [x], "")


def _root(b: Builder, x: Value) -> Value:
    return b.math("llvm.sqrt", [x], "")


def _odd(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """`x + x^3 P(x^2)`."""
    square = b.fmul(x, x, "")
    tail = _f(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        tail = _fma(b, tail, square, _f(c))
    return _fma(b, b.fmul(x, square, ""), tail, x)


def _less(b: Builder, turns: float, x: Value) -> Value:
    """`turns * pi/2 - x`, with pi/2 in two parts."""
    return b.fsub(_f(turns * math.pi / 2), b.fsub(x, _f(turns * _HALF_PI_LOW), ""), "")


def atan(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Arc tangent."""
    _ = hooks
    size = _abs(b, x)
    is_steep = b.fcmp("ogt", size, _f(1.0))
    angle = _odd(b, b.select(is_steep, b.fdiv(_f(1.0), size, ""), size), _ATAN)
    return copy_sign(b, b.select(is_steep, _less(b, 1, angle), angle), x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (x, y) in (-pi, pi], with the zeros and infinities of C."""
    width, height = _abs(b, x), _abs(b, y)
    is_steep = b.fcmp("ogt", height, width)
    low, high = b.select(is_steep, width, height), b.select(is_steep, height, width)
    # A quotient of subnormal numbers would be wrong where a machine flushes them; one of infinities is none.
    tiny = b.fcmp("olt", high, _f(2.0**-100))
    low, high = (b.select(tiny, b.fmul(v, _f(2.0**64), ""), v) for v in (low, high))
    quotient = b.select(b.fcmp("oeq", low, high), _f(1.0), b.fdiv(low, high, ""))
    quotient = b.select(b.fcmp("oeq", low, _f(0.0)), _f(0.0), quotient)
    angle = _odd(b, quotient, _ATAN)
    angle = b.select(is_steep, _less(b, 1, angle), angle)
    angle = b.select(b.icmp("slt", b.bitcast(x, I32), i32(0)), _less(b, 2, angle), angle)
    return b.select(b.fcmp("uno", x, y), b.fadd(x, y, ""), copy_sign(b, angle, y))


def asin(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Arc sine: above 1/2 through the half angle."""
    _ = hooks
    size = _abs(b, x)
    is_large = b.fcmp("ogt", size, _f(0.5))
    half = _root(b, b.fmul(b.fsub(_f(1.0), size, ""), _f(0.5), ""))
    angle = _odd(b, b.select(is_large, half, size), _ASIN)
    return copy_sign(b, b.select(is_large, _less(b, 1, b.fmul(angle, _f(2.0), "")), angle), x)


def acos(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Arc cosine."""
    _ = hooks
    size = _abs(b, x)
    is_large = b.fcmp("ogt", size, _f(0.5))
    half = _root(b, b.fmul(b.fsub(_f(1.0), size, ""), _f(0.5), ""))
    angle = _odd(b, b.select(is_large, half, x), _ASIN)
    double = b.fmul(angle, _f(2.0), "")
    outer = b.select(b.fcmp("olt", x, _f(0.0)), _less(b, 2, double), double)
    return b.select(is_large, outer, _less(b, 1, angle))


def _large_exp(b: Builder, hooks: SimtHooks, size: Value) -> Value:
    """e^size / 2 without overflow before its time."""
    root = exp(b, hooks, b.fmul(size, _f(0.5), ""))
    return b.fmul(b.fmul(root, _f(0.5), ""), root, "")


def sinh(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Hyperbolic sine."""
    size = _abs(b, x)
    less = expm1(b, hooks, size)
    small = b.fmul(_f(0.5), b.fadd(less, b.fdiv(less, b.fadd(less, _f(1.0), ""), ""), ""), "")
    return copy_sign(b, b.select(b.fcmp("ogt", size, _f(20.0)), _large_exp(b, hooks, size), small), x)


def cosh(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Hyperbolic cosine."""
    size = _abs(b, x)
    grown = exp(b, hooks, size)
    small = _fma(b, grown, _f(0.5), b.fdiv(_f(0.5), grown, ""))
    return b.select(b.fcmp("ogt", size, _f(20.0)), _large_exp(b, hooks, size), small)


def asinh(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Inverse hyperbolic sine."""
    size = _abs(b, x)
    square = b.fmul(size, size, "")
    more = b.fdiv(square, b.fadd(_root(b, b.fadd(square, _f(1.0), "")), _f(1.0), ""), "")
    small = log1p(b, hooks, b.fadd(size, more, ""))
    large = b.fadd(log(b, hooks, size), _f(_LN2), "")
    result = b.select(b.fcmp("ogt", size, _f(2.0**14)), large, small)
    return copy_sign(b, b.select(b.fcmp("olt", size, _f(2.0**-12)), size, result), x)


def acosh(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Inverse hyperbolic cosine."""
    above = b.fsub(x, _f(1.0), "")
    small = log1p(b, hooks, b.fadd(above, _root(b, _fma(b, above, above, b.fmul(above, _f(2.0), ""))), ""))
    large = b.fadd(log(b, hooks, x), _f(_LN2), "")
    return b.select(b.fcmp("ogt", x, _f(2.0**14)), large, small)


def atanh(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Inverse hyperbolic tangent."""
    size = _abs(b, x)
    quotient = b.fdiv(b.fmul(size, _f(2.0), ""), b.fsub(_f(1.0), size, ""), "")
    result = b.fmul(log1p(b, hooks, quotient), _f(0.5), "")
    return copy_sign(b, b.select(b.fcmp("olt", size, _f(2.0**-12)), size, result), x)


def cbrt(b: Builder, hooks: SimtHooks, x: Value) -> Value:
    """Cube root: a guess from the exponent, three steps of Newton's method."""
    _ = hooks
    size = _abs(b, x)
    tiny = b.fcmp("olt", size, _f(2.0**-100))
    scaled = b.select(tiny, b.fmul(size, _f(2.0**48), ""), size)
    guess = b.bitcast(b.add(b.udiv(b.bitcast(scaled, I32), i32(3)), i32(0x2A514067)), F32)
    for _step in range(3):
        guess = _fma(b, b.fsub(b.fdiv(scaled, b.fmul(guess, guess, ""), ""), guess, ""), _f(1 / 3), guess)
    result = b.select(tiny, b.fmul(guess, _f(2.0**-16), ""), guess)
    plain = b.or_(b.fcmp("oeq", x, _f(0.0)), b.fcmp("ueq", size, _f(math.inf)))
    return b.select(plain, x, copy_sign(b, result, x))


UNARY: dict[str, Function] = {
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atanh": atanh,
    "cbrt": cbrt,
    "cosh": cosh,
    "sinh": sinh,
}

NAMES = (*UNARY, "atan2")


def emit(b: Builder, hooks: SimtHooks, name: str, args: Sequence[Value]) -> Value:
    """A function of f32 by its name in the `math` dialect, one of `NAMES`."""
    return atan2(b, args[0], args[1]) if name == "atan2" else UNARY[name](b, hooks, args[0])
