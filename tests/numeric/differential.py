"""Generated modules through the compiler, judged by the float64 reference."""

from collections.abc import Iterable

import numpy as np
from generators.modules import FAMILIES, GeneratedModule, random_module

import treadle
from treadle.ir.text import parse_module
from treadle.sim.check import CheckResult, check
from treadle.sim.reference import ReferenceResult, evaluate_module

COUNT = 200
NAMES = sorted({name for name, _ in FAMILIES})


def modules_of(family: str) -> list[GeneratedModule]:
    """The modules of one family among the first `COUNT` seeds."""
    return [m for m in map(random_module, range(COUNT)) if m.family == family]


def reference_of(module: GeneratedModule, arrays: list[np.ndarray]) -> ReferenceResult:
    (result,) = evaluate_module(parse_module(module.text, f"{module.name}.mlir"), arrays)
    return result


def complaint(module: GeneratedModule, verdict: CheckResult | str) -> str:
    return f"{module.name} ({', '.join(f'{s.shape} {s.element}' for s in module.inputs)}): {verdict}"


def complaints(modules: Iterable[GeneratedModule], target: str) -> list[str]:
    """What is wrong with the compiled modules on the device of `target`, a line each."""
    wrong: list[str] = []
    for module in modules:
        arrays = module.arrays()
        try:
            (got,) = treadle.compile(module.text, target=target)(*arrays)
        except Exception as error:  # noqa: BLE001 - every module is reported, not only the first that fails
            wrong.append(complaint(module, f"{type(error).__name__}: {error}"))
            continue
        verdict = check(np.asarray(got), reference_of(module, arrays))
        if not verdict.ok:
            wrong.append(complaint(module, verdict))
    return wrong
