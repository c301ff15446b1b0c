"""Inverse and hyperbolic functions against a float64 reference, in units in the last place, with the special values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from targets.host import HostHooks, run_scalar_function
from targets.simt.test_math_functions import SPECIAL, error_in_ulp, samples

from treadle.targets.simt import inverse_functions

HOOKS = HostHooks()
CASES: list[tuple[str, Callable[[Any], Any], float, float, float]] = [
    ("acos", np.arccos, -1, 1, 3),
    ("acosh", np.arccosh, 1, 1e5, 4),
    ("asin", np.arcsin, -1, 1, 3),
    ("asinh", np.arcsinh, -1e5, 1e5, 4),
    ("atan", np.arctan, -50, 50, 2),
    ("atanh", np.arctanh, -1, 1, 4),
    ("cbrt", np.cbrt, -1e5, 1e5, 2),
    ("cosh", np.cosh, -91, 91, 5),
    ("sinh", np.sinh, -91, 91, 5),
]


def test_every_function_is_tested() -> None:
    assert {name for name, *_ in CASES} == set(inverse_functions.UNARY)


@pytest.mark.parametrize(("name", "reference", "low", "high", "limit"), CASES, ids=[c[0] for c in CASES])
def test_function(name: str, reference: Callable[[Any], Any], low: float, high: float, limit: float) -> None:
    x = samples(low, high)
    found = run_scalar_function(lambda b, values: inverse_functions.emit(b, HOOKS, name, values), [x], np.dtype(np.float32))
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    assert error_in_ulp(found, exact) <= limit


def test_zeros_keep_their_sign() -> None:
    x = np.array([-0.0], np.float32)
    for name in set(inverse_functions.UNARY) - {"acos", "acosh", "cosh"}:
        found = run_scalar_function(lambda b, values, name=name: inverse_functions.emit(b, HOOKS, name, values), [x], np.dtype(np.float32))
        assert np.signbit(found[0]), name


def test_atan2() -> None:
    rng = np.random.default_rng(3)
    y, x = (np.concatenate([rng.normal(0, 3, 20000), np.exp(rng.uniform(-103, 88, 20000))]).astype(np.float32) for _ in range(2))
    corners = np.array([(p, q) for p in SPECIAL for q in SPECIAL], np.float32)
    y, x = np.concatenate([y, corners[:, 0]]), np.concatenate([x, corners[:, 1]])
    found = run_scalar_function(lambda b, values: inverse_functions.emit(b, HOOKS, "atan2", values), [y, x], np.dtype(np.float32))
    exact = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    assert error_in_ulp(found, exact) <= 3
    assert np.array_equal(np.signbit(found), np.signbit(exact) | (np.isnan(exact) & np.signbit(found)))
