"""form-roles: gives copying and computing to different warps.

Level: tile. Reads: `roles` of the kernel (`#pipe.role_plan`), its `groups`. Writes: `pipe.roles`: one producer that issues the copies of
every tile, consumers that do the rest; a loop over tiles for each of `workgroups`; buffers with as many slots as the ring has stages, whose
numbers step by `pipe.advance`. No synchronisation: that is insert-sync's. Leaves alone: kernels without `roles`.
"""

from treadle.dialects import tile
from treadle.dialects.role_plan import RolePlanAttr
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass
from treadle.transforms.kernel.roles.rebuild import rebuild_as_roles


@register_pass
@dataclass(frozen=True)
class FormRolesPass(KernelPass):
    """Works on kernels that set-roles has decided about."""

    name = "form-roles"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rebuild one kernel."""
        plan = kernel.attributes.pop("roles", None)
        if isinstance(plan, RolePlanAttr):
            rebuild_as_roles(kernel, spec, plan.data)
