"""Every schedule, compiled or written by hand, runs clean under compute-sanitizer's tools.

The tests are skipped where there is no sm_90a or no compute-sanitizer on PATH.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device import compiled_programs, hand_written, hand_written_programs, synchronised
from device.sanitizer import FOUND, TOOLS, check, sanitized, start

from treadle.artifact import Manifest

SCRIPTS: dict[str, Iterable[str]] = {
    "compiled_programs.py": compiled_programs.CASES,
    "hand_written_programs.py": hand_written_programs.CASES,
}


AT_ONCE = 12
"""Programs a process: racecheck takes seconds for some, and processes run beside one another."""
PARTS = [
    pytest.param(script, names[first : first + AT_ONCE], id=f"{script}-{first}")
    for script, names in ((script, list(cases)) for script, cases in SCRIPTS.items())
    for first in range(0, len(names), AT_ONCE)
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_know_their_programs(script: str) -> None:
    """Each is started by itself, as a sanitizer does it: its imports must not rest on pytest's."""
    done = start(script, ())
    assert (done.returncode, done.stdout.split()) == (0, list(SCRIPTS[script])), done.stderr


def test_no_program_hides_another() -> None:
    assert len(hand_written_programs.CASES) == len(hand_written.CASES) + len(synchronised.CASES)


class Host:
    """A device whose programs compute nothing: their results are those of `make`."""

    def __init__(self, make: Callable[[hand_written.Case], list[Any]]) -> None:
        self.make = make

    def load(self, manifest: Manifest, binaries: dict[str, bytes]) -> Callable[..., list[Any]]:
        assert manifest.kernels[0].binary in binaries
        return lambda *arrays: [SimpleNamespace(numpy=lambda r=result: r) for result in self.make(hand_written_programs.CASES[NAME])]


NAME = "independent"


def test_wrong_results_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's own judgement, without a GPU: right results, one wrong element, none written."""

    def right(case: hand_written.Case) -> list[Any]:
        return list(case.right(*case.arrays(0)))

    def off(case: hand_written.Case) -> list[Any]:
        (result,) = right(case)
        result[3, 5] += 1
        return [result]

    def nothing(case: hand_written.Case) -> list[Any]:
        return [np.full_like(result, np.nan) for result in right(case)]

    found: list[list[str]] = []
    for make in (right, off, nothing):
        monkeypatch.setattr(hand_written_programs, "open_device", partial(Host, make))
        found.append(hand_written_programs.wrong([NAME]))
    assert found == [[], [f"{NAME}: error 1, allowed 0"], [f"{NAME}: error nan, allowed 0"]]


def reads_behind_remote_arrivals(name: str) -> bool:
    """Whether a program reads other workgroups' shared memory behind arrivals of these at a barrier of its own. Racecheck does not follow
    such arrivals: it reports the reads of a kernel of two workgroups that does nothing else, too, and none where a cluster barrier orders
    them.
    """
    if name not in compiled_programs.CASES:
        return False
    text = compiled_programs.compiled(name).stages["schedule"]
    return "sync.arrive" in text and " peers " in text and " peer " in text


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("script", "names"), PARTS)
def test_sanitizer_reports_nothing(script: str, names: list[str], tool: str) -> None:
    check(tool, script, [name for name in names if tool != "racecheck" or not reads_behind_remote_arrivals(name)])


def test_few_programs_are_kept_from_racecheck() -> None:
    assert reads_behind_remote_arrivals("cluster-merge")
    assert sum(map(reads_behind_remote_arrivals, compiled_programs.CASES)) <= 3


@pytest.mark.usefixtures("hopper")
def test_racecheck_does_not_follow_elected_lanes() -> None:
    """Why every lane arrives under racecheck: where one lane arrives for its warp, it reports a ring whose results are right."""
    done = sanitized("racecheck", "compiled_programs.py", ["bf16x6"], {})
    assert done.returncode == FOUND and "1 right" in done.stdout
