"""From a view of shared memory to its allocation: `pipe.slot` and `pipe.part` followed to `tile.alloc`."""

from collections.abc import Sequence

from treadle.analysis.divisibility import constant_value
from treadle.dialects import pipe, tile
from treadle.ir.core import SSAValue
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class BufferView:
    """A shared buffer, or the slot of it at `indices` (its leading dimensions, outermost first)."""

    alloc: tile.AllocOp
    indices: tuple[SSAValue, ...]

    @property
    def slot_extents(self) -> tuple[int, ...]:
        """How many slots each index picks from."""
        return tile.shared_layout_of(self.alloc.result).shape[: len(self.indices)]


def buffer_view(value: SSAValue) -> BufferView | None:
    """What a value of shared memory stands for (a part for the whole); None for anything else (views of global memory, tiles)."""
    indices: tuple[SSAValue, ...] = ()
    while isinstance(owner := value.owner, pipe.SlotOp | pipe.PartOp):
        indices = (*owner.indices, *indices) if isinstance(owner, pipe.SlotOp) else indices
        value = owner.source
    return BufferView(owner, indices) if isinstance(owner, tile.AllocOp) else None


def box_in_slot(value: SSAValue, offsets: Sequence[int], extents: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where a box of a view of shared memory lies in the slot that the view is of, or in the whole buffer: as it is but for parts, which
    begin somewhere along their axis; anywhere along it where only the kernel knows which part it is.
    """
    at, wide = list(offsets), list(extents)
    while isinstance(owner := value.owner, pipe.SlotOp | pipe.PartOp):
        if isinstance(owner, pipe.PartOp):
            sides = tile.memref_type(owner.source).get_shape()
            axis = owner.axis.value.data + len(at) - len(sides)  # slots of parts have lost leading dimensions
            number = constant_value(owner.index)
            if axis >= 0 and number is not None:
                at[axis] += number * (sides[owner.axis.value.data] // owner.count.value.data)
            elif axis >= 0:
                at[axis], wide[axis] = 0, sides[owner.axis.value.data]
        value = owner.source
    return tuple(at), tuple(wide)
