"""Numbers of tiles of groups: every tile has one of its own; few belong to none, and of groups whose sizes are known none does."""

import pytest
from generators.grouped_contractions import diagonal_text, grouped_text, routed_text
from hypothesis import given
from hypothesis import strategies as st

from treadle.analysis.group_runs import MOST_LISTED, ListedRuns, Runs, runs_along
from treadle.analysis.loop_nest import LoopNest, loop_nest
from treadle.dialects import dispatch
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.pipelines import tensor_passes
from treadle.plan.expr import constant


def nest_of(text: str) -> LoopNest:
    module = parse_module(text, "text")
    run_passes(module, tensor_passes())
    return loop_nest(next(op for op in module.walk() if isinstance(op, dispatch.KernelOp) and op.blocks))


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
    assert isinstance(found, Runs)
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


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 20))
def test_every_number_of_a_list_is_that_of_a_tile(sizes: list[int], step: int) -> None:
    runs = ListedRuns("p0", tuple(sizes))
    firsts, tiles = runs.firsts(step), [(group, place) for group, size in enumerate(sizes) for place in range(-(-size // step))]
    assert runs.numbers(step) == len(tiles)
    found = [max((first, group) for group, first in firsts if first <= number) for number in range(len(tiles))]
    assert [(group, number - first) for number, (first, group) in enumerate(found)] == tiles


@pytest.mark.parametrize("sizes", [(100, 37, 200, 5), (0, 7, 0, 0), (3, 2)])
def test_sizes_of_a_list_are_evaluated(sizes: tuple[int, ...]) -> None:
    nest = nest_of(grouped_text(sizes, 72, 50))
    assert runs_along(nest, rows_of(nest)) == ListedRuns("p0", sizes)
    assert [at for at in range(-1, len(nest.axes)) if runs_along(nest, at) is not None] == [rows_of(nest)]


def test_groups_of_one_of_several_loops_are_listed() -> None:
    nest = nest_of(diagonal_text((3, 40), (64, 64), 50, outer=5))
    assert runs_along(nest, rows_of(nest)) == ListedRuns("p1", (3, 40))


def test_other_lists_are_none() -> None:
    """Equal groups have one extent; sizes that the indices of two loops tell together, and very many groups, are left as they are."""
    assert all(axis.reach is None for axis in nest_of(grouped_text((64, 64, 64), 72, 50)).axes)
    line = "%count = arith.addi %count_0, %count_step_1 : index"
    less = "%count_g = arith.addi %count_0, %count_step_1 : index\n    %count_u = arith.subi %count_g, %u : index"
    pairs = diagonal_text((3, 40), (64, 64), 50, outer=3).replace(line, f"{less}\n    %count = arith.maxsi %count_u, %zero : index")
    for text in (pairs, _many(MOST_LISTED + 1)):
        nest = nest_of(text)
        assert runs_along(nest, rows_of(nest)) is None
    nest = nest_of(_many(MOST_LISTED))
    assert runs_along(nest, rows_of(nest)) == ListedRuns("p0", (*[0] * 60, *range(MOST_LISTED - 60)))


def _many(groups: int) -> str:
    """Groups of max(0, g - 60) rows."""
    text = grouped_text((1, 2), 72, 50).replace("in (2)", f"in ({groups})").replace("tensor<2x50", f"tensor<{groups}x50")
    text = text.replace("tensor<3x", "tensor<20000x").replace(
        "%count = arith.addi %count_0, %count_step_1", "%count = arith.maxsi %more, %zero"
    )
    sizes = "    %one = arith.constant 1 : index\n    %sixty = arith.constant 60 : index\n    %more = arith.subi %g, %sixty : index"
    return text.replace("    %one = arith.constant 1 : index", sizes)
