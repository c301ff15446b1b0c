"""Schedule-level programs on a real GPU: values, and the same values again and again.

`pytest tests/device/test_schedules_cuda.py` prints one line a program. TREADLE_TEST_RUNS sets how often each runs (default 200).
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from device.hand_written import CASES

from treadle.runtime.cuda import CudaDevice

RUNS = int(os.environ.get("TREADLE_TEST_RUNS", "200"))


@pytest.mark.parametrize("name", CASES)
def test_schedule(hopper: CudaDevice, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Right once for each of three inputs, then bitwise the same in turns: what an earlier run left in a buffer is another's answer."""
    case = CASES[name]
    compiled = case.compiled()
    program = case.program(hopper, compiled)

    def run(arrays: Sequence[Any]) -> list[Any]:
        return [result.numpy() for result in program(*arrays)]

    sets: list[tuple[list[Any], list[Any]]] = []
    worst = 0.0
    for seed in range(3):
        arrays = case.arrays(seed)
        found = run(arrays)
        worst = max(worst, error := case.error(arrays, found))
        assert error <= case.tolerance
        sets.append((arrays, found))
    start = time.perf_counter()
    different = 0
    for turn in range(RUNS):
        arrays, expected = sets[turn % len(sets)]
        different += any(not np.array_equal(got, want) for got, want in zip(run(arrays), expected, strict=True))
    seconds = time.perf_counter() - start
    facts = compiled.facts
    with capsys.disabled():
        print(f"\n{name}: error {worst:.2g}, {different} of {RUNS} runs differ, {facts.registers} registers, {seconds:.1f} s", end="")
    assert different == 0
