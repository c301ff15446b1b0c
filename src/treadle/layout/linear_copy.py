"""Copies into shared memory whose lanes fill neighbouring places in order, whatever they read: who copies what.

The places are fixed, so a swizzle is in the reading: each lane brings what belongs where it writes. Such a copy has no bank conflicts, and
the buffer's layout is free for its readers.
"""

from math import prod

from treadle.layout.bits import log2_exact
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout


def linear_copy(shared: SharedLayout, inner: int, piece: int, lanes: int, warps: int) -> TileLayout | None:
    """Which thread brings which elements of a buffer in pieces of `piece` elements along dimension `inner`.

    One instruction of a warp fills `piece * lanes` elements that follow one another. Where the buffer holds fewer than one of each warp,
    the others bring the same once more. None where pieces are not together along `inner`, or not in its order (a
    swizzle of finer steps), where one instruction fills more than a base tile, or where repeated base tiles would all be brought more
    than once.
    """
    own, together = log2_exact(piece), log2_exact(piece * lanes)
    if own < 0 or together > len(shared.offset) or warps & (warps - 1):
        return None
    steps = [tuple(1 << bit if axis == inner else 0 for axis in range(shared.rank)) for bit in range(own)]
    if list(shared.offset[:own]) != steps or any(place[inner] % piece for place in shared.offset[own:]):
        return None
    rest = shared.offset[together:]
    warp_bits = log2_exact(warps)
    missing = warp_bits - min(len(rest), warp_bits)
    if missing and prod(shared.repeat) > 1:
        return None
    nothing = ((0,) * shared.rank,) * missing
    register = shared.offset[:own] + rest[warp_bits:]
    return TileLayout(register, shared.offset[own:together], rest[:warp_bits] + nothing, shared.repeat)


def instructions(copy: TileLayout, piece: int) -> int:
    """How many instructions each warp makes of a copy."""
    return copy.num_registers // piece
