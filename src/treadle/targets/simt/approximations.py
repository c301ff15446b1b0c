"""f32 functions from the machine's own approximations, where an operation may err by 2^-bits (dialects/precision.py).

The hooks name what the machine has (`SimtHooks.math`); where it has nothing, the answer is None and the common expansion serves. Errors
below are for a machine whose exponential, reciprocal and logarithm are within 2^-22, as those of both vendors are.
"""

import math
from collections.abc import Callable

from treadle.codegen.llvm_text import F32, Builder, Value, floating
from treadle.dialects.precision import FULL, NARROW
from treadle.targets.simt.hooks import SimtHooks
from treadle.targets.simt.polynomials import ERF, LOG_ERFC, TANH, polynomial
from treadle.targets.simt.sign_bits import copy_sign

_LOG2E = math.log2(math.e)
_LOG2E_LOW = _LOG2E - 1.44269502162933349609375  # what the nearest f32 lacks
_LN2 = math.log(2)
_TANH_BITS = 11
"""The error of a native hyperbolic tangent, relative (PTX ISA, tanh)."""


def _f(value: float) -> Value:
    return floating(F32, value)


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.math("llvm.fma", [x, y, z], "")


def _abs(b: Builder, x: Value) -> Value:
    return b.math("llvm.fabs", [x], "")


def exp(b: Builder, hooks: SimtHooks, x: Value, bits: int) -> Value | None:
    """e^x as 2^h (1 + l ln 2), where h + l is x log2 e to twice the digits; 2 units in the last place."""
    _ = bits
    high = b.fmul(x, _f(_LOG2E), "")
    power = hooks.math(b, "exp2", [high])
    if power is None:
        return None
    low = _fma(b, x, _f(_LOG2E), b.fneg(high, ""))
    low = _fma(b, x, _f(_LOG2E_LOW), low)
    better = _fma(b, power, b.fmul(low, _f(_LN2), ""), power)
    # Outside, the power is 0, infinite or has few digits, and l may be NaN.
    return b.select(b.fcmp("olt", _abs(b, high), _f(128.0)), better, power)


def tanh(b: Builder, hooks: SimtHooks, x: Value, bits: int) -> Value | None:
    """Native where that is good enough; else 1 - 2 / (e^2|x| + 1), and x P(x^2) where that would cancel."""
    if bits <= _TANH_BITS and (native := hooks.math(b, "tanh.approximate", [x])) is not None:
        return native
    size = _abs(b, x)
    grown = hooks.math(b, "exp2.flush", [b.fmul(size, _f(2 * _LOG2E), "")])
    if grown is None:
        return None
    inverse = hooks.math(b, "reciprocal.flush", [b.fadd(grown, _f(1.0), "")])
    if inverse is None:
        return None
    large = _fma(b, inverse, _f(-2.0), _f(1.0))
    square = b.fmul(x, x, "")
    small = _fma(b, b.fmul(x, square, ""), polynomial(b, square, TANH), x)
    return copy_sign(b, b.select(b.fcmp("olt", size, _f(0.6)), small, large), x)


def erf(b: Builder, hooks: SimtHooks, x: Value, bits: int) -> Value | None:
    """X P(x^2) below 1, 1 - exp(Q(x)) above."""
    _ = bits
    size = _abs(b, x)
    limited = b.select(b.fcmp("ogt", size, _f(4.0)), _f(4.0), size)
    tail = hooks.math(b, "exp2.flush", [polynomial(b, limited, [c * _LOG2E for c in LOG_ERFC])])
    if tail is None:
        return None
    small = b.fmul(x, polynomial(b, b.fmul(x, x, ""), ERF), "")
    large = copy_sign(b, b.fsub(_f(1.0), tail, ""), x)
    return b.select(b.fcmp("olt", size, _f(1.0)), small, large)


def _logarithm(factor: float) -> "Approximation":
    """Log2(x) * factor; near 1, where the machine's has few digits, a series in x - 1. Good for `NARROW`."""

    def function(b: Builder, hooks: SimtHooks, x: Value, bits: int) -> Value | None:
        native = hooks.math(b, "log2.approximate", [x]) if bits <= NARROW else None
        if native is None:
            return None
        step = b.fsub(x, _f(1.0), "")
        series = [factor * _LOG2E * (-1) ** i / (i + 1) for i in range(5)]
        near = b.fmul(step, polynomial(b, step, series), "")
        far = b.fmul(native, _f(factor), "") if factor != 1.0 else native
        return b.select(b.fcmp("olt", _abs(b, step), _f(2.0**-4)), near, far)

    return function


def sqrt(b: Builder, hooks: SimtHooks, x: Value, bits: int) -> Value | None:
    """Square root, 1 unit in the last place."""
    _ = bits
    return hooks.math(b, "sqrt.approximate", [x])


def rsqrt(b: Builder, hooks: SimtHooks, x: Value, bits: int) -> Value | None:
    """1 / sqrt(x), 2 units in the last place."""
    _ = bits
    return hooks.math(b, "rsqrt.approximate", [x])


def divide(b: Builder, hooks: SimtHooks, x: Value, y: Value, *, by_reciprocal: bool) -> Value | None:
    """X / y, 2 units in the last place; with `by_reciprocal` a divisor above 2^126 may count as infinite."""
    if by_reciprocal and (inverse := hooks.math(b, "reciprocal.flush", [y])) is not None:
        return inverse if x.text == _f(1.0).text else b.fmul(x, inverse, "")
    return hooks.math(b, "divide.approximate", [x, y])


Approximation = Callable[[Builder, SimtHooks, Value, int], Value | None]

_UNARY: dict[str, Approximation] = {
    "exp": exp,
    "tanh": tanh,
    "erf": erf,
    "log": _logarithm(_LN2),
    "log2": _logarithm(1.0),
    "log10": _logarithm(math.log10(2)),
    "sqrt": sqrt,
    "rsqrt": rsqrt,
}


def emit(b: Builder, hooks: SimtHooks, name: str, x: Value, bits: int, *, may_flush: bool = False) -> Value | None:
    """A function of f32 by its name in the `math` dialect with a relative error up to 2^-bits, or None for the common expansion.

    With `may_flush`, powers below the normal range may be zero.
    """
    if bits > FULL:
        return None
    if name == "exp2":
        return hooks.math(b, "exp2.flush" if may_flush else "exp2", [x])
    return _UNARY[name](b, hooks, x, bits) if name in _UNARY else None
