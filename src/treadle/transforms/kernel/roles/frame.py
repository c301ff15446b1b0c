"""What the roles of one kernel share while they are written: its parts, its ring, the buffers, and how operations are copied."""

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.dialects import pipe, tile
from treadle.ir.builtin import IndexType, i32
from treadle.ir.core import Operation, SSAValue
from treadle.transforms.kernel.roles.parts import Parts
from treadle.transforms.kernel.roles.ring import Ring
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(frozen=True, slots=True)
class RoleFrame:
    """`groups` computing groups around a ring.

    `own`: copies whose buffer each group has for itself; `slots`: the multi-buffered allocation of each buffer of the original kernel;
    `scratch`: each group's copies of the other shared buffers; `warps`: of one group; `symbols`: the kernel's index arguments.
    """

    parts: Parts
    ring: Ring
    groups: int
    warps: int
    own: frozenset[tile.CopyOp]
    slots: Mapping[SSAValue, tile.AllocOp]
    scratch: tuple[Mapping[SSAValue, SSAValue], ...]
    symbols: Mapping[str, SSAValue]

    def slot_of(self, index: IndexBuilder, buffer: SSAValue, slot: SSAValue, group: int, own: bool) -> SSAValue:
        """The buffer of one slot (of one group where each has its own)."""
        ring = self.slots[buffer]
        indices = [slot, index.constant(group)] if own else [slot]
        return index.insert(pipe.SlotOp(ring.result, indices, tile.shared_layout_of(ring.result).slot(len(indices))))


def clone(op: Operation, mapping: dict[SSAValue, SSAValue], index: IndexBuilder, group: int, place: SSAValue) -> None:
    """Copy one operation of the tile's program for a group, the workgroup's id replaced by the tile's number."""
    if isinstance(op, tile.ProgramIdOp):
        mapping[op.result] = place
    elif isinstance(op, pipe.GroupIdOp):
        mapping[op.result] = index.constant(group)
    else:
        index.builder.insert(op.clone(mapping))


def is_index_math(op: Operation) -> bool:
    """Whether an operation computes scalars alone."""
    return all(isinstance(r.type, IndexType) or r.type == i32 for r in op.results) and bool(op.results) and not op.regions
