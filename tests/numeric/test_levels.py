"""Kernels compute the same at every level: generated modules, lowered for each machine to the schedule level, in the interpreter."""

import pytest
from generators.modules import random_module
from numeric.differential import COUNT, complaint, reference_of

from treadle import pipelines
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.sim.program import run_program


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_schedule_level_agrees_with_reference(target: str) -> None:
    wrong: list[str] = []
    for module in map(random_module, range(0, COUNT, 9)):
        lowered = mlir.load(module.text + "\n", f"{module.name}.mlir", None)
        pipelines.lower(lowered, target_spec(target), CompileOptions(), until="schedule")
        arrays = module.arrays()
        verdict = check(run_program(lowered, arrays)[0], reference_of(module, arrays))
        if not verdict.ok:
            wrong.append(complaint(module, verdict))
    assert not wrong, "\n".join(wrong)
