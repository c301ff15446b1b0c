"""fold-turns: loops over tiles that workgroups take in turn, and what is none."""

from typing import Any

import pytest
from language.persistent_products import SMALL, check, lowered, overlapping, plain, residual, staged

from treadle.dialects import pipe, tile
from treadle.verify.check import prove

PING_PONG = "2 sets of 4 warps take those of a workgroup in turn (ping-pong)"
TOGETHER = "fold-turns: the kernel is that of one tile, and workgroups take the tiles in turn"


def roles_of(kernel: tile.KernelOp) -> tuple[str, ...]:
    return next((op.role_names() for op in kernel.walk() if isinstance(op, pipe.RolesOp)), ())


@pytest.mark.parametrize("kernel", [plain, staged])
@pytest.mark.parametrize(("constants", "sets"), [({}, 2), ({"GROUPS": 2}, 2), ({"GROUPS": 1}, 1), ({"BN": 256}, 1)])
def test_who_takes_the_tiles(kernel: Any, constants: dict[str, Any], sets: int) -> None:
    """Sets of warps where half of them can hold a tile's sums, unless somebody says otherwise."""
    found, told, _ = lowered(kernel, 304, 304, 304, **{**SMALL, **constants})
    assert roles_of(found) == (("producer", "consumer0", "consumer1") if sets == 2 else ("producer", "consumer"))
    assert (f"{TOGETHER}; {PING_PONG}" if sets == 2 else TOGETHER) in told
    assert "min(" in found.grid_text()[0] and "grid_x" in found.grid_text()[0]


@pytest.mark.parametrize(
    ("constants", "warps", "reason"),
    [
        ({"GROUPS": 2, "BN": 256}, 8, "a thread of 4 warps would hold 256 registers of accumulators"),
        ({"GROUPS": 2}, 4, "4 warps make no 2 sets of whole warpgroups"),
        ({"GROUPS": 2, "BM": 32}, 8, "the rows of a tile are no whole matrix instructions of 4 warps"),
        ({"GROUPS": 4}, 16, "4 sets of warps; there are at most 2"),
    ],
)
def test_sets_that_cannot_be_had(constants: dict[str, Any], warps: int, reason: str) -> None:
    _, told, _ = lowered(plain, 300, 300, 300, warps=warps, **{**SMALL, **constants})
    assert f"fold-turns: all warps compute each tile: {reason}" in told


def test_what_is_left_alone() -> None:
    """Machines without a producer, and tiles whose order may matter: the loop stays."""
    found, told, _ = lowered(plain, 300, 300, 300, target="gfx942", GROUPS=2, **SMALL)
    assert "fold-turns: all warps compute each tile: no warps of their own copy for those that compute" in told
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


def test_a_tile_that_reads_what_others_write_is_left_alone() -> None:
    _, told, _ = lowered(residual, 256, 64, 64, target="gfx942")
    assert any(text.startswith("fold-turns: all warps compute each tile") for text in told)
