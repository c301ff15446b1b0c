"""Hand-written schedules: right values and no objection as they stand, an objection to every fault, the same outcome for the same seed."""

from collections.abc import Callable

import numpy as np
import pytest
from sim.schedule.faults import faults, kernel_of, ordering_operations
from sim.schedule.programs import PROGRAMS, Program, bulk_ring, cp_async_ring, direct_ring, roles, shifted

from treadle.sim.schedule import Report, simulate
from treadle.sim.schedule.scheduler import Mode

WAYS: list[tuple[Mode, int]] = [("late", 0), ("late", 5), ("random", 1), ("random", 2), ("random", 3)]


def outcome(report: Report) -> tuple[str, bytes]:
    """All that a run shows."""
    return str(report), b"".join(a.tobytes() for a in report.outputs)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("mode", "seed"), WAYS)
def test_right_as_they_stand(name: str, mode: Mode, seed: int) -> None:
    program = PROGRAMS[name]()
    report = simulate(kernel_of(program.text), program.arrays(), mode=mode, seed=seed)
    assert report.ok, str(report)
    assert np.array_equal(report.outputs[0], program.expected(*program.inputs))
    assert report.steps > 100


@pytest.mark.parametrize("make", [cp_async_ring, direct_ring, bulk_ring, roles, shifted])
@pytest.mark.parametrize("steps", [2, 3, 4, 10])
def test_other_trip_counts(make: Callable[[int], Program], steps: int) -> None:
    program = make(steps)
    report = simulate(kernel_of(program.text), program.arrays())
    assert report.ok and np.array_equal(report.outputs[0], program.expected(*program.inputs)), str(report)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_fault_is_caught(name: str) -> None:
    program = PROGRAMS[name]()
    want = program.expected(*program.inputs)
    seen, wrong = set[str](), 0
    for fault, kernel in faults(program.text):
        for mode, seed in (WAYS[0], WAYS[2]):
            report = simulate(kernel, program.arrays(), mode=mode, seed=seed)
            assert not report.ok, f"{fault} ({mode}) goes unnoticed"
            wrong += mode == "late" and not np.array_equal(report.outputs[0], want)
        seen.add(fault.split()[0])
    assert len(seen) == len(ordering_operations(kernel_of(program.text)))
    assert wrong >= len(seen) // 2, "late effects are to be seen in the values of most faults"


def test_a_seed_replays() -> None:
    program = roles()
    text = next(kernel for fault, kernel in faults(program.text) if fault.endswith("sync.wait removed"))
    first, again = (simulate(text, program.arrays(), mode="random", seed=4) for _ in range(2))
    assert outcome(first) == outcome(again)
    others = {outcome(simulate(text, program.arrays(), mode="random", seed=seed)) for seed in range(6)}
    assert len(others) > 1, "seeds are to make a difference"


def test_arrays_of_the_caller_stay_as_they_are() -> None:
    program = cp_async_ring()
    arrays = program.arrays()
    before = [a.copy() for a in arrays]
    simulate(kernel_of(program.text), arrays)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))
