"""Elementary functions of f64 against 80-bit floats (erf: mpmath), in units in the last place, with the special values."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from targets.host import run_scalar_function

from treadle.codegen.llvm_text import Builder, Value
from treadle.targets.simt import double_functions

LONG = np.longdouble
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -5e-324, 1e-310, 2.3e-308, 1.7e308, -1.7e308, 0.5, 2.0])
pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double has no more digits than f64 here")


def samples(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(11)
    values = [rng.uniform(low, high, 30000), SPECIAL, rng.normal(0, 1, 8000), 1 + rng.normal(0, 1, 2000) * 1e-3]
    sizes = np.exp(rng.uniform(-745, math.log(min(max(abs(low), high), 1e308)), 20000))
    values.append(sizes if low >= 0 else rng.choice([-1, 1], sizes.size) * sizes)
    return np.concatenate(values)


def run(name: str, *arrays: np.ndarray) -> np.ndarray:
    def emitted(b: Builder, values: list[Value]) -> Value:
        found = double_functions.emit(b, name, values)
        assert found is not None
        return found

    return run_scalar_function(emitted, list(arrays), np.dtype(np.float64))


def error_in_ulp(found: np.ndarray, exact: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float64)
        assert np.array_equal(np.isnan(found), np.isnan(rounded))
        infinite = np.isinf(rounded) | np.isinf(found)
        near_top = infinite & (np.abs(exact) > LONG(1.7976e308)) & (np.abs(exact) < LONG(1.7977e308))
        assert np.array_equal(found[infinite & ~near_top], rounded[infinite & ~near_top])
        zeros = rounded == 0
        assert np.array_equal(np.signbit(found[zeros & (found == 0)]), np.signbit(rounded[zeros & (found == 0)]))
        fine = np.isfinite(rounded) & np.isfinite(found)
        unit = np.maximum(np.spacing(np.abs(rounded[fine])), 5e-324).astype(LONG)
        return float(np.max(np.abs(found[fine].astype(LONG) - exact[fine]) / unit))


CASES: list[tuple[str, Callable[[Any], Any], float, float, float]] = [
    ("exp", np.exp, -750, 715, 1.5),
    ("exp2", np.exp2, -1080, 1030, 1.5),
    ("expm1", np.expm1, -750, 715, 2),
    ("log", np.log, 0, 1.7e308, 1),
    ("log2", np.log2, 0, 10, 1),
    ("log10", np.log10, 0, 10, 1),
    ("log1p", np.log1p, -1.0, 10, 2),
    ("tanh", np.tanh, -22, 22, 2),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 0, 10, 1.5),
    ("sin", np.sin, -1e4, 1e4, 1.5),
    ("cos", np.cos, -1e4, 1e4, 1.5),
    ("tan", np.tan, -20, 20, 2),
    ("round", lambda x: np.copysign(np.floor(np.abs(x) + LONG(0.5)), x), -1e5, 1e5, 0.5),
]


@pytest.mark.parametrize(("name", "reference", "low", "high", "limit"), CASES, ids=[c[0] for c in CASES])
def test_function(name: str, reference: Callable[[Any], Any], low: float, high: float, limit: float) -> None:
    x = samples(low, high)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.isfinite(x) & (np.abs(x) >= 2.0**30))]
    with np.errstate(all="ignore"):
        exact = reference(x.astype(LONG))
    assert error_in_ulp(run(name, x), exact) <= limit


def test_angles_near_multiples_of_half_pi() -> None:
    k = np.random.default_rng(1).integers(1, 2**29, 20000).astype(np.float64)
    mpmath = pytest.importorskip("mpmath")
    x = (k * (math.pi / 2))[:2000]
    with mpmath.workdps(60):
        exact = np.array([LONG(mpmath.nstr(mpmath.sin(mpmath.mpf(v)), 25)) for v in x])
    assert error_in_ulp(run("sin", x), exact) <= 1.5


def test_angles_beyond_the_range_are_no_numbers() -> None:
    x = np.array([2.0**30, -1e300, 2.0**62])
    assert np.isnan(run("sin", x)).all()
    assert np.isnan(run("cos", x)).all()


def test_erf() -> None:
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(5)
    tiny = rng.choice([-1, 1], 200) * np.exp(rng.uniform(-700, 0, 200))
    x = np.concatenate([rng.uniform(-6.5, 6.5, 4000), rng.normal(0, 0.5, 1000), tiny])
    exact = np.array([LONG(mpmath.nstr(mpmath.erf(mpmath.mpf(v)), 25)) for v in x])
    assert error_in_ulp(run("erf", x), exact) <= 2
    assert np.array_equal(run("erf", np.array([0.0, -0.0, np.inf, -np.inf, np.nan])), [0.0, -0.0, 1.0, -1.0, np.nan], equal_nan=True)


def test_power() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([np.exp(rng.uniform(-300, 300, 30000)), rng.normal(0, 3, 20000), 1 + rng.normal(0, 1e-6, 10000)])
    y = np.concatenate([rng.uniform(-3, 3, 30000), np.round(rng.normal(0, 60, 20000)), rng.normal(0, 1e8, 10000)])
    specials = [*SPECIAL, 3.0, -2.0, -3.0]
    pairs = np.array([(a, b) for a in specials for b in specials])
    x, y = np.concatenate([x, pairs[:, 0]]), np.concatenate([y, pairs[:, 1]])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(LONG), y.astype(LONG))
    assert error_in_ulp(run("powf", x, y), exact) <= 1.5
