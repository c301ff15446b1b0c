"""The place of a tile that its number says, where a kernel has tiles of two widths."""

from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.plan.mixed_widths import MixedWidths
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, grouped_raster


def mixed_place(index: IndexBuilder, number: SSAValue, mixed: MixedWidths, group: int) -> tuple[SSAValue, SSAValue]:
    """Row of tiles and first column of a tile. `group`: rows of tiles walked together within a block."""
    first, place = 0, None
    for block in mixed.blocks:
        # No number below zero, though the place of an earlier block's tile is not taken from here.
        reached = index.insert(arith.MaxSIOp(number, index.constant(first))) if first else number
        within = index.subtract(reached, index.constant(first))
        row, column = grouped_raster(index, within, index.constant(block.rows), index.constant(block.count), group)
        here = (
            index.add(row, index.constant(block.row)),
            index.add(index.multiply(column, block.width), index.constant(block.column)),
        )
        if place is None:
            place = here
        else:
            inside = index.insert(arith.CmpiOp(number, index.constant(first), "uge"))
            place = (index.insert(arith.SelectOp(inside, here[0], place[0])), index.insert(arith.SelectOp(inside, here[1], place[1])))
        first += block.tiles
    if place is None:
        raise InternalError("no blocks of tiles")
    return place
