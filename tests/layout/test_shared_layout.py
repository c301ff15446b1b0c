"""Shared-memory layouts: inverses, and the published addresses of the swizzles."""

from collections.abc import Callable

import numpy as np
import pytest

from treadle.errors import InternalError
from treadle.layout.shared_layout import SharedLayout, dense, row_major, swizzled, xor_swizzled

LAYOUTS = [
    row_major((7, 5), (1, 0)),
    row_major((12, 40), (0, 1)),
    row_major((3, 24, 6), (2, 1, 0)),
    swizzled((192, 128), (1, 0), 2, 128),
    swizzled((2, 64, 48), (2, 1, 0), 4, 64),
    swizzled((3, 24, 64), (2, 1, 0), 1, 32),
    swizzled((4, 64), (1, 0), 2, 128),
    xor_swizzled((48, 96), (1, 0), 8, 2, 4),
    xor_swizzled((6, 4), (0, 1), 1, 1, 2),
    SharedLayout((), (3,)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inverse(layout: SharedLayout) -> None:
    elements = [layout.coords_of(offset) for offset in range(layout.size)]
    assert len(set(elements)) == layout.size
    assert all(at < side for element in elements for at, side in zip(element, layout.shape, strict=True))
    some = range(0, layout.size, 7)
    assert [layout.offset_of(elements[offset]) for offset in some] == list(some)
    assert layout.offset_array(np.array(elements, dtype=np.int64)).tolist() == list(range(layout.size))


@pytest.mark.parametrize("shape", [(7, 5), (64, 48), (48, 64), (3, 24, 6), (24,)])
def test_row_major_is_dense(shape: tuple[int, ...]) -> None:
    layout = row_major(shape, tuple(reversed(range(len(shape)))))
    for offset in range(layout.size):
        rest, expected = offset, list[int]()
        for side in reversed(shape):
            rest, at = divmod(rest, side)
            expected.append(at)
        assert layout.coords_of(offset) == tuple(reversed(expected))


def chunk_swizzle(row_bytes: int, row: int, chunk: int) -> int:
    """The published formulas, on 16-byte chunks."""
    return {128: chunk ^ row % 8, 64: chunk ^ row // 2 % 4, 32: chunk ^ row // 4 % 2}[row_bytes]


@pytest.mark.parametrize("row_bytes", [32, 64, 128])
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize(("stages", "rows", "blocks"), [(1, 64, 1), (1, 24, 1), (1, 64, 3), (2, 16, 2), (3, 24, 4), (1, 4, 2)])
def test_swizzle_formulas(row_bytes: int, element_bytes: int, stages: int, rows: int, blocks: int) -> None:
    width = row_bytes // element_bytes
    layout = swizzled((stages, rows, blocks * width), (2, 1, 0), element_bytes, row_bytes)
    assert layout.shape == (stages, rows, blocks * width)
    for stage in range(stages):
        for row in range(rows):
            for column in range(0, blocks * width, max(1, 8 // element_bytes)):
                block, inner = divmod(column * element_bytes, row_bytes)
                chunk, rest = divmod(inner, 16)
                address = ((stage * blocks + block) * rows + row) * row_bytes + 16 * chunk_swizzle(row_bytes, row, chunk) + rest
                assert layout.offset_of((stage, row, column)) * element_bytes == address


def test_stmatrix_addresses_of_a_64_wide_chunk() -> None:
    """Lane l writes row l % 16, chunk (2 jj + l / 16) ^ (l % 8) of rows of 128 bytes."""
    layout = swizzled((16, 64), (1, 0), 2, 128)
    for lane in range(32):
        for jj in range(4):
            chunk = (2 * jj + (lane >> 4)) ^ (lane & 7)
            assert layout.offset_of((lane & 15, 8 * (2 * jj + (lane >> 4)))) * 2 == (lane & 15) * 128 + 16 * chunk


def test_xor_swizzle_formula() -> None:
    layout = xor_swizzled((32, 64), (1, 0), 8, 2, 4)
    for row in range(32):
        for column in range(64):
            vector = (column // 8) ^ (row // 2 % 4)
            assert layout.offset_of((row, column)) == row * 64 + vector * 8 + column % 8


@pytest.mark.parametrize("make", [
    lambda: swizzled((64, 48), (1, 0), 2, 128),  # inner extent is no multiple of a row
    lambda: swizzled((12, 64), (1, 0), 2, 128),  # 12 rows: neither a power of two nor a multiple of 8
    lambda: swizzled((64, 64), (1, 0), 2, 48),
    lambda: xor_swizzled((64, 24), (1, 0), 8, 1, 2),
    lambda: xor_swizzled((12, 64), (1, 0), 8, 1, 8),
    lambda: row_major((4, 3, 96), (2, 0, 1)),
    lambda: row_major((4, 4), (0, 0)),
    lambda: SharedLayout(((1,), (3,), (2,)), (1,)),
    lambda: SharedLayout(((2,),), (1,)),
])  # fmt: skip
def test_what_is_refused(make: Callable[[], SharedLayout]) -> None:
    with pytest.raises(InternalError):
        make()


def test_outside() -> None:
    layout = row_major((7, 5), (1, 0))
    with pytest.raises(InternalError):
        layout.offset_of((7, 0))
    with pytest.raises(InternalError):
        layout.coords_of(35)


@pytest.mark.parametrize("order", [(2, 1, 0), (2, 0, 1), (0, 1, 2), (1, 2, 0)])
@pytest.mark.parametrize("shape", [(4, 3, 96), (3, 24, 6), (7, 5, 2), (8, 8, 8)])
def test_dense_says_which_orders_row_major_has(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    found = dense(shape, order)
    if found is None:
        with pytest.raises(InternalError):
            row_major(shape, order)
    else:
        assert found == row_major(shape, order)


def test_orders_that_repeats_cannot_follow_have_no_dense_layout() -> None:
    assert dense((4, 3, 96), (2, 0, 1)) is None
