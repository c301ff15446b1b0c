"""Arrivals in the simulator: one workgroup after the other, and as agents in any order."""

import numpy as np
import pytest
from generators.arrivals import WRONG, row_arrays, scheduled, split_rows, split_sum, sum_arrays

import treadle
from treadle.errors import TreadleError
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule import Report, simulate
from treadle.sim.schedule.scheduler import Mode

WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("late", 3), ("random", 1), ("random", 2), ("random", 5))


def objections(text: str, target: str, way: tuple[Mode, int]) -> str:
    """What the simulator says against a kernel; empty where it runs through, with sums that are right."""
    arrays, sizes = sum_arrays(3, 700, 4)
    try:
        report = simulate(scheduled(text, target), arrays, sizes, mode=way[0], seed=way[1])
    except SimulationFault as fault:
        return str(fault)
    if report.ok:
        np.testing.assert_allclose(report.outputs[-1], arrays[0].astype(np.float64).sum(1), atol=1e-3)
    return "" if report.ok else str(report)


@pytest.mark.parametrize(("rows", "columns", "parts"), [(1, 1, 1), (3, 1000, 7), (5, 300, 2), (2, 17, 5)])
def test_one_after_the_other(rows: int, columns: int, parts: int) -> None:
    (x, sums, counters, _), sizes = sum_arrays(rows, columns, parts)
    program = treadle.compile(split_sum(), target="sim")
    for _ in range(2):  # the counters are ready for the next launch
        (y,) = program(x, sums, counters, sizes["chunk"])
        np.testing.assert_allclose(y, x.astype(np.float64).sum(1), atol=1e-3)
        assert not counters.any()


def test_counters_that_do_not_start_at_zero() -> None:
    (x, sums, counters, _), sizes = sum_arrays(2, 100, 3)
    counters[1] = 3
    with pytest.raises(TreadleError, match="finds 3 in a counter of 3 arrivals"):
        treadle.compile(split_sum(), target="sim")(x, sums, counters, sizes["chunk"])


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_as_agents_in_any_order(target: str) -> None:
    arrays, sizes = sum_arrays(3, 700, 4)
    kernel = scheduled(split_sum(), target)
    reports = [simulate(kernel, arrays, sizes, mode=mode, seed=seed) for mode, seed in WAYS]
    assert [str(report) for report in reports if not report.ok] == []
    first = reports[0].outputs[-1]
    assert all(np.array_equal(first, report.outputs[-1]) for report in reports)  # whoever is last
    np.testing.assert_allclose(first, arrays[0].astype(np.float64).sum(1), atol=1e-3)
    assert all(not report.outputs[1].any() for report in reports)


def test_parts_that_leave_by_bulk_copies() -> None:
    arrays = row_arrays(3)
    kernel = scheduled(split_rows(3), "sm_90a")

    def run(mode: Mode, seed: int) -> Report:
        return simulate(kernel, arrays, (), mode=mode, seed=seed)

    for report in (run(*way) for way in WAYS):
        assert report.ok, str(report)
        np.testing.assert_array_equal(report.outputs[-1], 2 * arrays[0].reshape(3, 64, 64).sum(0))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_seen(name: str) -> None:
    assert all(objections(WRONG[name], "gfx942", way) for way in WAYS)
