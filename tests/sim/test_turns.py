"""Turns in the simulator: one workgroup after the other, and as agents, a few of the workgroups at a time."""

import numpy as np
import pytest
from generators.arrivals import scheduled
from generators.turns import REVERSED, WRONG, fixed_sum, sum_arrays, turn_sum

import treadle
from treadle.errors import TreadleError
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule import Report, simulate
from treadle.sim.schedule.scheduler import Mode

WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("late", 3), ("random", 1), ("random", 2), ("random", 5))


def report_of(text: str, target: str, way: tuple[Mode, int], parts: int = 5, resident: int | None = None) -> Report:
    arrays, sizes = sum_arrays(3, 700, parts)
    return simulate(scheduled(text, target), arrays, sizes, mode=way[0], seed=way[1], resident=resident)


@pytest.mark.parametrize(("rows", "columns", "parts"), [(1, 1, 1), (3, 1000, 7), (5, 300, 2), (2, 17, 3)])
def test_one_after_the_other(rows: int, columns: int, parts: int) -> None:
    (x, sums, counters, _), sizes = sum_arrays(rows, columns, parts)
    program = treadle.compile(turn_sum(), target="sim")
    found = [program(x, sums, counters, sizes["parts"], sizes["chunk"])[0] for _ in range(2)]
    assert not counters.any()  # ready for the next launch
    np.testing.assert_allclose(found[0], x.astype(np.float64).sum(1), atol=1e-3)
    np.testing.assert_array_equal(found[0], found[1])


def test_counters_that_do_not_start_at_zero() -> None:
    (x, sums, counters, _), sizes = sum_arrays(2, 100, 3)
    counters[1] = 1
    with pytest.raises(TreadleError, match="waits for turn 0 of 3 where it is turn 1, which is past: it never ends"):
        treadle.compile(turn_sum(), target="sim")(x, sums, counters, sizes["parts"], sizes["chunk"])


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_as_agents(target: str) -> None:
    reports = [report_of(turn_sum(), target, way) for way in WAYS]
    reports += [report_of(turn_sum(), target, way, resident=resident) for way in WAYS[1:3] for resident in (1, 2, 15)]
    assert [str(report) for report in reports if not report.ok] == []
    first = reports[0].outputs[-1]
    assert all(np.array_equal(first, report.outputs[-1]) for report in reports)  # in the order of the parts
    np.testing.assert_allclose(first, sum_arrays(3, 700, 5)[0][0].astype(np.float64).sum(1), atol=1e-3)
    assert all(not report.outputs[1].any() for report in reports)


@pytest.mark.parametrize("way", WAYS)
def test_a_turn_of_a_workgroup_that_cannot_begin(way: tuple[Mode, int]) -> None:
    """Where the last part is the first in turn, fewer workgroups at a time than there are hang; all of them together would not."""
    for resident in (1, 2, 14):
        found = report_of(REVERSED, "sm_90a", way, resident=resident)
        assert found.deadlock is not None and "waits for turn" in str(found)
    assert report_of(REVERSED, "sm_90a", way, resident=15).ok


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_wrong_kernels_are_seen(name: str, way: tuple[Mode, int]) -> None:
    try:
        found = report_of(WRONG[name], "gfx942", way)
    except SimulationFault:
        return
    assert not found.ok


def test_counters_of_the_program_itself() -> None:
    """Memory of turns that is no argument is zero before every call, and kept for the next."""
    text = fixed_sum(3, 300, 4).replace("output_count = 3, in_place = array<i64: 1, 2>", "output_count = 3, workspace = array<i64: 1, 2>")
    program = treadle.compile(text, target="sim")
    assert [(b.kept, b.zero) for b in program.manifest.buffers if b.role == "temporary"] == [(False, False), (True, True)]
    (x, *_), _ = sum_arrays(3, 300, 4)
    for _ in range(2):
        np.testing.assert_allclose(program(x)[0], x.astype(np.float64).sum(1), atol=1e-3)
