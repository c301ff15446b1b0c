"""Every elementary function against a float64 reference, in units in the last place, with the special values."""

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from targets.host import HostHooks, run_scalar_function

from treadle.targets.simt import math_functions, small_floats

HOOKS = HostHooks()
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38], np.float32)
_erf: Callable[[Any], Any] = np.vectorize(math.erf)


def samples(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(7)
    values = [rng.uniform(low, high, 40000), SPECIAL, rng.normal(0, 1, 5000)]
    if low >= 0:
        values.append(np.exp(rng.uniform(-103, 88, 20000)))
    else:
        values.append(rng.choice([-1, 1], 20000) * np.exp(rng.uniform(-103, math.log(max(abs(low), high)), 20000)))
    return np.concatenate(values).astype(np.float32)


def error_in_ulp(found: np.ndarray, exact: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        assert np.array_equal(np.isnan(found), np.isnan(rounded))
        infinite = np.isinf(rounded) | np.isinf(found)
        # Just at the end of the range a rounding may decide.
        near_top = infinite & (np.abs(exact) > 3.4028e38) & (np.abs(exact) < 3.4029e38)
        assert np.array_equal(found[infinite & ~near_top], rounded[infinite & ~near_top])
        fine = np.isfinite(rounded) & np.isfinite(found)
        unit = np.maximum(np.spacing(np.abs(rounded[fine])), np.float32(1.4e-45)).astype(np.float64)
        return float(np.max(np.abs(found[fine].astype(np.float64) - exact[fine]) / unit))


CASES: list[tuple[str, Callable[[Any], Any], float, float, float]] = [
    ("exp", np.exp, -110, 95, 2),
    ("exp2", np.exp2, -155, 135, 2),
    ("expm1", np.expm1, -110, 95, 4),
    ("log", np.log, 0, 3e38, 2.5),
    ("log2", np.log2, 0, 10, 3),
    ("log10", np.log10, 0, 10, 3),
    ("log1p", np.log1p, -1.0, 10, 3),
    ("tanh", np.tanh, -12, 12, 3),
    ("erf", _erf, -5, 5, 4),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 0, 10, 1.5),
    ("sin", np.sin, -1e4, 1e4, 2),
    ("cos", np.cos, -1e4, 1e4, 2),
    ("tan", np.tan, -20, 20, 4),
    ("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), -1e5, 1e5, 0.5),
]


@pytest.mark.parametrize(("name", "reference", "low", "high", "limit"), CASES, ids=[c[0] for c in CASES])
def test_function(name: str, reference: Callable[[Any], Any], low: float, high: float, limit: float) -> None:
    x = samples(low, high)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.isfinite(x) & (np.abs(x) > 1e9))]
    found = run_scalar_function(lambda b, values: math_functions.emit(b, HOOKS, name, values), [x], np.dtype(np.float32))
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    assert error_in_ulp(found, exact) <= limit


def test_power() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([np.exp(rng.uniform(-40, 40, 30000)), rng.normal(0, 3, 20000)]).astype(np.float32)
    y = np.concatenate([rng.uniform(-3, 3, 30000), np.round(rng.normal(0, 6, 20000))]).astype(np.float32)
    pairs = np.array([(a, b) for a in [*SPECIAL, 2.0, -2.0, 0.5, -0.5] for b in [*SPECIAL, 2.0, 3.0, -2.0, -3.0, 0.5]], np.float32)
    x, y = np.concatenate([x, pairs[:, 0]]), np.concatenate([y, pairs[:, 1]])
    found = run_scalar_function(lambda b, values: math_functions.emit(b, HOOKS, "powf", values), [x, y], np.dtype(np.float32))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert error_in_ulp(found, exact) <= 1


_SMALL = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("name", _SMALL)
def test_small_floats_decode_every_code(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    found = run_scalar_function(lambda b, v: small_floats.decode_to_f32(b, v[0], name), [codes], np.dtype(np.float32))
    np.testing.assert_array_equal(found, codes.view(_SMALL[name]).astype(np.float32))


@pytest.mark.parametrize("name", _SMALL)
def test_small_floats_encode(name: str) -> None:
    values = np.arange(256, dtype=np.uint8).view(_SMALL[name]).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    top = values[-1]
    beyond = np.array([top * f for f in (1.01, 1.03, 1.0357, 1.0358, 1.05, 1.07, 1.0714, 1.0715, 1.1, 1.2, 2, 1e30)], np.float32)
    rng = np.random.default_rng(1)
    spread = np.exp(rng.uniform(-20, 12, 5000)).astype(np.float32)
    x = np.concatenate(
        [values, middles, np.nextafter(middles, 9e9), np.nextafter(middles, -9e9), beyond, -beyond, spread, -spread, SPECIAL]
    )
    x = x.astype(np.float32)
    found = run_scalar_function(lambda b, v: small_floats.encode_from_f32(b, v[0], name), [x], np.dtype(np.uint8))
    with np.errstate(all="ignore"):
        exact = x.astype(_SMALL[name])
    is_nan = np.isnan(exact.astype(np.float32))
    assert np.array_equal(np.isnan(found.view(_SMALL[name]).astype(np.float32)), is_nan)
    np.testing.assert_array_equal(found[~is_nan], exact.view(np.uint8)[~is_nan])
