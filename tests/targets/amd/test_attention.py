"""Attention of the examples on gfx942: the machine code is right at small ragged sizes, and its scores stay in one register file."""

from typing import Any

import numpy as np
import pytest
from generators.attention_texts import AttentionText
from language.attention_problems import Problem
from targets.amd import emulator
from transforms.attention_kernels import check, lowered

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


class Outputs(emulator.EmulatedProgram):
    """A program whose outputs are changed in place: `outputs` is what the arrays hold behind the launch."""

    outputs: tuple[Any, Any]

    def launch(self, op: Any, environment: Any, values: Any) -> None:
        super().launch(op, environment, values)
        o, lse = (values[output].array().copy() for output in op.outputs)
        self.outputs = o, lse


@needs_emulator
@pytest.mark.parametrize("causal", [False, True])
def test_ragged_lengths(causal: bool) -> None:
    """Scores that are read in every step once travelled between the register files, which the audit refuses."""
    problem = Problem(1, 1, 2, queries=19, keys=37, width=32, causal=causal, first=3)
    module = problem.lowered("gfx942", 32, 16, 2, 1, pipeline_stages=1)
    program = Outputs(module, "gfx942", "forward", emulator.compile_kernels(module, "gfx942"))
    q, k, v = problem.arrays(seed=1)
    program(q, k, v, *problem.outputs(), *map(np.array, (*problem.grid(32), problem.first)))
    problem.check(program.outputs, q, k, v)


@needs_emulator
@pytest.mark.parametrize(
    "problem", [AttentionText((2,), 19, 37, 32, 32), AttentionText((1, 2), 40, 70, 24, 40, is_causal=True, shared=2)], ids=str
)
def test_text(problem: AttentionText) -> None:
    """The kernel that linalg text becomes."""
    module = lowered(problem, "gfx942")
    program = emulator.EmulatedProgram(module, "gfx942", "forward", emulator.compile_kernels(module, "gfx942"))
    check(program(*problem.arrays())[0], problem)
