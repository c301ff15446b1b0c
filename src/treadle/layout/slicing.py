"""Boxes of register tiles that need no data movement."""

from collections.abc import Sequence

from treadle.errors import InternalError
from treadle.layout.bits import log2_exact
from treadle.layout.tile_layout import TileLayout


def slice_refusal(layout: TileLayout, extents: Sequence[int]) -> str | None:
    """Why a tile has no boxes of `extents` (see `slice_layout`), None where it has."""
    for side, base, extent in zip(layout.shape, layout.base_shape, extents, strict=True):
        if not 1 <= extent <= side:
            return f"a side of {side} has no box of {extent}"
        if extent % base if extent >= base else log2_exact(extent) < 0:
            return f"boxes of {extent} cut base tiles of {base}"
    limits = [min(base, extent) for base, extent in zip(layout.base_shape, extents, strict=True)]
    if any(_is_outside(basis, limits) for basis in (*layout.lane, *layout.warp)):
        return f"boxes of {tuple(extents)} lie in different threads of {layout.to_lists()}"
    for basis in layout.register:
        if _is_outside(basis, limits) and any(0 < value < limit for value, limit in zip(basis, limits, strict=True)):
            return f"a register basis {basis} lies in and out of boxes of {tuple(extents)}"
    return None


def _is_outside(basis: Sequence[int], limits: Sequence[int]) -> bool:
    return any(value >= limit for value, limit in zip(basis, limits, strict=True))


def slice_layout(layout: TileLayout, extents: Sequence[int]) -> TileLayout:
    """The layout of a box of `extents` (at multiples of them) of a tile: the registers that tell boxes apart are gone.

    A side need not be a whole number of boxes: what is left is in none. Raises `InternalError` where threads, not registers, tell the boxes
    apart, or a side is shorter than a box.
    """
    if (reason := slice_refusal(layout, extents)) is not None:
        raise InternalError(reason)
    sides = list(zip(layout.base_shape, extents, strict=True))
    limits, repeat = [min(side) for side in sides], tuple(max(1, extent // base) for base, extent in sides)
    register = tuple(basis for basis in layout.register if not _is_outside(basis, limits))
    return TileLayout(register, layout.lane, layout.warp, repeat)


def _registers(layout: TileLayout, offsets: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """The registers of `slice_registers`, -1 for what no register holds."""
    where = {tuple(at): register for register, at in reversed(list(enumerate(layout.register_coordinates())))}
    part = slice_layout(layout, extents).register_coordinates()
    return tuple(where.get(tuple(a + o for a, o in zip(at, offsets, strict=True)), -1) for at in part)


def slice_registers(layout: TileLayout, offsets: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """For each register of the box's layout, the register of the whole tile that holds the same element.

    Raises `InternalError` where no register does.
    """
    found = _registers(layout, offsets, extents)
    if -1 in found:
        raise InternalError(f"the box of {tuple(extents)} at {tuple(offsets)} is not what registers of {layout.to_lists()} hold")
    return found


def has_box(layout: TileLayout, offsets: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether registers of every thread hold its part of the box of `extents` at `offsets`."""
    return slice_refusal(layout, extents) is None and -1 not in _registers(layout, offsets, extents)
