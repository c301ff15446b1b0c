"""The scripts of benchmarks/ say what they take."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name: str) -> None:
    done = subprocess.run([sys.executable, str(FOLDER / name), "--help"], capture_output=True, text=True, check=False)
    for missing in ("torch", "triton"):
        if f"No module named '{missing}'" in done.stderr:
            pytest.skip(f"{missing} is not installed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
