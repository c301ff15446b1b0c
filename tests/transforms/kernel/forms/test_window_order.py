"""In which order roles take the places of a convolution's windows and its channels: what is chosen, and that sums are right in both."""

from operator import add, floordiv, mod, mul
from typing import Any

import pytest
from transforms.form_programs import assert_right, lowered, problem_of

from treadle.analysis.window_steps import WindowSteps, window_steps
from treadle.bench.suite import find
from treadle.bench.workload import Workload
from treadle.dialects import tile
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.options import CompileOptions, ContractionOverrides
from treadle.transforms.kernel.forms import roles

SAID = "all places of a window for each step of channels"


def _named(name: str) -> Workload:
    found = find(f"conv-{name}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("f16-2x9x7x192-24-k3", WindowSteps(9, 192)),
        ("f16-2x9x7x64-24-k3", None),  # one step of channels
        ("f16-2x9x7x72-24-k3", None),  # no whole steps before the loop is made longer
        ("f16-2x9x7x192-24-k1-s2", None),  # one place
    ],
)
def test_steps(name: str, steps: WindowSteps | None) -> None:
    problem = problem_of(_named(name).text)
    assert window_steps(problem.nest, problem.axes[2], 64) == steps


@pytest.mark.parametrize(
    ("name", "asked", "inside"),
    [
        ("f16-15x69x237x592-24-k5-s2", {}, True),  # 290 MB, of which 6 in 10 are read at a time
        ("f16-1x238x168x1536-64-k5", {}, True),
        ("f16-1x238x168x1536-64-k5", {"window_order": "channels"}, False),
        ("f16-2x64x64x640-640-k3", {}, False),  # the cache has all of the image
        ("f16-2x64x64x640-640-k3", {"window_order": "places"}, True),
        ("f16-32x256x256x128-128-k3", {}, False),  # what is read at a time is little
        ("f16-2x64x64x64-640-k3", {"window_order": "places"}, False),
    ],
)
def test_choice(name: str, asked: dict[str, Any], inside: bool) -> None:
    choice = roles.decide(problem_of(_named(name).text, overrides=ContractionOverrides(**asked)))[0]
    assert isinstance(choice.config, roles.Config)
    assert (choice.config.places_inside, SAID in choice.text) == (inside, inside)


@pytest.mark.parametrize("split", ["off", "3"])
@pytest.mark.parametrize("name", ["f16-2x9x7x192-24-k3", "bf16-1x11x13x136-40-k5-s2", "f16-3x8x8x128-72-k2-p1-bias"])
def test_sums(name: str, split: str) -> None:
    work = _named(name)
    module, said = lowered(work.text, "sm_90a", CompileOptions(window_order="places", split_reduction=split))
    assert SAID in said
    assert_right(work, module)


def test_tiles_in_turn() -> None:
    work = _named("f16-1x95x93x128-24-k2")
    asked = CompileOptions(form="roles", tile=(64, 32, 64), warps=(4, 1), num_stages=3, window_order="places", split_reduction="off")
    module, said = lowered(work.text, "sm_90a", asked)
    assert SAID in said
    assert_right(work, module, 1)


def _value(value: SSAValue, walked: int) -> int:
    """An index computed from constants and from the place of the loop around it."""
    op = value.owner
    if isinstance(op, Block):
        return walked
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.IntegerAttr):
        return op.value.value.data
    of = {"arith.addi": add, "arith.muli": mul, "arith.divui": floordiv, "arith.remui": mod}[op.name]
    first, second = (_value(operand, walked) for operand in op.operands)
    return int(of(first, second))


def test_places_come_first() -> None:
    asked = CompileOptions(window_order="places", split_reduction="off")
    module, _ = lowered(_named("f16-2x9x7x192-24-k3").text, "sm_90a", asked)
    copies = [op for op in module.walk() if isinstance(op, tile.CopyOp)]
    image, filters = ([_value(op.offsets[at], 64 * step) for step in range(27)] for op, at in zip(copies, (1, 0), strict=True))
    assert image == filters == [192 * place + 64 * channel for channel in range(3) for place in range(9)]
