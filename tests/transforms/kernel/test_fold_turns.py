"""fold-turns: loops over tiles that workgroups take in turn become the kernel of one tile; what roles make of it is right."""

from typing import Any

import pytest
from language.persistent_products import SMALL, check, lowered, overlapping, plain, staged

from treadle.verify.check import prove

TOGETHER = "fold-turns: the kernel is that of one tile, and workgroups take the tiles in turn"


@pytest.mark.parametrize("kernel", [plain, staged])
@pytest.mark.parametrize("groups", [1, 2])
def test_one_workgroup_a_tile(kernel: Any, groups: int) -> None:
    """At most as many as there are tiles; the sets of ping-pong and the producer have four warps each."""
    found, told, _ = lowered(kernel, 304, 304, 304, GROUPS=groups, **SMALL)
    assert TOGETHER in told
    assert "min(" in found.grid_text()[0] and "grid_x" in found.grid_text()[0]
    assert found.num_warps.value.data == 12
    assert (f"ping_pong = {groups}" in str(found.config)) == (groups == 2)


def test_what_is_left_alone() -> None:
    found, told, _ = lowered(plain, 300, 300, 300, target="gfx942", GROUPS=2, **SMALL)
    assert TOGETHER not in told
    assert found.grid_text()[0] == "grid_x"


@pytest.mark.parametrize("kernel", [plain, staged])
@pytest.mark.parametrize(
    ("m", "n", "k", "grid"),
    [
        (200, 136, 200, 2),  # more steps than slots, an odd number of rounds
        (130, 72, 64, 3),  # one step, and a round that not all take part in
        (64, 264, 328, 1),
        (128, 128, 8, 7),  # fewer tiles than workgroups
    ],
)
def test_results(kernel: Any, m: int, n: int, k: int, grid: int) -> None:
    for groups in (1, 2):
        found, _, sizes = lowered(kernel, m, n, k, grid=grid, GROUPS=groups, **SMALL)
        check(found, sizes, m, n, k)


@pytest.mark.parametrize("size", [304, 300])
@pytest.mark.parametrize("groups", [1, 2])
def test_schedules_are_proven(groups: int, size: int) -> None:
    """For all sizes and numbers of workgroups, the stores of all tiles included; copied by descriptors, and by the producer's threads."""
    found, _, _ = lowered(plain, size, size, size, stages=2, GROUPS=groups, **SMALL)
    verdict = prove(found, effort=16, stores=True)
    assert verdict.is_proven
    assert all("no two elements of its view share an address" in assumed for assumed in verdict.assumptions)


def test_tiles_that_may_meet_are_not_said_to_be_apart() -> None:
    found, _, _ = lowered(overlapping, 304, 64, 64, stages=2)
    assert any("it writes other elements than all other stores to its array" in text for text in prove(found, stores=True).assumptions)
