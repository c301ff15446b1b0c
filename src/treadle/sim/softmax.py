"""`linalg.softmax` in float64, with the bound on a machine's error."""

import numpy as np

from treadle.sim.element_types import Precision
from treadle.sim.error_analysis import DIVISION_ULPS, FUNCTION_ULPS, Tracked, summation_error


def softmax(x: Tracked, axis: int, p: Precision) -> Tracked:
    """exp(x - max) / sum(exp(x - max)) along `axis`; the bound is that of a machine that computes each step in the declared type."""
    if x.value.shape[axis] == 0:
        return x
    given = 0.0 if x.error is None else np.broadcast_to(x.error, x.value.shape)
    difference = x.value - np.max(x.value, axis=axis, keepdims=True)
    # The maximum may be off by the largest error along the axis.
    off = given + np.max(np.broadcast_to(given, x.value.shape), axis=axis, keepdims=True) + p.unit * np.abs(difference)
    values = np.exp(difference)
    error = values * np.expm1(np.minimum(off, 700.0)) + FUNCTION_ULPS * p.unit * values + 2 * p.unit * np.abs(difference) * values + p.floor
    total = np.sum(values, axis=axis, keepdims=True)
    spread = np.sqrt(np.sum(values * values, axis=axis, keepdims=True))
    total_error = np.sum(error, axis=axis, keepdims=True) + summation_error(p.unit, values.shape[axis], total, spread)
    result = values / total
    divisor = np.maximum(total - total_error, 0.5)
    bound = (error + result * total_error) / divisor + DIVISION_ULPS * (p.unit * result + p.floor)
    mask = None if x.unwritten is None else np.any(np.broadcast_to(x.unwritten, x.value.shape), axis=axis, keepdims=True)
    return Tracked(result, np.where(np.isnan(bound), 0.0, bound), mask)
