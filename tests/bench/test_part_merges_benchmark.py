"""benchmarks/part_merges.py: what it lists, and that each program's parts are merged by who is named; nothing is measured."""

import importlib
from pathlib import Path
from typing import Any

import pytest

import treadle

MERGED_BY = {"kernel": (2, ""), "last": (1, "tile.count_in"), "cluster": (1, "peer 1"), "turnstile": (1, "tile.await_turn")}


@pytest.fixture(name="merges")
def fixture_merges(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("part_merges")


def test_what_it_lists(merges: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert merges.main(["7168", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == ["16x7168x2048 in 2", "16x7168x2048 in 4"]


@pytest.mark.parametrize("merge", MERGED_BY)
def test_programs(merges: Any, merge: str) -> None:
    assert tuple(MERGED_BY) == merges.MERGES
    launches, shows = MERGED_BY[merge]
    program = treadle.compile(merges.Case(64, 96, 1024, 4).text(merge), target="sm_90a")
    assert len(program.manifest.launches) == launches and shows in program.stages["schedule"]
