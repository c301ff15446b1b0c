"""Which elements of a tile an agent's own threads hold, store and copy."""

from functools import lru_cache

import numpy as np

from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.sim.element_types import Array

COPY_BYTES = 16
"""What a thread copies at once where the hardware copies to shared memory thread by thread."""


@lru_cache(maxsize=512)
def held(layout: TileLayout, warp: int, first: bool) -> Array | None:
    """Mask of the elements a warp holds; with `first`, of those it holds before all other warps. None: all."""
    mask = np.zeros(layout.shape, dtype=np.bool_)
    if not (first and warp & layout.replicated_warp_bits()):
        mask[tuple(layout.coordinate_array()[warp].reshape(-1, layout.rank).T)] = True
    return None if mask.all() else mask


@lru_cache(maxsize=256)
def offset_table(layout: SharedLayout) -> Array:
    """Offset, in elements, of every element of a shared buffer."""
    return layout.offset_array(np.moveaxis(np.indices(layout.shape), 0, -1))


@lru_cache(maxsize=256)
def copied(layout: SharedLayout, element_bytes: int, warp: int, warps: int, lanes: int) -> Array | None:
    """Mask of the elements of a buffer that a warp copies: threads take 16 bytes each, in the order of addresses. None: all."""
    if warps == 1:
        return None
    chunk = offset_table(layout) * element_bytes // COPY_BYTES
    return chunk // lanes % warps == warp
