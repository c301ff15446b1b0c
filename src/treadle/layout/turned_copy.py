"""Copies element by element into buffers that lie across the array: who copies what."""

from collections.abc import Sequence

from treadle.layout.bits import log2_exact, odd_part, power_of_two_part
from treadle.layout.tile_layout import TileLayout

SECTOR_BYTES = 32
"""What the caches move at least."""


def turned_pieces(shape: Sequence[int], inner: int, element_bytes: int, lanes: int, warps: int) -> TileLayout | None:
    """Single elements over the threads, for buffers that lie across the view: a warp takes a sector of several rows, so that neighbours in
    memory and neighbours in the buffer each keep to few transactions. `inner`: the view's contiguous dimension. None where sides are too
    short.
    """
    sector, other = SECTOR_BYTES // element_bytes, 1 - inner
    if len(shape) != 2 or power_of_two_part(shape[inner]) < sector or power_of_two_part(shape[other]) < lanes // sector:
        return None
    left, taken = [power_of_two_part(side) for side in shape], [1, 1]

    def take(dim: int, most: int) -> list[tuple[int, ...]]:
        bases: list[tuple[int, ...]] = []
        while left[dim] > 1 and len(bases) < most:
            bases.append(tuple(taken[dim] if axis == dim else 0 for axis in range(2)))
            taken[dim], left[dim] = 2 * taken[dim], left[dim] // 2
        return bases

    bits, every = log2_exact(sector), log2_exact(lanes)
    lane = (*take(inner, bits), *take(other, every - bits))
    # What a thread copies of one row lies at fixed distances from one address.
    along = take(inner, 32)
    warp = take(other, log2_exact(warps))
    warp += [(0, 0)] * (log2_exact(warps) - len(warp))
    rest = (*along, *take(other, 32))
    return TileLayout(rest, lane, tuple(warp), tuple(odd_part(side) for side in shape))
