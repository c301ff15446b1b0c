"""The measuring protocol on a clock that the test drives."""

import random

import pytest
from bench.fakes import FakeMachine
from hypothesis import given
from hypothesis import strategies as st

from treadle.bench.protocol import MIN_ROUNDS, MeasureOptions, Samples, flush_ms, measure, ratio, sample_indices, spread

NO_WAITING = MeasureOptions(rounds=13, warm_seconds=0.0, pause_seconds=0.0)


def test_only_the_call_is_timed_and_every_call_follows_a_sweep() -> None:
    machine = FakeMachine()
    found = measure(machine, {"ours": machine.spend("ours", 2.0), "peer": machine.spend("peer", 3.0)}, NO_WAITING)
    assert found["ours"].device_ms == [2.0] * 13
    assert found["peer"].median_ms == 3.0
    assert ratio(found["peer"], found["ours"]) == 1.5
    timed = machine.log[4:]  # two turns of warming up
    assert timed[0::2] == ["flush"] * 26
    assert sorted(timed[1::2]) == ["ours"] * 13 + ["peer"] * 13


def test_the_order_within_a_round_changes() -> None:
    machine = FakeMachine()
    measure(machine, {"a": machine.spend("a", 1), "b": machine.spend("b", 1)}, NO_WAITING)
    calls = [name for name in machine.log[4:] if name != "flush"]
    rounds = {tuple(calls[i : i + 2]) for i in range(0, len(calls), 2)}
    assert rounds == {("a", "b"), ("b", "a")}


def test_there_are_never_fewer_than_eleven_rounds() -> None:
    machine = FakeMachine()
    few = MeasureOptions(rounds=3, warm_seconds=0.0, most_seconds=0.0)
    assert len(measure(machine, {"a": machine.spend("a", 1)}, few)["a"].device_ms) == MIN_ROUNDS


def test_too_long_a_measurement_ends_after_eleven() -> None:
    machine = FakeMachine()
    many = MeasureOptions(rounds=1000, warm_seconds=0.0, most_seconds=0.0)
    assert len(measure(machine, {"a": machine.spend("a", 1)}, many)["a"].device_ms) == MIN_ROUNDS


def test_the_query_runs_once_while_warm() -> None:
    machine, asked = FakeMachine(), list[int]()
    measure(machine, {"a": machine.spend("a", 1)}, NO_WAITING, lambda: asked.append(len(machine.log)))
    assert asked == [2]


def test_the_sweep_is_timed() -> None:
    assert flush_ms(FakeMachine()) == 0.25


@given(st.integers(1, 300), st.integers(2, 40), st.integers(0, 5))
def test_samples_hold_both_ends(extent: int, count: int, seed: int) -> None:
    found = sample_indices(extent, count, random.Random(seed))
    assert len(found) == min(extent, count) == len(set(found))
    assert list(found) == sorted(found)
    assert (found[0], found[-1]) == (0, extent - 1)


@pytest.mark.parametrize(("values", "expected"), [([1.0], 0.0), ([1.0, 1.0, 1.0], 0.0), ([1.0, 2.0, 3.0], 0.5)])
def test_spread(values: list[float], expected: float) -> None:
    assert spread(values) == expected


def test_ratio_is_of_rounds_not_of_medians() -> None:
    assert ratio(Samples([2.0, 4.0, 9.0]), Samples([1.0, 4.0, 3.0])) == 2.0
