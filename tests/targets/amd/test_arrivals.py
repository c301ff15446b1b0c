"""Kernels whose last workgroup merges what all have stored, as machine code in the emulator, where workgroups run one after the other."""

from pathlib import Path

import numpy as np
import pytest
from generators.arrivals import split_sum, sum_arrays
from targets.amd import emulator, programs
from targets.amd.test_hand_written import run

EXAMPLE = Path(__file__).parents[3] / "examples" / "split_matmul.mlir"
needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_sums_of_rows(target: str) -> None:
    (x, sums, counters, _), sizes = sum_arrays(3, 700, 4)
    (got,) = run(split_sum(), target, x, sums, counters, np.int64(sizes["chunk"]))
    np.testing.assert_allclose(got, x.astype(np.float64).sum(1), atol=1e-3)


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_a_contraction(target: str) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-3, 4, (70, 300)).astype(np.float16), rng.integers(-3, 4, (300, 75)).astype(np.float16)
    (got,) = run(EXAMPLE, target, a, b, np.int64(3), np.int64(2))
    np.testing.assert_array_equal(got, (a.astype(np.float64) @ b).astype(np.float16))
