"""One program for each kind of schedule: right at ragged sizes, and the same again and again. (`test_sanitizer_cuda.py` has the sanitizer.)

TREADLE_TEST_RUNS sets how often each runs (default 200).
"""

import os

import pytest
from device.compiled_programs import CASES, compiled, wrong

from treadle.errors import TreadleError
from treadle.runtime.device import open_device

RUNS = int(os.environ.get("TREADLE_TEST_RUNS", "200"))


@pytest.fixture(scope="module")
def gpu() -> str:
    try:
        target = open_device("cuda").target
    except TreadleError as absent:
        pytest.skip(f"no NVIDIA GPU: {absent.message}")
    if target != "sm_90a":
        pytest.skip(f"the GPU is no sm_90a but {target}")
    return target


@pytest.mark.parametrize("name", CASES)
def test_compiles_to_its_schedule(name: str) -> None:
    program = compiled(name)
    if CASES[name].shows:
        assert CASES[name].shows in program.stages["schedule"]


@pytest.mark.parametrize("name", CASES)
def test_right_again_and_again(gpu: str, name: str) -> None:
    assert not wrong(name, RUNS)
