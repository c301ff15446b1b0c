"""Rows that begin anywhere are walked from aligned addresses: wide accesses, masks at the ends alone, right and proven at odd sizes."""

from random import Random

import numpy as np
import pytest
from transforms.kernel.forms.test_rows import PARTS, arrays, assert_right, kernels, lowered
from transforms.row_texts import rows_text

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, scf
from treadle.sim.faults import SimulationFault
from treadle.sim.program import run_program
from treadle.sim.schedule import run_program_scheduled

TARGETS = ("sm_90a", "gfx942", "gfx1100")
MANY = 311
"""Rows enough for all units of every target."""
WIDTHS = {"f32": 4, "f16": 8, "bf16": 8}


def accesses(module: builtin.ModuleOp) -> list[tile.LoadOp | tile.StoreOp]:
    """Those of whole tiles of rows."""
    found = [op for op in module.walk() if isinstance(op, tile.LoadOp | tile.StoreOp)]
    return [op for op in found if tile.tile_type(op.result if isinstance(op, tile.LoadOp) else op.value).get_shape() != (1,)]


def in_turn(op: Operation) -> bool:
    """Whether an access stands in the loop over whole tiles, which has as many of them as are in flight."""
    loop = op.parent_op()
    return isinstance(loop, scf.ForOp) and sum(isinstance(one, tile.LoadOp) for one in loop.body.block.ops) > 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_long_rows_of_odd_pitch_are_read_and_written_wide(element: str, target: str) -> None:
    module = lowered(rows_text("softmax", (MANY, 70001), element), target, "schedule")
    found = accesses(module)
    assert {op.vector.value.data for op in found} == {WIDTHS[element]}
    assert {op.edges is None for op in found if in_turn(op)} == {True}
    assert {op.edges is None for op in found if not in_turn(op)} == {False}


@pytest.mark.parametrize("sizes", [(MANY, 70000), (3, 1000), (5, 777)])
def test_others_are_left_alone(sizes: tuple[int, int]) -> None:
    """Rows of whole lines, and short ones, of which a workgroup takes several."""
    module = lowered(rows_text("softmax", sizes, "f16"), "sm_90a", "schedule")
    assert not any("line" in str(kernel.config) for kernel in kernels(module))
    assert all(op.edges is None for op in accesses(module))


@pytest.mark.parametrize("seed", range(12))
def test_they_are_right(seed: int) -> None:
    """Lengths around those of lines, tiles, turns and of what registers hold; few and many rows; static and dynamic sizes."""
    draw = Random(seed)
    kind, element = draw.choice(("softmax", "layer_norm", "rms_norm", "moments")), draw.choice(("f32", "f16", "bf16"))
    sizes = (draw.randint(1, 9), draw.choice((1025, 4096, 8191, 16384, 32768, 36864, 49152)) + draw.randint(-9, 9))
    text = rows_text(kind, sizes if draw.random() < 0.7 or kind != "softmax" else (-1, -1), element)
    given = arrays(text, sizes, element, seed)
    module = lowered(text, draw.choice(TARGETS), "schedule")
    assert_right(run_program(module, given), text, given)


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_warps_apart(element: str) -> None:
    """Every agent's own part, in any order."""
    text = rows_text("softmax", (2, 5001), element)
    given = arrays(text, (2, 5001), element)
    for candidate in (0, PARTS):
        report = run_program_scheduled(lowered(text, "sm_90a", "schedule", candidate), given, "late", 0)
        assert report.ok, str(report)
        assert_right(list(report.outputs), text, given)


def test_minus_infinity_and_what_is_no_number() -> None:
    text, sizes = rows_text("softmax", (4, 70001), "f32"), (4, 70001)
    (x,) = arrays(text, sizes, "f32")
    x[0, ::3] = -np.inf
    x[1, :] = -np.inf
    x[2, 60000] = np.nan
    x[3, 5:] = -np.inf
    module = lowered(text, "sm_90a", "schedule")
    (found,) = run_program(module, [x])
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-12)


def test_the_simulator_refuses_a_group_that_is_not_aligned() -> None:
    text = rows_text("softmax", (3, 5001), "f16")
    given, module = arrays(text, (3, 5001), "f16"), lowered(text, "sm_90a", "schedule")
    for op in [op for op in module.walk() if isinstance(op, tile.LoadOp | tile.StoreOp)]:
        if isinstance(start := op.offsets[1].owner, Operation):
            start.operands[1] = start.operands[0]  # every row from its start
    with pytest.raises(SimulationFault, match="are not aligned"):
        run_program(module, given)
