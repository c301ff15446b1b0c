"""Warp pipelines on every AMD target: groups that meet at different places compute what the loop computes, stage by stage."""

from typing import Any

import numpy as np
import pytest
from language.staged_kernels import PRODUCTS, lowered, operands
from targets.amd import emulator, programs

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


class InPlace(emulator.EmulatedProgram):
    """A program whose one output is changed in place: `output` is what the array holds behind the launch."""

    output: Any = None

    def launch(self, op: Any, environment: Any, values: Any) -> None:
        super().launch(op, environment, values)
        self.output = values[op.outputs[0]].array().copy()


@needs_emulator
@pytest.mark.parametrize("shape", [(128, 32, 100), (140, 40, 33), (128, 32, 31)])
@pytest.mark.parametrize("stages", PRODUCTS)
@pytest.mark.parametrize("target", programs.TARGETS)
def test_products(target: str, stages: str, shape: tuple[int, int, int]) -> None:
    """Also with a loop of one iteration, in three orders of the waves."""
    m, n, k = shape
    module = lowered(PRODUCTS[stages], target, m, n, k)
    compiled = emulator.compile_kernels(module, target)
    a, b, c = operands(m, n, k)
    grid = [np.array(extent) for extent in (-(-m // 128), -(-n // 32))]
    for order in emulator.ORDERS:
        program = InPlace(module, target, order, compiled)
        program(a, b, c, *grid)
        np.testing.assert_array_equal(program.output, a.astype(np.float64) @ b)
