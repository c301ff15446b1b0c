"""The ring of buffers between roles: its barriers, how its place goes on, how many slots fit."""

from dataclasses import dataclass

from treadle.dialects import tile
from treadle.ir.builtin import IntegerAttr, i32
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.machine import TargetSpec
from treadle.plan.tile_config import ROLE_MARGIN_BYTES
from treadle.transforms.kernel.allocate_shared import buffer_bytes
from treadle.transforms.kernel.roles.parts import Parts
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(slots=True)
class Ring:
    """`stages` slots with their barriers; `slot` (index) and `phase` (i32) are carried by the loops of a role."""

    stages: int
    full: SSAValue
    empty: SSAValue

    def advance(self, index: IndexBuilder, slot: SSAValue, phase: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Slot and phase of the next step: the phase turns where the slot wraps."""
        following = index.add(slot, index.constant(1))
        wraps = index.insert(arith.CmpiOp(following, index.constant(self.stages), "eq"))
        turned = index.insert(arith.XOrIOp(phase, index.insert(arith.ConstantOp(IntegerAttr(1, i32)))))
        return (
            index.insert(arith.SelectOp(wraps, index.constant(0), following)),
            index.insert(arith.SelectOp(wraps, turned, phase)),
        )


def fitting_stages(parts: Parts, groups: int, own: frozenset[tile.CopyOp], wanted: int, spec: TargetSpec) -> int:
    """As many slots of the ring as fit beside the scratch of all groups, at most `wanted`."""
    owned = {copy.destination for copy in own}
    slot = sum(buffer_bytes(alloc) * (groups if alloc.result in owned else 1) for alloc in parts.buffers)
    scratch = groups * sum(buffer_bytes(alloc) for alloc in parts.scratch)
    return min(wanted, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - scratch) // slot)
