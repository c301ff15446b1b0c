"""Programs under compute-sanitizer: a process runs some of them once, under one tool.

A script that can be checked has a dictionary `CASES` by name and ends with `sys.exit(run_named(CASES, wrong))`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from treadle import knobs

TOOLS = ("memcheck", "racecheck", "synccheck")
SECONDS = 900
FOUND, _TESTS = 9, Path(__file__).parents[1]


def run_named(known: Iterable[str], wrong: Callable[[list[str]], list[str]]) -> int:
    """A script: run the programs named on the command line and print what is wrong; without names, print those that there are."""
    names = sys.argv[1:]
    problems = wrong(names)
    print("\n".join(problems or ([f"{len(names)} right"] if names else known)))
    return 1 if problems else 0


def start(
    script: str, names: Iterable[str], *before: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a script of this folder with `tests` on the path, under the command `before`. `environment`: what is set for it besides."""
    path = os.pathsep.join([str(_TESTS), str(_TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    command = [*before, sys.executable, str(Path(__file__).with_name(script)), *names]
    everything = os.environ | {"PYTHONPATH": path} | dict(environment or {})
    return subprocess.run(command, env=everything, capture_output=True, text=True, check=False, timeout=SECONDS)


def sanitized(tool: str, script: str, names: Iterable[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run programs under a tool, which ends with FOUND where it reports anything; skip where there is no compute-sanitizer."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on PATH")
    return start(script, names, sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), environment=environment)


def check(tool: str, script: str, names: Iterable[str]) -> None:
    """Fail where the tool reports anything, or a program's results are wrong; skip where there is no compute-sanitizer.

    Racecheck does not see that a warp's barrier orders what all lanes did before one lane arrives for them, so every lane arrives where it
    watches.
    """
    wanted = list(names)
    done = sanitized(tool, script, wanted, {knobs.EVERY_LANE.name: "1"} if tool == "racecheck" else {})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "SUMMARY: 0 " in done.stdout and f"{len(wanted)} right" in done.stdout
