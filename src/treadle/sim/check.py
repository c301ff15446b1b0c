"""The verdict on a computed result: how far it is from the float64 reference, and how far it may be."""

from dataclasses import dataclass

import numpy as np

from treadle.sim.element_types import Array, is_float, precision_of, storage_dtype
from treadle.sim.reference import ReferenceResult


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How a result compares with its reference.

    `relative_error`: largest difference over the largest reference value. `allowed`: largest bound over the same.
    `worst`: largest quotient of an element's difference and its own bound; `place` its index (None where there are no elements or none
    differs). `ok`: every element is within its bound.
    """

    relative_error: float
    allowed: float
    worst: float
    place: tuple[int, ...] | None
    ok: bool


def check(got: Array, reference: ReferenceResult) -> CheckResult:
    """Compare a result, in its storage type, with the reference, element by element.

    A difference may be as large as the bound of the error analysis plus one rounding to the result's type. NaN must meet NaN, an infinity
    the same infinity; where the type overflows within the bound an infinity is right too. A result of another shape is wrong.
    """
    want = reference.value
    if got.shape != want.shape:
        return CheckResult(float("inf"), 0.0, float("inf"), None, False)
    if want.size == 0:
        return CheckResult(0.0, 0.0, 0.0, None, True)
    bound = np.zeros(want.shape) if reference.bound is None else np.array(reference.bound, dtype=np.float64)
    have = got.astype(np.float64) if is_float(reference.element) else got.astype(np.int64)
    with np.errstate(all="ignore"):
        difference = np.abs(have.astype(np.float64) - want.astype(np.float64))
        same = (have == want) | ((have != have) & (want != want))
        if is_float(reference.element):
            precision = precision_of(storage_dtype(reference.element))
            bound = bound + np.where(np.isfinite(want), precision.unit * np.abs(want) + precision.floor, 0.0)
            overflow = np.isinf(have) & (np.sign(have) == np.sign(want)) & (np.abs(want) + bound >= precision.largest)
            same |= overflow | (np.isnan(have) & np.isinf(bound)) | (np.isinf(want) & np.isinf(bound))
        quotient = np.where(same, 0.0, np.where(np.isinf(bound), 0.0, difference / np.where(bound > 0, bound, 1e-300)))
        quotient = np.where(np.isnan(quotient), np.inf, quotient)
        finite = np.abs(want[np.isfinite(want)].astype(np.float64))
        scale = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
        usable = bound[np.isfinite(bound)]
        error = float(np.where(same & ~np.isfinite(difference), 0.0, np.where(np.isnan(difference), np.inf, difference)).max()) / scale
    worst = float(quotient.max())
    place = tuple(int(i) for i in np.unravel_index(int(quotient.argmax()), want.shape)) if worst > 0 else None
    return CheckResult(error, float(usable.max()) / scale if usable.size else float("inf"), worst, place, worst <= 1.0)
