"""Reducing a tile within groups along one axis: the groups are told apart by some bits of the index along it.

With mask 0 this is a whole reduction, and `group_layout(layout, axis, 0)` is `layout.with_unit_dim(axis)`.
"""

from treadle.errors import InternalError
from treadle.layout.bits import set_bits
from treadle.layout.tile_layout import Bases, TileLayout


def group_index(index: int, mask: int) -> int:
    """The group of an element at `index`: the bits of the index at the set bits of `mask`, moved together."""
    return sum((index >> bit & 1) << at for at, bit in enumerate(set_bits(mask)))


def warp_group_mask(layout: TileLayout, axis: int) -> int:
    """The bits of the index along `axis` by which warps differ; 0 where the axis stays within warps.

    Raises `InternalError` where a register or lane moves the same bits: the index would not tell the warps apart.
    """
    mask = 0
    for basis in layout.warp:
        mask |= basis[axis]
    if any(basis[axis] & mask for basis in layout.register + layout.lane):
        raise InternalError(f"warps and lanes share bits of dimension {axis} in {layout.to_lists()}")
    return mask


def group_layout(layout: TileLayout, axis: int, mask: int) -> TileLayout:
    """The layout of the tile reduced along `axis` within the groups of `mask`, kept by every thread that held a part of the group."""

    def squeeze(bases: Bases) -> Bases:
        return tuple(tuple(group_index(value, mask) if dim == axis else value for dim, value in enumerate(basis)) for basis in bases)

    repeat = tuple(1 if dim == axis else count for dim, count in enumerate(layout.repeat))
    register = tuple(basis for basis in squeeze(layout.register) if any(basis))
    return TileLayout(register, squeeze(layout.lane), squeeze(layout.warp), repeat)


def group_registers(layout: TileLayout, axis: int, mask: int) -> tuple[int, ...]:
    """For each register of `layout`, the register of `group_layout(layout, axis, mask)` that it is reduced into."""
    target = {coordinates: register for register, coordinates in group_layout(layout, axis, mask).registers()}
    return tuple(
        target[tuple(group_index(value, mask) if dim == axis else value for dim, value in enumerate(coordinates))]
        for _, coordinates in layout.registers()
    )
