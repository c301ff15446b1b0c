"""Whose time a kernel can record, and where the records lie."""

from treadle.dialects import pipe, tile
from treadle.ir.core import Block
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Where one kernel's records lie: `lanes` names its agents in order, `workgroups` are recorded, each agent has `capacity` words."""

    lanes: tuple[str, ...]
    workgroups: int
    capacity: int

    @property
    def words(self) -> int:
        """Words of the whole array."""
        return self.workgroups * len(self.lanes) * self.capacity


def agents_of(kernel: tile.KernelOp) -> list[tuple[Block, tuple[str, ...]]]:
    """The agents that have records, by the block that is their program: groups of roles, or, in kernels without roles, warps."""
    roles = next((op for op in kernel.body.block.ops if isinstance(op, pipe.RolesOp)), None)
    if roles is None:
        return [(kernel.body.block, tuple(f"warp {n}" for n in range(kernel.num_warps.value.data)))]
    counted = zip(roles.roles, roles.role_names(), roles.role_groups(), strict=True)
    return [(region.block, (name,) if n == 1 else tuple(f"{name} {g}" for g in range(n))) for region, name, n in counted]


def record_layout(kernel: tile.KernelOp, workgroups: int, capacity: int) -> RecordLayout:
    """Where the records of a kernel's agents lie."""
    return RecordLayout(tuple(name for _, names in agents_of(kernel) for name in names), workgroups, capacity)
