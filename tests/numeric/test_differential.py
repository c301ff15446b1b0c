"""200 generated modules: our float64 reference against IREE on the CPU, and the compiled program on the simulator against the reference.

Both comparisons use the bounds of the error analysis, so that what agrees with the reference agrees with IREE.
"""

import numpy as np
import pytest
from generators.modules import FAMILIES, GeneratedModule, random_module
from numeric.iree_oracle import IreeFunctions

import treadle
from treadle.ir.text import parse_module
from treadle.sim.check import CheckResult, check
from treadle.sim.reference import ReferenceResult, evaluate_module

COUNT = 200
NAMES = sorted({name for name, _ in FAMILIES})


def modules_of(family: str) -> list[GeneratedModule]:
    return [m for m in map(random_module, range(COUNT)) if m.family == family]


def reference_of(module: GeneratedModule, arrays: list[np.ndarray]) -> ReferenceResult:
    (result,) = evaluate_module(parse_module(module.text, f"{module.name}.mlir"), arrays)
    return result


def complaint(module: GeneratedModule, verdict: CheckResult | str) -> str:
    return f"{module.name} ({', '.join(f'{s.shape} {s.element}' for s in module.inputs)}): {verdict}"


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
    wrong: list[str] = []
    for module in modules_of(family):
        arrays = module.arrays()
        try:
            (got,) = treadle.compile(module.text, target="sim")(*arrays)
        except Exception as error:  # noqa: BLE001 - every module is reported, not the first that fails
            wrong.append(complaint(module, f"{type(error).__name__}: {error}"))
            continue
        verdict = check(np.asarray(got), reference_of(module, arrays))
        if not verdict.ok:
            wrong.append(complaint(module, verdict))
    assert not wrong, "\n".join(wrong)


def test_wrong_results_are_told_apart() -> None:
    """A check that cannot fail is none: every module's result with one element moved by a few roundings more than allowed is refused."""
    for module in map(random_module, range(0, COUNT, 5)):
        arrays = module.arrays()
        reference = reference_of(module, arrays)
        got = reference.value.copy()
        place = np.unravel_index(got.size // 2, got.shape)
        room = 0.0 if reference.bound is None else float(reference.bound[place])
        unit = 0.0 if got.dtype.kind == "i" else abs(float(got[place])) * 0.02
        if np.isfinite(room):
            got[place] += type(got[place])(3 * room + unit + 1e-3 if got.dtype.kind == "f" else 1)
            assert not check(got, reference).ok, module.name
