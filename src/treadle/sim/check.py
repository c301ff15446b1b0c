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
    differs). `ok`: every element is within its bound. `problem`: what is wrong, where something is.
    """

    relative_error: float
    allowed: float
    worst: float
    place: tuple[int, ...] | None
    ok: bool
    problem: str = ""


def check(got: Array, reference: ReferenceResult) -> CheckResult:
    """Compare a result, in its storage type, with the reference, element by element.

    A difference may be as large as the bound of the error analysis plus one rounding to the result's type. NaN must meet NaN, an infinity
    the same infinity; where the type overflows within the bound an infinity is right too. A result of another shape is wrong. So is every
    element that the program's text computes from uninitialised memory, whatever the result is, and NaN where the reference is finite,
    however uncertain that is.
    """
    want = reference.value
    if got.shape != want.shape:
        return CheckResult(float("inf"), 0.0, float("inf"), None, False, f"its shape is {got.shape}, expected {want.shape}")
    if want.size == 0:
        return CheckResult(0.0, 0.0, 0.0, None, True)
    bound = np.zeros(want.shape) if reference.bound is None else np.array(reference.bound, dtype=np.float64)
    with np.errstate(all="ignore"):
        have = got.astype(np.float64) if is_float(reference.element) else got.astype(np.int64)
        difference = np.abs(have.astype(np.float64) - want.astype(np.float64))
        same = (have == want) | ((have != have) & (want != want))
        if is_float(reference.element):
            precision = precision_of(storage_dtype(reference.element))
            bound = bound + np.where(np.isfinite(want), precision.unit * np.abs(want) + precision.floor, 0.0)
            overflow = np.isinf(have) & (np.sign(have) == np.sign(want)) & (np.abs(want) + bound >= precision.largest)
            same |= overflow | (np.isinf(want) & np.isinf(bound))
        lost = np.isnan(have) & np.isfinite(want)
        unwritten = np.zeros(want.shape, np.bool_) if reference.unwritten is None else np.broadcast_to(reference.unwritten, want.shape)
        same &= ~unwritten
        quotient = np.where(same, 0.0, np.where(np.isinf(bound), 0.0, difference / np.where(bound > 0, bound, 1e-300)))
        quotient = np.where(np.isnan(quotient) | lost | unwritten, np.inf, quotient)
        finite = np.abs(want[np.isfinite(want)].astype(np.float64))
        scale = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
        usable = bound[np.isfinite(bound)]
        error = float(np.where(same & ~np.isfinite(difference), 0.0, np.where(np.isnan(difference), np.inf, difference)).max()) / scale
    worst = float(quotient.max())
    place = tuple(int(i) for i in np.unravel_index(int(quotient.argmax()), want.shape)) if worst > 0 else None
    ok = worst <= 1.0
    problem = "" if ok else _problem(bool(unwritten.any()), bool(lost.any()))
    return CheckResult(error, float(usable.max()) / scale if usable.size else float("inf"), worst, place, ok, problem)


def _problem(unwritten: bool, lost: bool) -> str:
    if unwritten:
        return "the program computes it from uninitialised memory: the contents of tensor.empty are not specified"
    return "it is not a number, the float64 evaluation is" if lost else "it is farther from the float64 evaluation than rounding explains"
