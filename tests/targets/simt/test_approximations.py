"""Functions from a machine's approximations against float64: the machine is played by libm with the largest errors that it may have."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from targets.host import HostHooks, run_scalar_function

from treadle.codegen.llvm_text import F32, Builder, Value, floating
from treadle.dialects.precision import FULL, NARROW
from treadle.targets.simt import approximations, math_functions

_erf: Callable[[Any], Any] = np.vectorize(math.erf)
_LIBM = {"exp2": "llvm.exp2", "exp2.flush": "llvm.exp2", "log2.approximate": "llvm.log2", "sqrt.approximate": "llvm.sqrt"}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38], np.float32)


class ApproximatingHooks(HostHooks):
    """Every function off by `error` relative to its size; what may be flushed is."""

    def __init__(self, error: float) -> None:
        super().__init__()
        self.error = error

    def math(self, b: Builder, name: str, args: Sequence[Value]) -> Value | None:
        if name in _LIBM:
            exact = b.math(_LIBM[name], args, "")
        elif name == "rsqrt.approximate":
            exact = b.fdiv(floating(F32, 1.0), b.math("llvm.sqrt", args, ""), "")
        elif name == "reciprocal.flush":
            exact = b.fdiv(floating(F32, 1.0), args[0], "")
        elif name == "divide.approximate":
            exact = b.fdiv(args[0], args[1], "")
        elif name == "tanh.approximate":
            exact = b.math("llvm.tanh", args, "")
            return b.fmul(exact, floating(F32, 1 + math.copysign(2.0**-11, self.error)), "")
        else:
            return None
        found = b.fmul(exact, floating(F32, 1 + self.error), "") if self.error else exact
        if name.endswith(".flush"):
            tiny = b.fcmp("olt", b.math("llvm.fabs", [found], ""), floating(F32, 2.0**-126))
            found = b.select(tiny, floating(F32, 0.0), found)
        return found


def samples(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(5)
    sign = [1.0] if low >= 0 else [-1.0, 1.0]
    values = [
        rng.uniform(low, high, 60000),
        rng.choice(sign, 20000) * np.exp(rng.uniform(-80, math.log(max(abs(low), high)), 20000)),
        1 + rng.uniform(-0.2, 0.2, 20000),
        SPECIAL,
    ]
    return np.concatenate(values).astype(np.float32)


CASES: list[tuple[str, Callable[[Any], Any], float, float, int, float]] = [
    ("exp", np.exp, -110, 95, FULL, 2.0**-21.3),
    ("exp2", np.exp2, -150, 135, FULL, 2.0**-21.5),
    ("tanh", np.tanh, -12, 12, FULL, 2.0**-21),
    ("tanh", np.tanh, -12, 12, 11, 2.0**-10.9),
    ("erf", _erf, -5, 5, FULL, 2.0**-21),
    ("log", np.log, 0, 10, NARROW, 2.0**-NARROW),
    ("log2", np.log2, 0, 10, NARROW, 2.0**-NARROW),
    ("log10", np.log10, 0, 10, NARROW, 2.0**-NARROW),
    ("sqrt", np.sqrt, 0, 1e30, FULL, 2.0**-21.5),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 0, 1e30, FULL, 2.0**-21.3),
]


@pytest.mark.parametrize("sign", [-1, 0, 1])
@pytest.mark.parametrize(("name", "reference", "low", "high", "bits", "limit"), CASES, ids=[f"{c[0]}-{c[4]}" for c in CASES])
def test_relative_error(name: str, reference: Callable[[Any], Any], low: float, high: float, bits: int, limit: float, sign: int) -> None:
    hooks = ApproximatingHooks(sign * 2.0**-22)

    def emit(b: Builder, values: list[Value]) -> Value:
        found = approximations.emit(b, hooks, name, values[0], bits)
        assert found is not None
        return found

    x = samples(low, high)
    found = run_scalar_function(emit, [x], np.dtype(np.float32)).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(rounded))
    infinite = np.isinf(rounded) & (np.abs(exact) > 3.41e38)
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    fine = np.isfinite(rounded)
    error = np.abs(found[fine] - exact[fine])
    allowed = limit * np.abs(exact[fine]) + 12 * 2.0**-149  # below the normal range there are few digits
    assert np.all(error <= allowed), (x[fine][np.argmax(error / allowed)], np.max(error / allowed))
    np.testing.assert_array_equal(np.signbit(found[x == 0]), np.signbit(rounded[x == 0]))


def test_what_decides_something_has_no_approximation() -> None:
    x = np.linspace(0, 4, 100, dtype=np.float32)

    def emit(b: Builder, values: list[Value]) -> Value:
        assert approximations.emit(b, ApproximatingHooks(0.0), "sqrt", values[0], FULL + 1) is None
        return math_functions.sqrt(b, HostHooks(), values[0])

    np.testing.assert_array_equal(run_scalar_function(emit, [x], np.dtype(np.float32)), np.sqrt(x))


def sigmoid(b: Builder, hooks: HostHooks, x: Value) -> Value:
    """X / (1 + 2^(-x log2 e)) as simplify-math writes it."""
    power = approximations.emit(b, hooks, "exp2", b.fmul(x, floating(F32, -math.log2(math.e)), ""), 11, may_flush=True)
    assert power is not None
    found = approximations.divide(b, hooks, x, b.fadd(power, floating(F32, 1.0), ""), by_reciprocal=True)
    assert found is not None
    return found


def test_silu_at_the_ends_of_the_range() -> None:
    x = np.array([-np.inf, -3e38, -1e30, -200.0, -100.0, -60.0, -20.0, -0.0, 0.0, 1e-45, 20.0, 200.0, 3e38, np.inf, np.nan], np.float32)
    found = run_scalar_function(lambda b, v: sigmoid(b, ApproximatingHooks(0.0), v[0]), [x], np.dtype(np.float32)).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    exact[1:5] = 0.0
    assert np.isnan(found[0])  # as written: -inf / inf
    np.testing.assert_allclose(found[1:], exact[1:], rtol=2.0**-16, atol=1e-37)
    np.testing.assert_array_equal(np.signbit(found[1:-1]), np.signbit(x[1:-1]))
