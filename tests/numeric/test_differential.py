"""200 generated modules: the float64 reference against IREE on the CPU, and the compiled program on the simulator against the reference.

Both comparisons use the bounds of the error analysis, so that what agrees with the reference agrees with IREE.
"""

import numpy as np
import pytest
from generators.modules import random_module
from numeric.differential import COUNT, NAMES, complaint, complaints, modules_of, reference_of
from numeric.iree_oracle import IreeFunctions

from treadle.sim.check import check


@pytest.mark.parametrize("family", NAMES)
def test_reference_agrees_with_iree(family: str) -> None:
    modules = modules_of(family)
    iree = IreeFunctions("\n".join(m.text for m in modules))
    wrong: list[str] = []
    for module in modules:
        arrays = module.arrays()
        verdict = check(iree(module.name, arrays), reference_of(module, arrays))
        if not verdict.ok:
            wrong.append(complaint(module, verdict))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("family", NAMES)
def test_simulated_program_agrees_with_reference(family: str) -> None:
    wrong = complaints(modules_of(family), "sim")
    assert not wrong, "\n".join(wrong)


def test_wrong_results_are_told_apart() -> None:
    """A check that cannot fail is none: one element moved by more than its bound is refused, in every module."""
    for module in map(random_module, range(0, COUNT, 5)):
        arrays = module.arrays()
        reference = reference_of(module, arrays)
        got = reference.value.copy()
        place = np.unravel_index(got.size // 2, got.shape)
        room = 0.0 if reference.bound is None else float(reference.bound[place])
        if got.dtype.kind == "i":
            got[place] += 1
        elif np.isfinite(room):
            got[place] += 3 * room + 0.02 * abs(float(got[place])) + 1e-3
        else:
            continue
        assert not check(got, reference).ok, module.name
