"""set-turns: which loops over tiles are dealt out, and to how many sets of warps; what is said where they are not."""

from typing import Any

import pytest
from language.persistent_products import SMALL, lowered, operands, overlapping, plain, residual, staged, unasked_residual

from treadle.dialects import pipe, tile
from treadle.dialects.stages import TURNS
from treadle.ir.builtin import IntegerAttr
from treadle.ir.dialects import scf
from treadle.language.build import build
from treadle.machine import target_spec
from treadle.transforms.kernel.set_turns import SetTurnsPass

PING_PONG = "set-turns: 2 sets of 4 warps take the tiles of a workgroup in turn (ping-pong)"
TOGETHER = "set-turns: all warps compute each tile"


def roles_of(kernel: tile.KernelOp) -> tuple[str, ...]:
    return next((op.role_names() for op in kernel.walk() if isinstance(op, pipe.RolesOp)), ())


@pytest.mark.parametrize("kernel", [plain, staged])
@pytest.mark.parametrize(
    ("constants", "told"),
    [
        ({}, PING_PONG),
        ({"GROUPS": 2}, PING_PONG),
        ({"GROUPS": 1}, TOGETHER),
        ({"BN": 256}, f"{TOGETHER}: a thread of 4 warps would hold 256 registers of accumulators"),
    ],
)
def test_who_takes_the_tiles(kernel: Any, constants: dict[str, Any], told: str) -> None:
    """Sets of warps where half of them can hold a tile's sums, unless somebody says otherwise."""
    found, remarks, _ = lowered(kernel, 304, 304, 304, **{**SMALL, **constants})
    assert told in remarks
    assert roles_of(found) == (("producer", "consumer0", "consumer1") if told == PING_PONG else ("producer", "consumer"))


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
    assert f"{TOGETHER}: {reason}" in told


def decided(kernel: Any, **constants: Any) -> tuple[list[scf.ForOp], tile.KernelOp]:
    """The loops that have `turns` behind the pass, and the kernel."""
    form, _, _ = kernel[3]._resolved(operands(300, 300, 300), {**SMALL, **constants}, 8, 3)
    module = build(kernel.function, form).module
    (found,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    SetTurnsPass().run(found, target_spec("sm_90a"))
    return [op for op in found.walk() if isinstance(op, scf.ForOp) and TURNS in op.attributes], found


@pytest.mark.parametrize(("groups", "sets"), [(None, 2), (2, 2), (1, 1)])
def test_what_the_text_says(groups: int | None, sets: int) -> None:
    """A number on the loop over tiles, which the pass leaves as it is where it stands there already."""
    (loop,), kernel = decided(plain, GROUPS=groups)
    assert loop.attributes[TURNS] == IntegerAttr(sets, 64)
    SetTurnsPass().run(kernel, target_spec("sm_90a"))
    assert loop.attributes[TURNS] == IntegerAttr(sets, 64)
    assert str(kernel).count(f"turns = {sets} : i64") == 1


def test_machines_without_a_producer() -> None:
    """Who asked is told; who did not gets the loop as it stands, which is what they wrote."""
    _, told, _ = lowered(plain, 300, 300, 300, target="gfx942", GROUPS=2, **SMALL)
    assert f"{TOGETHER}: no warps of their own copy for those that compute" in told
    found, told, _ = lowered(plain, 300, 300, 300, target="gfx942", **SMALL)
    assert not any(text.startswith("set-turns") for text in told)
    assert found.grid_text()[0] == "grid_x"


def test_tiles_whose_order_may_matter() -> None:
    """Nobody asked for sets, yet the loop would have been dealt out: so what keeps it is said."""
    _, told, _ = lowered(residual, 256, 64, 64, target="gfx942")
    assert any(text.startswith(TOGETHER) for text in told)
    loops, _ = decided(unasked_residual)
    assert not loops
    _, told, _ = lowered(unasked_residual, 256, 64, 64)
    assert f"{TOGETHER}: it reads an array that it writes" in told


def test_other_loops_are_not_spoken_of() -> None:
    _, told, _ = lowered(overlapping, 304, 64, 64, stages=1)
    assert not any(text.startswith("set-turns") for text in told)
