"""Tiles of role kernels: what fits, what is chosen, boxes of results, rows of tiles walked together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.role_tiles import (
    MOST_PLAIN_SUMS,
    MOST_SUMS,
    ResultShape,
    RoleProblem,
    RoleTile,
    box_widths,
    raster,
    role_cost,
    role_tile,
    role_tiles,
    staging_bytes,
)
from treadle.plan.tile_config import ContractionShape

SPEC = target_spec("sm_90a")
ROW = SPEC.instruction("wgmma_m64k16_f32_bf16_bf16")
SIZES = st.one_of(st.none(), st.integers(1, 100_000))
SWIZZLES = (128, 64, 32)
HALVES = ResultShape(2, True)


def chosen(m: int | None, n: int | None, k: int | None, result: ResultShape = HALVES, n_step: int = 8) -> RoleTile:
    """The tile for one product of bf16."""
    tile = role_tile(RoleProblem(ROW, ContractionShape(1, m, n, k), 2, (result,), n_step), SPEC)
    assert tile is not None
    return tile


@given(m=SIZES, n=SIZES, k=SIZES, result_bytes=st.sampled_from([1, 2, 4]), in_bulk=st.booleans(), n_step=st.sampled_from([8, 64]))
def test_role_tiles_fit_shared_memory_and_registers(
    m: int | None, n: int | None, k: int | None, result_bytes: int, in_bulk: bool, n_step: int
) -> None:
    tile = chosen(m, n, k, ResultShape(result_bytes, in_bulk), n_step)
    assert tile.slots >= 2 and tile.n % n_step == 0
    ring = tile.slots * (tile.rows + tile.n) * tile.k * 2
    staging = staging_bytes([ResultShape(result_bytes, in_bulk)], tile.m, tile.n, SWIZZLES)
    assert ring + tile.groups * tile.turns * staging <= SPEC.shared_bytes_per_workgroup
    assert tile.m * tile.n // (tile.warps * SPEC.subgroup_size) <= (MOST_PLAIN_SUMS if tile.m > ROW.m else MOST_SUMS)


@pytest.mark.parametrize(
    ("columns", "size", "widths"), [(256, 2, (64,) * 4), (208, 2, (64, 64, 64, 16)), (96, 1, (64, 32)), (40, 4, (32, 8))]
)
def test_boxes_fill_rows_widest_first(columns: int, size: int, widths: tuple[int, ...]) -> None:
    found = box_widths(columns, size, SWIZZLES)
    assert found is not None and sum(found) == columns and list(found) == sorted(found, reverse=True)
    assert found == widths
    assert box_widths(columns + 1, size, SWIZZLES) is None


def test_large_products_take_large_tiles_and_small_ones_fill_the_machine() -> None:
    for size in (2048, 4096, 8192):
        tile = chosen(size, size, size)
        assert tile.rows * tile.n >= 128 * 192
    tile = chosen(512, 512, 512)
    assert tile.rows * tile.n <= 128 * 128, "few tiles would leave the machine idle"


def test_tiles_that_fill_the_last_round_are_preferred() -> None:
    tile = chosen(8192, 640, 2560)
    tiles = -(-8192 // tile.rows) * -(-640 // tile.n)
    rounds = -(-tiles // SPEC.compute_units)
    assert 8192 * 640 / (rounds * SPEC.compute_units * tile.rows * tile.n) > 0.8


def test_the_model_orders_what_was_measured() -> None:
    # Ratios to the 128 x 256 tile on an H200: 4096^3 128 x 224 0.91, 128 x 128 0.97; 8192^3 128 x 224 1.01; 2048x4096x14336 128 x 192 0.89.
    measured = {
        (4096, 4096, 4096): {(128, 224): 0.911, (128, 128): 0.968, (128, 192): 0.889},
        (8192, 8192, 8192): {(128, 224): 1.014, (128, 128): 0.963, (128, 192): 1.005},
        (2048, 4096, 14336): {(128, 192): 0.893, (128, 128): 0.951, (128, 224): 0.777},
        (8192, 640, 2560): {(128, 160): 1.507, (128, 128): 1.294},
    }
    for (m, n, k), ratios in measured.items():
        problem = RoleProblem(ROW, ContractionShape(1, m, n, k), 2, (HALVES,))
        cost = {(t.rows, t.n): role_cost(t, problem, SPEC) for t in role_tiles(problem, SPEC) if t.m == 64 and t.turns == 1}
        for tile, ratio in ratios.items():
            assert cost[128, 256] / cost[tile] == pytest.approx(ratio, rel=0.045)


def test_rows_walked_together_make_a_square_of_what_is_read() -> None:
    shape = ContractionShape(1, 8192, 8192, 8192)
    assert raster(RoleTile(64, 256, 64, 4, 2, 4), shape, SPEC) == 16
    assert raster(RoleTile(128, 128, 64, 4, 2, 4), shape, SPEC) == 8
    assert raster(RoleTile(64, 256, 64, 4, 2, 4), ContractionShape(1, 256, 8192, 8192), SPEC) <= 2
