"""Attention of the examples on gfx942: the machine code is right at small ragged sizes, and its scores stay in one register file."""

from typing import Any

import numpy as np
import pytest
from generators.attention_texts import AttentionText
from language.attention_problems import Problem
from paged_decode import attend_to_part
from paged_decode import problem as pages
from targets.amd import emulator
from targets.amd.test_language import emulate
from transforms.attention_kernels import check, lowered

from treadle.dialects.stages import WARP_PIPELINED

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
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_stages_of_the_compiler(target: str, causal: bool) -> None:
    """Two groups of warps run the stages that the loop is cut into; keys of four steps."""
    problem = Problem(1, 1, 1, queries=70, keys=101, width=32, causal=causal, first=40)
    module = problem.lowered(target, 128, 32, 8, cut="auto")
    assert any(WARP_PIPELINED in op.attributes for op in module.walk())
    program = Outputs(module, target, "forward", emulator.compile_kernels(module, target))
    q, k, v = problem.arrays(seed=2)
    program(q, k, v, *problem.outputs(), *map(np.array, (*problem.grid(128), problem.first)))
    problem.check(program.outputs, q, k, v)


@needs_emulator
@pytest.mark.parametrize(
    "problem",
    [
        AttentionText((2,), 19, 37, 32, 32),
        AttentionText((1, 2), 40, 70, 24, 40, is_causal=True, shared=2),
        AttentionText((1,), 70, 70, 64, 64),
        AttentionText((1,), 130, 70, 32, 32),
        AttentionText((1,), 150, 150, 32, 32, is_causal=True, window=20),
    ],
    ids=str,
)
def test_text(problem: AttentionText) -> None:
    """The kernel that linalg text becomes. Within windows, rows see none of the first keys of their tile; 70 keys are two tiles, and so
    many values then live that weights are converted in registers above 127.
    """
    module = lowered(problem, "gfx942")
    program = emulator.EmulatedProgram(module, "gfx942", "forward", emulator.compile_kernels(module, "gfx942"))
    check(program(*problem.arrays())[0], problem)


@needs_emulator
@pytest.mark.parametrize("page", [16, 5])
def test_pages(page: int) -> None:
    """Keys and values that a table places: copied by the page, or gathered."""
    *given, want = pages(np.random.default_rng(page), 2, 1, 2, page, (37, 20), 32)
    q, k, v, table, lengths = given
    o, lse = np.full((1, 2, 1, 2, 32), np.nan, np.float32), np.full((1, 2, 1, 2), np.nan, np.float32)
    arrays = (q.reshape(2, 1, 2, 32), k, v, table, lengths, o, lse)
    emulate(attend_to_part, (1, 1, 2), "gfx942", *arrays, 64, 32**-0.5, page, 32, 16, 16, pipeline_stages=1)
    np.testing.assert_allclose(o.reshape(want.shape), want, atol=3e-3)
