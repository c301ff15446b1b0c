"""Last tiles along an axis that begin earlier, so that they end with it: no load of theirs goes beyond. What they have in common with the
tiles ahead of them is computed twice, and stored once, by the last ones.
"""

from collections.abc import Mapping
from typing import cast

from treadle.dialects import tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


def overlapping(index: IndexBuilder, place: SSAValue, extent: int, size: int) -> tuple[SSAValue, SSAValue]:
    """Where the tile at a `place` of an axis of `size` elements begins, and where what it stores ends. Tiles behind the last one, which
    fill clusters, compute what it does and store nothing: they begin where what is not the last one's ends.
    """
    begin, last, end = index.multiply(place, extent), index.constant(size - extent), index.constant(size)
    is_last = index.insert(arith.CmpiOp(place, index.constant(size // extent), "eq"))
    return index.insert(arith.MinSIOp(begin, last)), index.insert(arith.SelectOp(is_last, end, last))


def ending(index: IndexBuilder, view: SSAValue, ends: Mapping[int, SSAValue]) -> SSAValue:
    """A view that ends elsewhere along the dimensions that have an end here."""
    if not ends:
        return view
    whole = cast(tile.ViewOp, view.owner)
    sizes = [ends.get(dim, size) for dim, size in enumerate(whole.size_values())]
    offset, align = whole.offset.value.data, whole.align.value.data
    return index.insert(tile.ViewOp(whole.pointer, sizes, whole.stride_values(), offset=offset, align=align))
