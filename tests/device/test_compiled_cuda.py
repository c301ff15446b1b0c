"""One program for each kind of schedule: right at ragged sizes, and the same again and again. (`test_sanitizer_cuda.py` has the sanitizer.)

TREADLE_TEST_RUNS sets how often each runs (default 200).
"""

import os
import re

import pytest
from device.compiled_programs import CASES, compiled, wrong

RUNS = int(os.environ.get("TREADLE_TEST_RUNS", "200"))


@pytest.mark.parametrize("name", CASES)
def test_compiles_to_its_schedule(name: str) -> None:
    schedule, case = compiled(name).stages["schedule"], CASES[name]
    assert case.shows, "a case shows what it is a case of"
    missing = [pattern for pattern in case.shows if not re.search(pattern, schedule)]
    assert not missing
    assert not [pattern for pattern in case.lacks if re.search(pattern, schedule)]


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", CASES)
def test_right_again_and_again(name: str) -> None:
    assert not wrong(name, RUNS)
