"""Products that share an operand, in AMD machine code: run in the emulator, against float64."""

import numpy as np
import pytest
from generators.horizontal import Products
from targets.amd import emulator, programs

from treadle import pipelines
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
CASES = {
    "gated": Products(50, 37, 75, "f16", result="f16", kept=True, weights=("nk", "kn")),
    "three": Products(33, 40, 48, weights=("nk",) * 3),
    "the second factor shared": Products(37, 50, 40, "bf16", shared_last=True),
}


@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_they_compile_without_spills(name: str, target: str) -> None:
    module = parse_module(CASES[name].text(), name)
    pipelines.lower(module, target_spec(target), CompileOptions())
    (kernel,) = emulator.compile_kernels(module, target).values()
    assert kernel.facts.spill_bytes == 0


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_right_numbers(name: str, target: str) -> None:
    program = CASES[name]
    module = parse_module(program.text(), name)
    pipelines.lower(module, target_spec(target), CompileOptions())
    compiled = emulator.compile_kernels(module, target)
    references = evaluate_module(parse_module(program.text(), name), program.arrays())
    for order in emulator.ORDERS:
        results = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        for got, reference in zip(results, references, strict=True):
            verdict = check(np.asarray(got), reference)
            assert verdict.ok, verdict
