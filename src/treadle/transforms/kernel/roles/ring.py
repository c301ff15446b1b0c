"""The ring of buffers between roles: its barriers, how its place goes on, how many slots fit."""

from dataclasses import dataclass

from treadle.dialects import tile
from treadle.ir.builtin import IntegerAttr, i32
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.machine import TargetSpec
from treadle.plan.role_tiles import ROLE_MARGIN_BYTES
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
        return (
            index.insert(arith.SelectOp(wraps, index.constant(0), following)),
            index.insert(arith.SelectOp(wraps, _turned(index, phase), phase)),
        )

    def skip(self, index: IndexBuilder, slot: SSAValue, phase: SSAValue, steps: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Slot and phase after `steps` more steps: where a role goes on after tiles that others compute."""
        known = index.static(steps)
        if known is not None:
            slots, turns = index.constant(known % self.stages), known // self.stages % 2
            moved = index.add(slot, slots)
            wraps = index.insert(arith.CmpiOp(moved, index.constant(self.stages), "uge"))
            following = index.insert(arith.SelectOp(wraps, index.subtract(moved, index.constant(self.stages)), moved))
            same, other = (phase, _turned(index, phase)) if not turns else (_turned(index, phase), phase)
            return following, index.insert(arith.SelectOp(wraps, other, same))
        total, stages = index.add(slot, steps), index.constant(self.stages)
        turns_odd = index.remainder(index.divide(total, stages), index.constant(2))
        is_odd = index.insert(arith.CmpiOp(turns_odd, index.constant(0), "ne"))
        return index.remainder(total, stages), index.insert(arith.SelectOp(is_odd, _turned(index, phase), phase))


def _turned(index: IndexBuilder, phase: SSAValue) -> SSAValue:
    return index.insert(arith.XOrIOp(phase, index.insert(arith.ConstantOp(IntegerAttr(1, i32)))))


def fitting_stages(parts: Parts, groups: int, turns: int, own: frozenset[tile.CopyOp], wanted: int, spec: TargetSpec) -> int:
    """As many slots of the ring as fit beside the scratch of all groups of all `turns`, at most `wanted`."""
    owned = {copy.destination for copy in own}
    slot = sum(buffer_bytes(alloc) * (groups if alloc.result in owned else 1) for alloc in parts.buffers)
    scratch = groups * turns * sum(buffer_bytes(alloc) for alloc in parts.scratch)
    return min(wanted, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - scratch) // slot)
