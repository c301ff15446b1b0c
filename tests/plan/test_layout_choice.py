"""Candidates and costs of register layouts."""

import pytest

from treadle.layout.tile_layout import TileLayout
from treadle.machine import target_spec
from treadle.plan.contract_layouts import matrix_layouts, multiply_add_layouts
from treadle.plan.layout_choice import (
    GlobalAccess,
    access_layout,
    blocked_tile,
    candidates,
    coalesced,
    conversion_cost,
    global_cost,
    reduce_cost,
)

H200 = target_spec("sm_90a")


def accumulator(m: int = 128, n: int = 128) -> TileLayout:
    return matrix_layouts(H200.instruction("wgmma_m64k16_f32_f16_f16"), m, n, 4, 1).accumulator


@pytest.mark.parametrize("shape", [(128, 64), (64, 192), (1, 1000), (3, 5), (1,), (2, 4, 8, 16)])
def test_candidates_cover_the_tile(shape: tuple[int, ...]) -> None:
    for contiguous in (None, *range(len(shape))):
        for layout in candidates(shape, GlobalAccess(contiguous, 4, 4), 32, 4, transposes=True, reduced=frozenset({len(shape) - 1})):
            assert layout.shape == shape
            assert (layout.num_lanes, layout.num_warps) == (32, 4)


def test_coalesced_rows_cost_their_sectors() -> None:
    access = GlobalAccess(1, 8, 2)
    layout = coalesced((64, 64), access, 32, 4)
    # 2048 bytes a warp are 64 sectors and 16 lines in 4 accesses.
    assert global_cost(layout, access) == 64 + 16 + 4
    column = GlobalAccess(0, 8, 2)
    assert global_cost(layout, column) > 4 * global_cost(layout, access)


def test_small_tiles_use_all_threads_before_vectors() -> None:
    assert coalesced((1, 128), GlobalAccess(1, 4, 4), 32, 4).num_registers == 1
    assert coalesced((1, 512), GlobalAccess(1, 4, 4), 32, 4).num_registers == 4


def test_f32_accumulators_are_stored_directly_and_f16_through_shared_memory() -> None:
    layout = accumulator()
    assert access_layout(layout, GlobalAccess(1, 4, 4), 32, 4, H200.banks)[0] == layout
    assert access_layout(layout, GlobalAccess(1, 8, 2), 32, 4, H200.banks)[0] != layout


def test_conversions_within_threads_cost_nothing() -> None:
    a = blocked_tile((8, 128), (1, 0), (1, 4), 32, 1)
    b = TileLayout(a.register[::-1], a.lane, a.warp, a.repeat)
    assert conversion_cost(a, b, 4, H200.banks) == 0
    assert conversion_cost(a, blocked_tile((8, 128), (0, 1), (4, 1), 32, 1), 4, H200.banks) > 0


def test_reductions_across_warps_cost_more() -> None:
    within = blocked_tile((4, 1024), (1, 0), (1, 4), 32, 4, warp_order=(0, 1))
    across = blocked_tile((4, 1024), (1, 0), (1, 4), 32, 4)
    assert not any(basis[1] for basis in within.warp)
    assert reduce_cost(within, 1) < reduce_cost(across, 1)


@pytest.mark.parametrize(("m", "n", "wm", "wn"), [(64, 64, 2, 2), (16, 192, 1, 4), (8, 8, 4, 1), (1, 16, 1, 4), (48, 16, 2, 2)])
def test_multiply_add_layouts_agree_between_operands_and_accumulator(m: int, n: int, wm: int, wn: int) -> None:
    layouts = multiply_add_layouts(m, n, wm, wn, 32, 4)
    a, b, acc = layouts.a, layouts.b, layouts.accumulator
    assert a is not None and b is not None
    assert (acc.shape, a.shape, b.shape) == ((m, n), (m, 4), (4, n))
    for lane, warp in ((0, 0), (5, 1), (31, wm * wn - 1)):
        rows = {row for row, _ in (a.coordinates(r, lane, warp) for r in range(a.num_registers))}
        columns = {column for _, column in (b.coordinates(r, lane, warp) for r in range(b.num_registers))}
        for r in range(acc.num_registers):
            row, column = acc.coordinates(r, lane, warp)
            assert row in rows and column in columns
