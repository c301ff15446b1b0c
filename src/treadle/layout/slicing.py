"""Boxes of register tiles that need no data movement."""

from collections.abc import Sequence

from treadle.errors import InternalError
from treadle.layout.bits import log2_exact
from treadle.layout.tile_layout import TileLayout


def slice_layout(layout: TileLayout, extents: Sequence[int]) -> TileLayout:
    """The layout of a box of `extents` (at multiples of them) of a tile: the registers that tell boxes apart are gone.

    A side need not be a whole number of boxes: what is left is in none. Raises `InternalError` where threads, not registers, tell the boxes
    apart, or a side is shorter than a box.
    """
    repeat: list[int] = []
    limits: list[int] = []
    for side, base, extent in zip(layout.shape, layout.base_shape, extents, strict=True):
        if not 1 <= extent <= side:
            raise InternalError(f"a side of {side} has no box of {extent}")
        if extent >= base:
            if extent % base:
                raise InternalError(f"boxes of {extent} cut base tiles of {base}")
            repeat.append(extent // base)
            limits.append(base)
        else:
            if log2_exact(extent) < 0:
                raise InternalError(f"boxes of {extent} cut base tiles of {base}")
            repeat.append(1)
            limits.append(extent)

    def outside(basis: Sequence[int]) -> bool:
        return any(value >= limit for value, limit in zip(basis, limits, strict=True))

    if any(outside(basis) for basis in (*layout.lane, *layout.warp)):
        raise InternalError(f"boxes of {tuple(extents)} lie in different threads of {layout.to_lists()}")
    for basis in layout.register:
        if outside(basis) and any(0 < value < limit for value, limit in zip(basis, limits, strict=True)):
            raise InternalError(f"a register basis {basis} lies in and out of boxes of {tuple(extents)}")
    register = tuple(basis for basis in layout.register if not outside(basis))
    return TileLayout(register, layout.lane, layout.warp, tuple(repeat))


def slice_registers(layout: TileLayout, offsets: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """For each register of the box's layout, the register of the whole tile that holds the same element.

    Raises `InternalError` where no register does.
    """
    part = slice_layout(layout, extents)
    where = {tuple(at): register for register, at in reversed(list(enumerate(layout.register_coordinates())))}
    found = [where.get(tuple(a + o for a, o in zip(at, offsets, strict=True)), -1) for at in part.register_coordinates()]
    if -1 in found:
        raise InternalError(f"the box of {tuple(extents)} at {tuple(offsets)} is not what registers of {layout.to_lists()} hold")
    return tuple(found)


def has_box(layout: TileLayout, offsets: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether registers of every thread hold its part of the box of `extents` at `offsets`."""
    try:
        slice_registers(layout, offsets, extents)
    except InternalError:
        return False
    return True
