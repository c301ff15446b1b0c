"""What the roles of one kernel share while they are written: its parts, its ring, the buffers, and how operations are copied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.dialects import pipe, tile
from treadle.dialects.role_plan import RolePlan
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith
from treadle.plan.mixed_widths import MixedWidths
from treadle.transforms.kernel.roles.parts import Parts
from treadle.transforms.kernel.roles.ring import Ring
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end


@dataclass(frozen=True, slots=True)
class Consumer:
    """One computing role, that of a turn, within its region: the executing group's number and its own copies of the scratch buffers."""

    turn: int
    group: SSAValue
    scratch: Mapping[SSAValue, SSAValue]


@dataclass(frozen=True, slots=True)
class RoleFrame:
    """`groups` consumer warpgroups a tile around a ring, in each of `plan.ping_pong` sets.

    `own`: copies whose buffer each group has for itself; `slots`: the multi-buffered allocation of each buffer of the original kernel;
    `scratch`: by turn, the allocation of each other shared buffer, one slot a group; `warps`: of one group, of `lanes` threads;
    `symbols`: the kernel's index arguments.
    `shared`: copies of which each workgroup of a cluster makes its part, for all of them. `mixed`: where tiles of two widths lie.
    """

    plan: RolePlan
    parts: Parts
    ring: Ring
    groups: int
    warps: int
    lanes: int
    own: frozenset[tile.CopyOp]
    slots: Mapping[SSAValue, tile.AllocOp]
    scratch: tuple[Mapping[SSAValue, tile.AllocOp], ...]
    symbols: Mapping[str, SSAValue]
    shared: frozenset[tile.CopyOp] = frozenset()
    mixed: MixedWidths | None = None

    def consumer(self, index: IndexBuilder, turn: int) -> Consumer:
        """The computing role of a turn, at the head of its region."""
        group = index.insert(pipe.GroupIdOp())
        return Consumer(turn, group, {old: slot_of(index, new, [group]) for old, new in self.scratch[turn].items()})

    @property
    def peers(self) -> tuple[int, ...] | None:
        """The workgroups of the cluster, None where there is one."""
        return tuple(range(self.plan.cluster)) if self.plan.cluster > 1 else None

    def slot_of(self, index: IndexBuilder, buffer: SSAValue, slot: SSAValue, group: SSAValue, own: bool) -> SSAValue:
        """The buffer of one slot (of one group where each has its own)."""
        return slot_of(index, self.slots[buffer], [slot, group] if own else [slot])


def slot_of(index: IndexBuilder, alloc: tile.AllocOp, indices: Sequence[SSAValue]) -> SSAValue:
    """One slot of an allocation."""
    return index.insert(pipe.SlotOp(alloc.result, indices, tile.shared_layout_of(alloc.result).slot(len(indices))))


def stacked(block: Block, buffer: SSAValue, *counts: int) -> tile.AllocOp:
    """An allocation of that many of a buffer, by leading dimensions."""
    layout = tile.shared_layout_of(buffer)
    for count in reversed(counts):
        layout = layout.stacked(count)
    made = tile.AllocOp(tile.shared_buffer_type(layout.shape, tile.memref_type(buffer).element_type, layout))
    block.add_op(made)
    return made


def start_of_role(
    fixed: Sequence[Operation], symbols: Mapping[str, SSAValue], block: Block
) -> tuple[IndexBuilder, dict[SSAValue, SSAValue]]:
    """Scalars are born in the role that uses them: what lives across the roles' branch would hold registers in all of them."""
    index = builder_at_end(block, symbols)
    known: dict[SSAValue, SSAValue] = {}
    for op in fixed:
        if not isinstance(op, tile.ViewOp):
            index.builder.insert(op.clone(known))
    return index, known


def clone(op: Operation, mapping: dict[SSAValue, SSAValue], index: IndexBuilder, group: SSAValue, place: SSAValue) -> None:
    """Copy one operation of the tile's program for a group, the workgroup's id replaced by the tile's number."""
    if isinstance(op, tile.ProgramIdOp):
        mapping[op.result] = place
    elif isinstance(op, pipe.GroupIdOp):
        mapping[op.result] = group
    else:
        index.builder.insert(op.clone(mapping))


def step_count(index: IndexBuilder, bounds: Sequence[SSAValue]) -> SSAValue:
    """How many steps a loop from `bounds[0]` below `bounds[1]` by `bounds[2]` makes; nothing below zero."""
    low, high, step = bounds
    distance = index.subtract(index.insert(arith.MaxSIOp(high, low)) if index.static(high) is None else high, low)
    return index.divide(index.add(distance, index.subtract(step, index.constant(1))), step)
