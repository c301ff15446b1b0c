"""Clusters: right programs give right values and no objections; what the model forbids is seen by the verifier and the simulator."""

import numpy as np
import pytest
from hazards.campaign import arrays_of, simulator_objects
from hazards.kernels import kernel_of
from hazards.programs_cluster import MEET, exchanged, shared_operand

from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.verify.check import prove

RIGHT = {
    "shared_operand": shared_operand(),
    "one_slot": shared_operand(1, 4),
    "drained": shared_operand(3, 7, drained=True),
    "drained_short": shared_operand(3, 2, drained=True),
}
WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("late", 3), ("random", 1), ("random", 2))


def rules(text: str) -> set[str]:
    return {finding.rule for finding in prove(kernel_of(text)).findings}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(("mode", "seed"), WAYS)
def test_products_by_two_workgroups(name: str, mode: Mode, seed: int) -> None:
    kernel = kernel_of(RIGHT[name])
    assert prove(kernel).is_proven
    a, b, c = arrays_of(kernel)
    report = simulate(kernel, [a, b, c], mode=mode, seed=seed)
    assert report.ok, report
    expected = a.reshape(128, -1).astype(np.float64) @ b.reshape(-1, 64).astype(np.float64)
    assert (report.outputs[0].reshape(128, 64) == expected).all()


@pytest.mark.parametrize(("mode", "seed"), WAYS)
def test_tiles_for_both(mode: Mode, seed: int) -> None:
    kernel = kernel_of(exchanged())
    assert prove(kernel).is_proven
    a, c = arrays_of(kernel)
    report = simulate(kernel, [a, c], mode=mode, seed=seed)
    assert report.ok, report
    tiles = a.reshape(4, 1, 64, 64)
    assert (report.outputs[0].reshape(4, 2, 64, 64) == np.broadcast_to(tiles, (4, 2, 64, 64))).all()


WRONG = {
    "peers not started": (shared_operand(start=""), {"V5"}),
    "peers ended": (shared_operand(end=""), {"V2"}),
    "slots freed at home only": (shared_operand(peers="array<i64: 0>"), {"V5"}),
    "half the bytes announced": (shared_operand().replace("bytes 16384", "bytes 12288"), {"V5"}),
    "too many bytes announced": (shared_operand().replace("bytes 16384", "bytes 20480"), {"V5"}),
    "one arrival too few": (shared_operand().replace("%empty = sync.mbarrier_alloc 2", "%empty = sync.mbarrier_alloc 1"), {"V2", "V5"}),
    "both bring the same half": (shared_operand().replace("%db[%rank]", "%db[%c0]"), {"V2", "V8"}),
    "barriers allocated behind the meeting": (
        exchanged().replace(MEET, "", 1).replace("  %full =", MEET + "\n  %full =", 1),
        {"V5"},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen_by_both(name: str) -> None:
    text, expected = WRONG[name]
    assert rules(text) & expected
    assert simulator_objects(kernel_of(text), ())
