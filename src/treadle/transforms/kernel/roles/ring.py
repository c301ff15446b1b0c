"""The ring of buffers between roles: how its place goes on, how many slots fit."""

from dataclasses import dataclass

from treadle.dialects import pipe, tile
from treadle.ir.core import SSAValue
from treadle.machine import TargetSpec
from treadle.plan.role_tiles import ROLE_MARGIN_BYTES
from treadle.transforms.kernel.allocate_shared import buffer_bytes
from treadle.transforms.kernel.roles.parts import Parts
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(frozen=True, slots=True)
class Ring:
    """`stages` slots; the number of the next one (index) is carried by the loops of a role."""

    stages: int

    def advance(self, index: IndexBuilder, slot: SSAValue, steps: SSAValue | None = None) -> SSAValue:
        """The slot of the next step, or behind so many."""
        return index.insert(pipe.AdvanceOp(slot, index.constant(1) if steps is None else steps, self.stages))


def fitting_stages(parts: Parts, groups: int, turns: int, own: frozenset[tile.CopyOp], wanted: int, spec: TargetSpec) -> int:
    """As many slots of the ring as fit beside the scratch of all groups of all `turns`, at most `wanted`."""
    owned = {copy.destination for copy in own}
    slot = sum(buffer_bytes(alloc) * (groups if alloc.result in owned else 1) for alloc in parts.buffers)
    scratch = groups * turns * sum(buffer_bytes(alloc) for alloc in parts.scratch)
    return min(wanted, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - scratch) // slot)
