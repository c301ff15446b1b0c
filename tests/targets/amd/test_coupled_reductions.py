"""Coupled reductions in AMD machine code, run in the emulator: extrema to the bit what one loop finds, others within its bound."""

from random import Random

import numpy as np
import pytest
from numeric import test_folds
from numeric.test_coupled_reductions import FOLDED, agrees, arrays, lowered
from targets.amd import emulator, programs
from transforms.reduction_texts import reduction

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("shape", [(3, 1025), (65, 33)])
@pytest.mark.parametrize(("kind", "nan", "body"), FOLDED[:: len(FOLDED) - 1])
def test_they_give_the_right_numbers(kind: str, nan: str, body: str, shape: tuple[int, int], target: str) -> None:
    text = reduction(body, {"m": "f32", "i": "i32"}, shape=shape)
    module = lowered(text, target, "schedule")
    compiled = emulator.compile_kernels(module, target)
    given = arrays(kind, *shape, Random(4))
    for order in emulator.ORDERS:
        results = emulator.EmulatedProgram(module, target, order, compiled)(*given)
        agrees([np.asarray(result) for result in results], text, given)


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", [name for name in test_folds.CASES if "base_2" not in name])
def test_folds_in_parts_give_the_right_numbers(name: str, target: str) -> None:
    text = test_folds.text_of(name, 5, 333)
    module = lowered(text, target, "schedule")
    compiled = emulator.compile_kernels(module, target)
    given = test_folds.arguments(name, 5, 333, np.random.default_rng(6))
    results = emulator.EmulatedProgram(module, target, "shuffled", compiled)(*given)
    test_folds.agrees([np.asarray(result) for result in results], text, given)
