"""Interleaved rows: where each row lies, and that layouts stay layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InternalError
from treadle.layout.fragments import wgmma_a, wgmma_accumulator
from treadle.layout.interleaving import apart_along, block_rows, interleaved, place_of, row_at, straightened
from treadle.layout.shared_layout import swizzled

APART = (1, 2, 4, 8)


@pytest.mark.parametrize("apart", APART)
def test_places_are_rotated_rows(apart: int) -> None:
    rows = [row_at(place, apart, 64) for place in range(192)]
    assert sorted(rows) == list(range(192))
    assert [place_of(row, apart, 64) for row in rows] == list(range(192))
    each = 64 // apart
    for remainder in range(apart):  # one after the other: what one descriptor brings
        assert rows[remainder * each : (remainder + 1) * each] == list(range(remainder, 64, apart))
    for one in range(64):
        for other in range(64):
            assert row_at(one ^ other, apart, 64) == row_at(one, apart, 64) ^ row_at(other, apart, 64)


@given(st.sampled_from([32, 64, 96, 128, 192, 256]), st.sampled_from([1, 2, 4]), st.sampled_from(APART), st.booleans())
def test_buffers(rows: int, size: int, apart: int, is_wide: bool) -> None:
    columns = 128 // size * (2 if is_wide else 1)
    straight = swizzled((rows, columns), (1, 0), size, 128)
    block = block_rows(straight.base_shape[0], apart)
    if not block:
        with pytest.raises(InternalError):
            interleaved(straight, 0, apart)
        return
    layout = interleaved(straight, 0, apart)
    assert straightened(layout, 0, apart) == straight
    assert apart_along(layout, 0) == apart
    for row in range(rows):
        for column in range(0, columns, 5):
            assert layout.offset_of((row, column)) == straight.offset_of((place_of(row, apart, block), column))
    slots = straight.stacked(3)
    assert interleaved(slots, 1, apart) == layout.stacked(3)
    assert interleaved(slots, 1, apart).slot() == layout


@pytest.mark.parametrize("apart", APART)
def test_results_have_the_rows_of_a(apart: int) -> None:
    straight, operand = wgmma_accumulator(72), wgmma_a(2)
    layout, of_a = interleaved(straight, 0, apart), interleaved(operand, 0, apart)
    for register in range(layout.num_registers):
        for lane in (0, 5, 17, 31):
            for warp in range(4):
                row, column = straight.coordinates(register, lane, warp)
                assert layout.coordinates(register, lane, warp) == (row_at(row, apart, 64), column)
    for register in range(of_a.num_registers):
        row, column = operand.coordinates(register, 9, 2)
        assert of_a.coordinates(register, 9, 2) == (row_at(row, apart, 64), column)


def test_blocks_have_whole_periods() -> None:
    assert [block_rows(64, apart) for apart in (1, 2, 4, 8, 16)] == [64, 64, 64, 64, 0]
    assert [block_rows(96, apart) for apart in (2, 4, 8)] == [32, 32, 0]
    assert [block_rows(rows, 8) for rows in (256, 512, 192)] == [256, 256, 64]
