"""What insert-sync makes of sequential programs, on a real GPU: the sequential program's values, bitwise, again and again.

Integers small enough that every sum is exact: any difference is a race. TREADLE_TEST_RUNS sets how often each program runs (default 200).
"""

from typing import Any

import numpy as np
import pytest
from device.synchronised import CASES
from device.test_schedules_cuda import RUNS

from treadle.runtime.cuda import CudaDevice


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_sequential_program(hopper: CudaDevice, name: str) -> None:
    case = CASES[name]
    compiled = case.compiled()
    program = case.program(hopper, compiled)
    sets: list[tuple[list[Any], Any]] = []
    for seed in range(2):
        arrays = case.arrays(seed)
        (expected,) = case.right(*arrays)
        sets.append((arrays, expected))
    for turn in range(RUNS):
        arrays, expected = sets[turn % 2]
        (found,) = (result.numpy() for result in program(*arrays))
        written = ~np.isnan(expected)
        assert np.array_equal(found[written], expected[written]), f"run {turn}"
