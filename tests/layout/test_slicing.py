"""Boxes of register tiles."""

import pytest

from treadle.errors import InternalError
from treadle.layout.fragments import tile_fragment
from treadle.layout.slicing import has_box, slice_layout, slice_registers
from treadle.layout.tile_layout import blocked
from treadle.machine import fragments


@pytest.mark.parametrize(("n", "box"), [(256, 64), (192, 64), (128, 32), (64, 64)])
def test_column_boxes_of_a_matrix_accumulator(n: int, box: int) -> None:
    layout = tile_fragment(fragments.wgmma_accumulator(n), (64, n), (1, 1))
    part = slice_layout(layout, (64, box))
    assert part.shape == (64, box)
    for at in range(0, n, box):
        registers = slice_registers(layout, (0, at), (64, box))
        assert len(set(registers)) == part.num_registers
        for warp, lane in ((0, 0), (3, 17), (2, 31)):
            for mine, whole in enumerate(registers):
                row, column = part.coordinates(mine, lane, warp)
                assert layout.coordinates(whole, lane, warp) == (row, column + at)


def test_boxes_at_any_eight_columns_of_a_matrix_accumulator() -> None:
    layout = tile_fragment(fragments.wgmma_accumulator(256), (64, 256), (1, 1))
    for at in (8, 104, 168, 176, 192):
        assert has_box(layout, (0, at), (64, 64))
        part = slice_layout(layout, (64, 64))
        for mine, whole in enumerate(slice_registers(layout, (0, at), (64, 64))):
            assert layout.coordinates(whole, 5, 2) == tuple(x + y for x, y in zip(part.coordinates(mine, 5, 2), (0, at), strict=True))
    for at in (4, 1, 200):
        assert not has_box(layout, (0, at), (64, 64))
    with pytest.raises(InternalError, match="registers"):
        slice_registers(layout, (0, 2), (64, 64))


def test_boxes_that_threads_tell_apart_are_refused() -> None:
    with pytest.raises(InternalError, match="different threads"):
        slice_layout(blocked((64, 64), (1, 0), 8), (8, 64))
    with pytest.raises(InternalError, match="cut base tiles"):
        slice_layout(blocked((64, 64), (1, 0), 8), (64, 48))
