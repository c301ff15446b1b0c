"""Kernels written at tile level, as machine code for every AMD target in the emulator."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.test_in_place import ACCUMULATE
from targets.amd import emulator, programs

from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.options import CompileOptions

EXAMPLES = Path(__file__).parents[3] / "examples"
needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
RNG = np.random.default_rng(5)


def run(source: Any, target: str, *arrays: Any) -> list[Any]:
    """The results in three orders of the waves, which must be the same."""
    module = scheduled(read_source(source), target, CompileOptions(), None)
    compiled = emulator.compile_kernels(module, target)
    found = [emulator.EmulatedProgram(module, target, order, compiled)(*arrays) for order in emulator.ORDERS]
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    return found[0]


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_rows(target: str) -> None:
    x = RNG.standard_normal((3, 777), np.float32)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    try:
        (got,) = run(EXAMPLES / "row_softmax.mlir", target, x)
    except RuntimeError as error:
        if (target, emulator.VOP3_DPP in str(error)) != ("gfx1100", True):
            raise
        pytest.skip(str(error))
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_a_contraction(target: str) -> None:
    a, b = RNG.integers(-3, 4, (70, 90)).astype(np.float16), RNG.integers(-3, 4, (90, 75)).astype(np.float16)
    (got,) = run(EXAMPLES / "tile_matmul.mlir", target, a, b)
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b)


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_an_argument_in_place(target: str) -> None:
    """What the array held comes back as a result; the change itself stays in the emulator's copy."""
    x, total = RNG.standard_normal((2, 300), np.float32)
    (got,) = run(ACCUMULATE.format(element="f32", add="arith.addf"), target, x, total)
    np.testing.assert_array_equal(got, total)
