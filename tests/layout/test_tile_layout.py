"""Laws of register layouts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout.strategies import SHAPES, tile_layouts

from treadle.errors import InternalError
from treadle.layout.tile_layout import NEW_DIM, TileLayout, blocked, broadcast_registers

LAYOUTS = st.sampled_from(SHAPES).flatmap(tile_layouts)
PLAIN = st.sampled_from(SHAPES).flatmap(lambda shape: tile_layouts(shape, mixed=False))
COMMON = settings(max_examples=80, deadline=None)


@COMMON
@given(LAYOUTS)
def test_every_element_is_held_once_by_the_storing_threads(layout: TileLayout) -> None:
    where = layout.coordinate_array()
    assert where.shape == (layout.num_warps, layout.num_lanes, layout.num_registers, layout.rank)
    lanes = [lane for lane in range(layout.num_lanes) if not lane & layout.replicated_lane_bits()]
    warps = [warp for warp in range(layout.num_warps) if not warp & layout.replicated_warp_bits()]
    stored = sorted(tuple(int(c) for c in at) for at in where[np.ix_(warps, lanes)].reshape(-1, layout.rank))
    assert stored == sorted(np.ndindex(*layout.shape))


@COMMON
@given(LAYOUTS, st.data())
def test_the_three_forms_of_the_map_agree(layout: TileLayout, data: st.DataObject) -> None:
    where = layout.coordinate_array()
    lane = data.draw(st.integers(0, layout.num_lanes - 1))
    warp = data.draw(st.integers(0, layout.num_warps - 1))
    for register, start in layout.registers():
        assert layout.coordinates(register, lane, warp) == tuple(where[warp, lane, register])
        assert layout.coordinates(register, 0, 0) == start


@COMMON
@given(LAYOUTS)
def test_permute(layout: TileLayout) -> None:
    order = tuple(reversed(range(layout.rank)))
    turned = layout.permute(order)
    assert turned.shape == layout.shape[::-1]
    assert turned.permute(order) == layout
    old = list(layout.permute_registers(order))
    np.testing.assert_array_equal(turned.coordinate_array(), layout.coordinate_array()[:, :, old][..., list(order)])


@COMMON
@given(PLAIN, st.data())
def test_reduction_and_broadcast_back(layout: TileLayout, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, layout.rank - 1))
    unit = layout.with_unit_dim(dim)
    assert unit.shape == tuple(1 if axis == dim else side for axis, side in enumerate(layout.shape))
    into = list(layout.unit_dim_registers(dim))
    assert set(into) == set(range(unit.num_registers))
    flat = layout.coordinate_array().copy()
    flat[..., dim] = 0
    np.testing.assert_array_equal(flat, unit.coordinate_array()[:, :, into])
    # Broadcasting the reduced tile back moves nothing.
    assert broadcast_registers(unit, layout) == tuple(into)
    assert set(layout.lane_bits_along(dim)) == {bit for bit, basis in enumerate(layout.lane) if basis[dim]}


@COMMON
@given(LAYOUTS, st.data())
def test_permute_with_a_new_dim(layout: TileLayout, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, layout.rank))
    order = [*range(dim), NEW_DIM, *range(dim, layout.rank)]
    wide = layout.permute(order)
    assert wide.shape == (*layout.shape[:dim], 1, *layout.shape[dim:])
    assert wide.permute([axis for axis in range(wide.rank) if axis != dim]) == layout
    np.testing.assert_array_equal(np.delete(wide.coordinate_array(), dim, axis=-1), layout.coordinate_array())
    assert layout.permute_registers(order) == tuple(range(layout.num_registers))


def test_permute_leaves_out_only_unit_dims() -> None:
    layout = blocked((4, 32), (1, 0))
    with pytest.raises(InternalError, match="permutation"):
        layout.permute([1])


@COMMON
@given(LAYOUTS, st.data())
def test_contiguous(layout: TileLayout, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, layout.rank - 1))
    run = layout.contiguous(dim)
    where = layout.coordinate_array()
    grouped = where.reshape(*where.shape[:2], -1, run, layout.rank)
    assert not np.any(grouped[..., 0, dim] % run)
    step = np.zeros((run, layout.rank), dtype=np.int64)
    step[:, dim] = np.arange(run)
    np.testing.assert_array_equal(grouped - grouped[..., :1, :], np.broadcast_to(step, grouped.shape))


def test_lanes_that_reverse_neighbours_break_contiguity() -> None:
    assert TileLayout(((1,),), ((3,),), (), (1,)).contiguous(0) == 1  # lane 1 holds 3, 2


@pytest.mark.parametrize("shape", [(1,), (7,), (192,), (64, 64), (7, 5), (96, 40), (3, 64, 10)])
@pytest.mark.parametrize(("lanes", "warps"), [(32, 1), (32, 4), (64, 8)])
def test_blocked(shape: tuple[int, ...], lanes: int, warps: int) -> None:
    order = tuple(reversed(range(len(shape))))
    layout = blocked(shape, order, 8, lanes, warps)
    assert (layout.shape, layout.num_lanes, layout.num_warps) == (shape, lanes, warps)
    even = shape[-1] & -shape[-1]
    assert layout.contiguous(len(shape) - 1) >= min(8, even)
    # No thread holds a copy while another could have shared the work.
    if layout.replicated_lane_bits() or layout.replicated_warp_bits():
        assert len(layout.register) <= 3


def test_blocked_fills_the_fastest_dimension_first() -> None:
    layout = blocked((64, 64), (1, 0), 8, 32, 4)
    assert layout.register == ((0, 1), (0, 2), (0, 4), (16, 0), (32, 0))
    assert layout.lane == ((0, 8), (0, 16), (0, 32), (1, 0), (2, 0))
    assert layout.warp == ((4, 0), (8, 0))
    assert layout.to_lists() == [
        [[0, 1], [0, 2], [0, 4], [16, 0], [32, 0]],
        [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0]],
        [[4, 0], [8, 0]],
        [1, 1],
    ]


def test_broadcast_that_moves_data_is_refused() -> None:
    full = blocked((64, 64), (1, 0), 8)
    row = blocked((1, 64), (1, 0), 4)
    assert broadcast_registers(row, full) is None
    assert broadcast_registers(full.with_unit_dim(0), full) is not None
    unit = full.with_unit_dim(0)
    assert broadcast_registers(TileLayout(unit.register, unit.lane[::-1], unit.warp, unit.repeat), full) is None
    short = TileLayout((), ((0, 1),), (), (1, 2))  # the same lanes, but registers that miss half
    with pytest.raises(InternalError):
        broadcast_registers(short, full)


@pytest.mark.parametrize("bases", [
    (((2,),), (), (), (1,)),  # element 1 is never reached
    (((1,), (1,)), (), (), (1,)),  # twice
    (((1,), (2,), (3,)), (), (), (1,)),
    (((1, 0),), (), (), (1,)),
    ((), (), (), (0,)),
    ((), (), (), ()),
])  # fmt: skip
def test_what_is_no_layout(bases: tuple[tuple[tuple[int, ...], ...], tuple[()], tuple[()], tuple[int, ...]]) -> None:
    with pytest.raises(InternalError):
        TileLayout(*bases)


def test_mixed_bases_have_no_reduction() -> None:
    with pytest.raises(InternalError):
        TileLayout(((1, 1), (0, 1)), (), (), (1, 1)).with_unit_dim(1)
    with pytest.raises(InternalError):
        blocked((4, 4), (1, 0)).coordinates(0, 32, 0)
