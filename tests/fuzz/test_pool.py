"""Hangs, deaths and errors of cases are told apart and reported, and the cases behind them run."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from fuzz import __main__ as command
from fuzz import expect
from fuzz.kinds import KINDS, load
from fuzz.outcomes import MEANINGS, Outcome, Settings, worst
from fuzz.pool import run_cases


def test_every_seed_has_its_outcome() -> None:
    seen: list[int] = []
    outcomes = run_cases("faulty", range(12), Settings(device="here"), seconds=4, jobs=2, seen=lambda outcome: seen.append(outcome.seed))
    assert [outcome.seed for outcome in outcomes] == sorted(seen) == list(range(12))
    assert [outcome.status for outcome in outcomes] == ["right", "hang", "crash", "right", "internal", "crash"] * 2
    assert outcomes[0].label == "here"
    assert "a state that must not be" in outcomes[4].detail


def test_what_does_not_answer_is_run_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], float]] = []

    def run(kind: str, seeds: Iterable[int], settings: Settings, *, seconds: float, jobs: int = 1) -> list[Outcome]:
        del kind, settings, jobs
        asked.append((list(seeds), seconds))
        return [Outcome(seed, "hang" if seed == 4 or (len(asked) == 1 and seed in (2, 5)) else "right") for seed in asked[-1][0]]

    monkeypatch.setattr(expect, "run_cases", run)
    seconds = load("shapes").seconds
    assert len(expect.without_defects("shapes", 1, 3)) == 3
    assert asked == [([1, 2, 3], seconds), ([2], expect.AGAIN * seconds)]
    with pytest.raises(AssertionError, match="hang: python tests/fuzz shapes --seed 4"):
        expect.without_defects("shapes", 3, 3)


def test_a_kind_that_does_not_start() -> None:
    with pytest.raises((RuntimeError, EOFError)):
        run_cases("missing", range(2), Settings(), seconds=4)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(KINDS, "faulty", "for tests")
    log = tmp_path / "log.jsonl"
    given = ["faulty", "--seed", "3", "--count", "2", "--jobs", "1", "--log", str(log)]
    assert command.main(given) == 1
    assert "2 cases, 1 defects" in capsys.readouterr().out
    assert [Outcome.read(line).status for line in log.read_text().splitlines()] == ["right", "internal"]
    assert command.main([*given[:4], "1", "--log", str(log)]) == 0
    assert len(log.read_text().splitlines()) == 2, "what the log holds is not run again"


def test_the_command_as_it_is_called() -> None:
    shown = subprocess.run(
        [sys.executable, "tests/fuzz", "--help"], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert all(name in shown.stdout for name in KINDS)


def test_kinds_can_be_loaded() -> None:
    assert all(load(name).seconds > 0 for name in KINDS)


def test_the_first_defect_counts() -> None:
    assert worst([("right", ""), ("refused", "a"), ("wrong", "b"), ("internal", "c")]) == ("wrong", "b")
    assert worst([("right", ""), ("refused", "a")]) == ("refused", "a")
    assert worst([("right", "")]) == ("right", "")
    assert set(MEANINGS) >= {"right", "refused", "wrong", "internal", "hang", "crash"}


@pytest.mark.parametrize(
    ("given", "said"),
    [(["shapes", "--targets", "turn"], "shapes have one target a case"), (["modules", "--targets", "sm_90a,gfx900"], "gfx900: no target")],
)
def test_targets_are_checked(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.arguments(given)
    assert said in capsys.readouterr().err
