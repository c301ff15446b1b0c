"""Numbers of tiles of groups that lie one behind the other: every tile has one of its own, and few belong to none."""

import pytest
from generators.grouped_contractions import routed_text
from hypothesis import given
from hypothesis import strategies as st

from treadle.analysis.group_runs import Runs, runs_along
from treadle.analysis.loop_nest import LoopNest, loop_nest
from treadle.dialects import dispatch
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.pipelines import tensor_passes
from treadle.plan.expr import constant


def nest_of(text: str) -> LoopNest:
    module = parse_module(text, "text")
    run_passes(module, tensor_passes())
    return loop_nest(next(op for op in module.walk() if isinstance(op, dispatch.KernelOp) and op.reads))


def rows_of(nest: LoopNest) -> int:
    return next(at for at, axis in enumerate(nest.axes) if axis.reach is not None)


@given(st.integers(0, 9), st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(0, 30), st.integers(1, 20))
def test_every_tile_has_a_number_of_its_own(first: int, sizes: list[int], behind: int, step: int) -> None:
    """The last group whose first number is none above that of a tile is the tile's."""
    starts = [first]
    for size in sizes:
        starts.append(starts[-1] + size)
    firsts = [start // step + group for group, start in enumerate(starts[:-1])]
    count = Runs("p0", len(sizes), "r0", constant(starts[-1] + behind)).numbers(step).as_int()
    assert count is not None
    found: dict[tuple[int, int], int] = {}
    for number in range(count):
        group = max((at for at, each in enumerate(firsts) if each <= number), default=0)
        found[group, number - firsts[group]] = number
    for group, size in enumerate(sizes):
        for place in range(-(-size // step)):
            assert (group, place) in found
    assert count <= (starts[-1] + behind) // step + len(sizes)


def test_runs_are_groups_between_neighbours_of_a_table() -> None:
    nest = nest_of(routed_text(340, 7, 72, 50))
    found = runs_along(nest, rows_of(nest))
    assert found is not None
    assert (found.block, found.groups, found.start, str(found.most)) == ("p0", 7, "r0", "340")
    assert [at for at in range(-1, len(nest.axes)) if runs_along(nest, at) is not None] == [rows_of(nest)]


@pytest.mark.parametrize("left", [True, False])
def test_a_difference_may_be_an_affine_map(left: bool) -> None:
    ways = ("affine_map<(d0, d1) -> (d0 - d1)>(%second, %start)", "affine_map<()[s0, s1] -> (s1 - s0)>()[%start, %second]")
    map_ = ways[0] if left else ways[1]
    text = routed_text(340, 7, 72, 50).replace("arith.subi %second, %start : index", f"affine.apply {map_}")
    nest = nest_of(text.replace("arith.addi %g, %one : index", "affine.apply affine_map<(d0) -> (d0 + 1)>(%g)"))
    assert runs_along(nest, rows_of(nest)) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),  # sizes in a table of their own
        ("%table[%next]", "%table[%after]"),
        ("subi %second, %start", "addi %second, %zero"),
    ],
)
def test_other_groups_are_none(old: str, new: str) -> None:
    text = routed_text(340, 7, 72, 50, form="offsets" if old else "counts")
    text = text.replace("tensor<8xi32>", "tensor<9xi32>").replace("    %next =", "    %after = arith.addi %g, %two : index\n    %next =", 1)
    text = text.replace("  %one = arith", "  %two = arith.constant 2 : index\n  %one = arith", 1).replace(old, new, 1)
    nest = nest_of(text)
    assert runs_along(nest, rows_of(nest)) is None
