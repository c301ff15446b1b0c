"""The schedules that the verifier is held against: the simulator must agree on every one, and see every fault in what is needed."""

from collections.abc import Sequence

import numpy as np
import pytest
from hazards.programs import PROGRAMS, RACES, SWEEP, Schedule
from sim.schedule.faults import kernel_of

from treadle.dialects import tile
from treadle.sim.element_types import Array, storage_dtype
from treadle.sim.schedule import Report, simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.verify.faults import faults
from treadle.verify.lint import needed_sync_ops

WAYS: list[tuple[Mode, int]] = [("late", 0), ("late", 3), ("random", 1)]


def arrays_of(kernel: tile.KernelOp) -> list[Array]:
    """Small integers for a kernel's pointers, as many as their views reach."""
    rng = np.random.default_rng(0)
    views = {op.pointer: op for op in kernel.walk() if isinstance(op, tile.ViewOp)}
    found: list[Array] = []
    for argument in kernel.body.block.args:
        if argument in views:
            kind = tile.memref_type(views[argument].result)
            strides = tile.view_strides(views[argument].result)
            size = 1 + sum((n - 1) * (s or 0) for n, s in zip(kind.get_shape(), strides, strict=True))
            found.append(rng.integers(-3, 4, size).astype(storage_dtype(kind.element_type)))
    return found


def reports(kernel: tile.KernelOp, symbols: Sequence[int]) -> list[Report]:
    arrays = arrays_of(kernel)
    return [simulate(kernel, arrays, symbols, mode=mode, seed=seed) for mode, seed in WAYS]


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_schedules(name: str) -> None:
    first, *others = reports(kernel_of(PROGRAMS[name].text), PROGRAMS[name].symbols)
    assert all(report.ok for report in (first, *others)), str(first)
    assert all(np.array_equal(a, b) for report in others for a, b in zip(report.outputs, first.outputs, strict=True))
    assert not any(np.isnan(a.astype(np.float32)).any() for a in first.outputs)


@pytest.mark.parametrize("key", SWEEP, ids=str)
def test_rings_of_all_depths(key: tuple[int, int]) -> None:
    kernel = kernel_of(SWEEP[key])
    source, _ = arrays_of(kernel)
    for report in reports(kernel, ()):
        assert report.ok, str(report)
        assert np.array_equal(report.outputs[0], source)


@pytest.mark.parametrize("name", RACES)
def test_known_races(name: str) -> None:
    for report in reports(kernel_of(RACES[name].text), RACES[name].symbols):
        assert not report.ok
        assert report.races or report.deadlock, str(report)


def removals(schedule: Schedule) -> list[tuple[str, tile.KernelOp]]:
    """The schedule without each operation that the verifier calls needed."""
    kernel = kernel_of(schedule.text)
    needed, walked = needed_sync_ops(kernel), list(kernel.walk())
    found = [fault for fault in faults(kernel, ("remove",)) if walked[fault.index] in needed]
    assert len(found) == len(needed) > 0
    return [(fault.description, fault.root) for fault in found if isinstance(fault.root, tile.KernelOp)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_needed_synchronisation_is_missed(name: str) -> None:
    for description, kernel in removals(PROGRAMS[name]):
        for report in reports(kernel, PROGRAMS[name].symbols):
            assert not report.ok, f"{description} goes unnoticed"
