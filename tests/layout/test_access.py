"""Access plans against the layouts themselves, and bank conflicts of known patterns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout.strategies import tile_layouts

from treadle.errors import InternalError
from treadle.layout.access import address_plan, bank_conflicts, global_access, global_vector_width, possible_addresses, vector_width
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled, xor_swizzled
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.machine import fragments

SHARED = [
    row_major((192, 64), (1, 0)),
    row_major((192, 64), (0, 1)),
    swizzled((192, 64), (1, 0), 2, 128),
    swizzled((192, 64), (1, 0), 2, 64),
    swizzled((192, 64), (1, 0), 4, 128),
    xor_swizzled((192, 64), (1, 0), 8, 1, 8),
    row_major((192, 192), (1, 0)),
    swizzled((192, 192), (1, 0), 2, 128),
    row_major((96, 80), (1, 0)),
]


def check_plan(tile: TileLayout, shared: SharedLayout, offsets: tuple[int, ...], element_bytes: int) -> None:
    plan = address_plan(tile, shared, element_bytes, 16, offsets)
    assert sorted(r for group in plan.groups for r in group.registers) == list(range(tile.num_registers))
    for lane in {0, 1, tile.num_lanes // 2, tile.num_lanes - 1}:
        for warp in {0, tile.num_warps - 1}:
            for group in plan.groups:
                first = plan.offset(group, lane, warp)
                assert first % plan.vector == 0
                for at, register in enumerate(group.registers):
                    where = [c + o for c, o in zip(tile.coordinates(register, lane, warp), offsets, strict=True)]
                    assert first + at == shared.offset_of(where)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("lanes", [32, 64])
def test_plan_reaches_every_element(shared: SharedLayout, lanes: int) -> None:
    for order in ((1, 0), (0, 1)):
        check_plan(blocked(shared.shape, order, 8, lanes, 4), shared, (0, 0), 2)
    part = blocked((32, 16), (1, 0), 4, lanes, 2)
    check_plan(part, shared, (64, 48), 2)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SHARED), st.integers(0, 3), st.booleans(), st.integers(0, 5), st.integers(0, 3))
def test_plan_of_fragments(shared: SharedLayout, which: int, flip: bool, row: int, column: int) -> None:
    tile = [fragments.mfma_a(16, 16), fragments.mfma_c(32), fragments.wmma_rdna3_a(), fragments.wgmma_accumulator(24)][which]
    tile = tile.permute((1, 0)) if flip else tile
    offsets = tuple(min(at * side, whole - side) // base * base for at, side, whole, base in zip(
        (row, column), tile.shape, shared.shape, tile.base_shape, strict=True))  # fmt: skip
    check_plan(tile, shared, offsets, 2)


def test_misaligned_offsets_are_refused() -> None:
    with pytest.raises(InternalError):
        address_plan(blocked((32, 16), (1, 0)), SHARED[0], 2, 16, (8, 0))
    with pytest.raises(InternalError):
        address_plan(blocked((64, 64), (1, 0)), SHARED[0], 2, 16, (192, 0))


def test_addresses_that_do_not_add_are_refused() -> None:
    steps = SharedLayout((), (4,))  # base tiles of one element
    assert address_plan(TileLayout((), ((1,), (2,)), (), (1,)), steps, 4).lane_adds == (1, 2)
    for tile in (TileLayout((), ((1,), (3,)), (), (1,)), TileLayout(((3,),), ((1,),), (), (1,))):
        assert "no additive addresses" in str(possible_addresses(tile, steps, 4))
        with pytest.raises(InternalError):
            address_plan(tile, steps, 4)


def test_vector_width() -> None:
    tile = blocked((64, 64), (1, 0), 8)
    assert vector_width(tile, row_major((64, 64), (1, 0)), 2) == 8
    assert vector_width(tile, row_major((64, 64), (1, 0)), 4) == 4
    assert vector_width(tile, swizzled((64, 64), (1, 0), 2, 128), 2) == 8
    assert vector_width(tile, xor_swizzled((64, 64), (1, 0), 4, 1, 8), 2) == 4
    assert vector_width(tile, row_major((64, 64), (0, 1)), 2) == 1
    assert vector_width(fragments.wgmma_accumulator(64), row_major((64, 64), (1, 0)), 4) == 2
    assert vector_width(blocked((96, 40), (1, 0), 8), row_major((96, 40), (1, 0)), 2) == 8


def test_columns_of_32_rows_meet_in_one_bank() -> None:
    """Lane l at row l of a 32 x 32 tile of 4-byte elements: all in one bank without swizzle, none with."""
    column = blocked((32, 32), (0, 1), 1, 32, 1)
    assert bank_conflicts(column, row_major((32, 32), (1, 0)), 4, vector=1) == 31 * 32
    assert bank_conflicts(column, row_major((32, 32), (1, 0)), 4) == 8 * 4 * 7  # 16-byte accesses, four phases, eight rows a bank
    assert bank_conflicts(column, xor_swizzled((32, 32), (1, 0), 1, 1, 32), 4) == 0
    assert bank_conflicts(column, row_major((32, 32), (0, 1)), 4) == 0
    row = blocked((32, 32), (1, 0), 1, 32, 1)
    assert bank_conflicts(row, row_major((32, 32), (1, 0)), 4) == 0


def test_fragment_loads_of_16_bytes() -> None:
    """Eight rows x 16 bytes a phase, rows 128 bytes apart: eight words of one bank without swizzle."""
    tile = fragments.mfma_a(16, 32)  # lane l: row l % 16, eight 2-byte elements
    plain, good = row_major((16, 64), (1, 0)), swizzled((16, 64), (1, 0), 2, 128)
    phases = 64 // 8
    assert bank_conflicts(tile, plain, 2) == 7 * phases
    assert bank_conflicts(tile, good, 2) == 0
    # Lanes that want the same word share it.
    assert bank_conflicts(fragments.wmma_rdna3_a(), swizzled((16, 64), (1, 0), 2, 128), 2) == 0


def counted_conflicts(tile: TileLayout, shared: SharedLayout, element_bytes: int) -> int:
    """The definition, access by access."""
    plan = address_plan(tile, shared, element_bytes)
    width = plan.vector * element_bytes
    phase = min(tile.num_lanes, 128 // max(width, 4))
    extra = 0
    for group in plan.groups:
        for first in range(0, tile.num_lanes, phase):
            starts = [plan.offset(group, lane, 0) * element_bytes for lane in range(first, first + phase)]
            words = {byte // 4 for start in starts for byte in range(start, start + width)}
            extra += max(sum(word % 32 == bank for word in words) for bank in range(32)) - 1
    return extra


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_conflicts_are_counted_right(data: st.DataObject) -> None:
    shared = data.draw(st.sampled_from(SHARED))
    tile = data.draw(tile_layouts((32, 16), 5, 1, mixed=False))
    element_bytes = data.draw(st.sampled_from([1, 2, 4, 8]))
    assert bank_conflicts(tile, shared, element_bytes) == counted_conflicts(tile, shared, element_bytes)


@pytest.mark.parametrize("shape", [(64, 64), (7, 5), (96, 40), (3, 16, 24)])
@pytest.mark.parametrize("vector", [1, 2, 4, 8])
def test_global_access(shape: tuple[int, ...], vector: int) -> None:
    dim = len(shape) - 1
    tile = blocked(shape, tuple(reversed(range(len(shape)))), 8, 32, 2)
    if global_vector_width(tile, dim, vector) != vector:
        with pytest.raises(InternalError):
            global_access(tile, dim, vector)
        return
    plan = global_access(tile, dim, vector)
    assert plan.is_disjoint
    where = tile.coordinate_array()
    assert sorted(r for group in plan.groups for r in group.registers) == list(range(tile.num_registers))
    for lane in (0, 5, 31):
        parts = np.array([b for bit, b in enumerate(plan.lane_bits) if lane >> bit & 1] or [(0,) * len(shape)]).sum(axis=0)
        for group in plan.groups:
            assert group.coordinates[dim] % vector == 0
            for at, register in enumerate(group.registers):
                expected = parts + np.array(group.coordinates)
                expected[dim] += at
                np.testing.assert_array_equal(where[0, lane, register], expected)


def test_global_vector_width_of_odd_tiles() -> None:
    assert global_vector_width(blocked((7, 5), (1, 0), 8), 1, 8) == 1
    assert global_vector_width(blocked((96, 40), (1, 0), 8), 1, 16) == 8
    assert global_vector_width(fragments.wgmma_accumulator(24), 1, 8) == 2
    assert global_vector_width(TileLayout(((1,),), ((3,),), (), (1,)), 0, 2) == 1  # lane 1 holds 3, 2
    mixed = TileLayout(((0, 1),), ((1, 2), (0, 2)), (), (1, 1))
    assert not global_access(mixed, 1, 2).is_disjoint
