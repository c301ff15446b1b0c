"""One program for each kind of schedule: right at ragged sizes, the same again and again, and clean under compute-sanitizer.

TREADLE_TEST_RUNS sets how often each runs (default 200). The sanitizer's tests are skipped where it is not on PATH.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from device.compiled_programs import CASES, compiled, wrong

from treadle.errors import TreadleError
from treadle.runtime.device import open_device

RUNS = int(os.environ.get("TREADLE_TEST_RUNS", "200"))
TOOLS = ("memcheck", "racecheck", "synccheck")


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


@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer_reports_nothing(gpu: str, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on PATH")
    folder = Path(__file__).parent
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, str(folder / "compiled_programs.py"), *CASES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "SUMMARY: 0 " in done.stdout and f"{len(CASES)} right" in done.stdout
