"""Tiles whose rows lie interleaved: within a block of rows every `apart`-th one follows the other, then the ones behind these.

Descriptors bring rows so whose distance breaks their alignment, when every `apart`-th row keeps it: each of `apart` descriptors
brings the rows of one remainder. Place s of a block holds row `apart * (s % each) + s // each`, where `each` is the block's rows over
`apart`: a rotation of the bits of s, so that a linear layout stays one. A matrix instruction that reads its operand so has its results
in rows, or columns, of the same order.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from treadle.errors import InternalError
from treadle.layout.bits import Coordinates
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout

_Layout = TypeVar("_Layout", SharedLayout, TileLayout)

BLOCK_ROWS = 256
"""The most rows of a block."""
PERIOD_ROWS = 8
"""After so many rows a swizzle repeats: the rows of one remainder are whole periods."""


def block_rows(rows: int, apart: int) -> int:
    """Rows of a block of a tile that has so many (its base tile's); 0 where a block has no whole periods of each remainder."""
    block = min(rows & -rows, BLOCK_ROWS)
    return block if block % (PERIOD_ROWS * apart) == 0 else 0


def row_at(place: int, apart: int, block: int) -> int:
    """The row that lies at a place; of bits, too: it is linear."""
    start, within = place // block * block, place % block
    each = block // apart
    return start + apart * (within % each) + within // each


def place_of(row: int, apart: int, block: int) -> int:
    """Where a row lies: the opposite of `row_at`."""
    start, within = row // block * block, row % block
    return start + block // apart * (within % apart) + within // apart


def _moved(bases: tuple[Coordinates, ...], dim: int, change: Mapping[int, int]) -> tuple[Coordinates, ...]:
    return tuple((*basis[:dim], change[basis[dim]], *basis[dim + 1 :]) for basis in bases)


def _changed(layout: _Layout, dim: int, apart: int, *, back: bool) -> _Layout:
    side = layout.base_shape[dim]
    if apart == 1:
        return layout
    if not (block := block_rows(side, apart)):
        raise InternalError(f"{side} rows cannot be interleaved by {apart}")
    move = place_of if back else row_at
    change = {value: move(value, apart, block) for value in range(side)}
    if isinstance(layout, SharedLayout):
        return replace(layout, offset=_moved(layout.offset, dim, change))
    found = {name: _moved(getattr(layout, name), dim, change) for name in ("register", "lane", "warp")}
    return replace(layout, **found)


def interleaved(layout: _Layout, dim: int, apart: int) -> _Layout:
    """The layout with the rows along `dim` interleaved. Raises InternalError where its base tile has no whole blocks."""
    return _changed(layout, dim, apart, back=False)


def straightened(layout: _Layout, dim: int, apart: int) -> _Layout:
    """The opposite of `interleaved`."""
    return _changed(layout, dim, apart, back=True)


def is_interleaved(layout: TileLayout, dim: int) -> bool:
    """Whether the columns, `dim`, of an instruction's results are interleaved: a thread's second register is not the column behind."""
    return bool(layout.register) and layout.register[0][dim] > 1 and block_rows(layout.base_shape[dim], layout.register[0][dim]) > 0


def apart_along(layout: SharedLayout, dim: int) -> int:
    """How far the first two rows of a buffer are apart along `dim`: 1 where its rows lie in order."""
    return next((basis[dim] for basis in layout.offset if basis[dim]), 1)
