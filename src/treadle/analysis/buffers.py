"""From a view of shared memory to its allocation: `pipe.slot` and `pipe.part` followed to `tile.alloc`."""

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
