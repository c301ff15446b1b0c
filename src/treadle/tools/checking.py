"""Comparison of results with the float64 evaluation of the tensor-level module: relative error, tolerance, verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Roundings of the result's own type that the comparison grants.
_ROUNDINGS = 4
_F32_EPSILON = 2.0**-24


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against float64.

    `relative_error`: Frobenius norm of the difference over that of the reference. `worst_error`: the largest difference over the largest
    magnitude of the reference. Both are NaN where NaNs or infinities are at different places or the shapes differ.
    """

    relative_error: float
    worst_error: float
    tolerance: float

    @property
    def correct(self) -> bool:
        """Whether both errors are within the tolerance (False for NaN)."""
        return self.relative_error <= self.tolerance and self.worst_error <= 4 * self.tolerance


def tolerance(dtype: np.dtype[Any], longest: int) -> float:
    """The relative error granted to a result of `dtype` when no dimension is longer than `longest`; 0 for integers.

    Storing rounds by the type's epsilon. Sums of n terms kept in f32 (f64 for f64) err like a random walk: by sqrt(n) of its epsilon.
    """
    if dtype.kind in "iub":
        return 0.0
    limits: Any = ml_dtypes.finfo(dtype)
    epsilon = float(limits.eps) / 2
    accumulate = min(epsilon, _F32_EPSILON)
    return _ROUNDINGS * epsilon + 2 * accumulate * float(np.sqrt(max(longest, 1)))


def compare(result: Array, reference: Array, longest: int) -> Comparison:
    """Compare one output with its float64 reference of the same shape."""
    granted = tolerance(result.dtype, longest)
    if result.shape != reference.shape:
        return Comparison(float("nan"), float("nan"), granted)
    got, want = result.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return Comparison(float("nan"), float("nan"), granted)
    got, want = got[finite], want[finite]
    if want.size == 0:
        return Comparison(0.0, 0.0, granted)
    difference = np.abs(got - want)
    tiny = float(np.finfo(np.float64).tiny)
    norm, largest = float(np.linalg.norm(want)), float(np.abs(want).max())
    return Comparison(float(np.linalg.norm(difference)) / max(norm, tiny), float(difference.max()) / max(largest, tiny), granted)


def compare_all(results: Sequence[Array], references: Sequence[Array], inputs: Sequence[Array]) -> tuple[Comparison, ...]:
    """Compare every output; the tolerance knows the longest dimension of the inputs."""
    longest = max((extent for array in inputs for extent in array.shape), default=1)
    return tuple(compare(result, reference, longest) for result, reference in zip(results, references, strict=True))
