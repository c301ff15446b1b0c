"""Forms of tiles of role kernels: their widths, and what those cost that are odd multiples of 8."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.result_stores import cut_row_clocks, stored_cut_clocks
from treadle.plan.role_clocks import RoleModel, role_cost
from treadle.plan.role_forms import alike_forms, close_widths, held_forms, waited_boxes
from treadle.plan.role_search import role_tile
from treadle.plan.role_tiles import ResultShape, RoleProblem, RoleTile
from treadle.plan.tile_config import ContractionShape

SPEC = target_spec("sm_90a")
ROW = SPEC.instruction("wgmma_m64k16_f32_bf16_bf16")
HALVES = ResultShape(2, True)


def problem(m: int, n: int | None, k: int, *results: ResultShape) -> RoleProblem:
    return RoleProblem(ROW, ContractionShape(1, m, n, k), 2, results or (HALVES,), may_be_deferred=True)


@given(n=st.integers(1, 20_000), groups=st.lists(st.integers(1, 600), max_size=4))
@example(n=232, groups=[])
@example(n=264, groups=[])
@example(n=120, groups=[])
def test_odd_multiples_of_8_cover_a_result_closely(n: int, groups: list[int]) -> None:
    """They are offered where no narrower width has as few tiles, and the multiple of 16 above has no fewer."""
    shape = ContractionShape(1, 512, n, 512, groups_n=tuple(groups))
    found = close_widths(RoleProblem(ROW, shape, 2, (HALVES,)), SPEC)
    assert all(32 < width < 256 and width % 16 == 8 for width in found)
    for width in range(40, 256, 16):
        narrower, count, wider = (shape.tiles_along_n(each) for each in (width - 8, width, width + 8))
        assert (width in found) == (narrower > count == wider)
        if width not in found:  # a multiple of 16 does as well
            assert any(each % 16 == 0 and shape.tiles_along_n(each) <= count for each in (width - 8, width + 8))


@pytest.mark.parametrize(("n", "widths"), [(232, {120, 232}), (328, {56, 168}), (264, {88}), (144, {72}), (104, {104}), (256, {88})])
def test_widths_of_some_results(n: int, widths: set[int]) -> None:
    asked = problem(8192, n, 4096)
    assert widths <= close_widths(asked, SPEC)
    assert {form.n for form in held_forms(asked, SPEC) if form.n % 16} == close_widths(asked, SPEC)
    assert {form.n for form in held_forms(asked, SPEC) if form.n % 16 == 0} == set(range(32, 257, 16)), "beside all others"


def test_other_widths_are_not_offered() -> None:
    """Where an operand is read in whole rows of a swizzle, the runtime alone knows the extent, threads copy 16 columns at a time, or
    results would be no whole pieces.
    """
    asked = problem(8192, 232, 4096)
    assert not close_widths(replace(asked, piece_bytes=(0, 2)), SPEC)
    assert close_widths(replace(asked, piece_bytes=(2, 0)), SPEC) == close_widths(asked, SPEC) != frozenset()
    assert not close_widths(replace(asked, n_step=64), SPEC)
    assert not close_widths(problem(8192, None, 4096), SPEC)
    assert not close_widths(problem(8192, 232, 4096, ResultShape(1, True)), SPEC)
    assert close_widths(problem(8192, 232, 4096, ResultShape(1, False)), SPEC), "threads store elements"
    integers = SPEC.instruction("wgmma_m64k32_i32_i8_i8")
    assert not close_widths(replace(asked, row=integers, operand_bytes=1, results=(ResultShape(4, True),)), SPEC)
    assert not any(form.n % 16 for form in alike_forms(replace(asked, n_step=64), SPEC))


@pytest.mark.parametrize("exchanged", [False, True])
def test_closer_tiles_take_less_time(exchanged: bool) -> None:
    """As many of them do less, whatever results cost that begin inside a sector, if rows do anyway."""
    result = ResultShape(2, not exchanged, pitch_bytes=2 if exchanged else 16, along_m=exchanged)
    asked = replace(problem(7064, 232, 9880, result), may_be_deferred=not exchanged)
    closer, wider = (role_cost(RoleTile(64, n, 64, 4, 2, 4), asked, SPEC) for n in (120, 128))
    assert closer < wider
    tile = role_tile(asked, SPEC)
    assert tile is not None and tile.n % 16 == 8


@pytest.mark.parametrize("n", [56, 88, 120, 168, 248])
def test_matrix_instructions_go_by_steps_of_16_columns_or_nearly(n: int) -> None:
    model = RoleModel(problem(8192, n, 4096), SPEC)
    narrower, clocks, wider = (model.matrix(RoleTile(64, width, 64, 4, 2, 4)) for width in (n - 8, n, n + 8))
    assert narrower < (narrower + wider) / 2 < clocks < wider


@given(pitch=st.sampled_from([16, 32, 64, 128]), apart=st.integers(1, 32).map(lambda count: 8 * count), size=st.sampled_from([2, 4]))
def test_tiles_that_begin_inside_a_sector_share_it(pitch: int, apart: int, size: int) -> None:
    result = ResultShape(size, True, pitch_bytes=pitch)
    most, alone = SPEC.rates.roles.cut_store_clocks, cut_row_clocks(result, SPEC)
    assert 0 <= alone <= cut_row_clocks(result, SPEC, apart) <= most
    assert cut_row_clocks(result, SPEC, apart) == (most if apart * size % 32 else alone)


def test_threads_store_few_neighbours_of_such_tiles() -> None:
    result = ResultShape(2, False, pitch_bytes=2)
    assert stored_cut_clocks(result, 168 & -168, SPEC) == 2 * stored_cut_clocks(result, 176 & -176, SPEC)


def test_light_epilogues_are_computed_in_turns_beside_192_accumulators() -> None:
    """Each box's numbers are waited for then; of what is computed otherwise, registers hold 128 beside it."""
    asked = replace(problem(8192, 8192, 4096), is_plain=False)
    light = replace(asked, is_light=True)
    most = {
        (kind.is_plain, kind.is_light, sets > 1): max(f.m * f.n // 128 for f in alike_forms(kind, SPEC) if f.ping_pong == sets)
        for kind in (asked, light, problem(8192, 8192, 4096))
        for sets in (1, 2)
    }
    assert most == {
        (False, False, False): 128,
        (False, False, True): 128,
        (False, True, False): 128,
        (False, True, True): 192,
        (True, False, False): 192,
        (True, False, True): 192,
    }
    tile = RoleTile(128, 192, 64, 4, 1, 4, 2, 1)
    assert [waited_boxes(tile, kind, SPEC) for kind in (asked, light, problem(8192, 8192, 4096))] == [0, 3, 0]
    assert waited_boxes(tile, replace(light, results=(ResultShape(4, True),)), SPEC) == 6
    assert waited_boxes(replace(tile, n=128), light, SPEC) == 0
    few = replace(light, shape=ContractionShape(1, 12304, 13200, 136))
    plain = replace(few, is_plain=True)
    # 148 us on an H200, 128 with tiles of 128 columns.
    assert role_cost(tile, few, SPEC) > 1.05 * role_cost(tile, plain, SPEC)
