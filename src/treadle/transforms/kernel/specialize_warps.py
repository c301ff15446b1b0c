"""specialize-warps: gives copying and computing to different warps, which hand buffers over through rings of barriers.

Level: tile to schedule. Reads: the kernel's `groups`; `stages`, `turns` and `pending` of its config (`RoleChoices`); the machine's
facts. Writes: a kernel of roles: one producer that issues the copies of every tile, one consumer a group; a loop over tiles for each of
`workgroups` (0: one tile a workgroup, no loop); a ring of at most `stages` slots with a full and an empty barrier each (`roles/`).
Leaves alone: kernels without `stages`; those it must refuse (a remark says why).

The shape of the kernel (a ring of mbarriers, a producer warp, register reallocation) is that of CUTLASS, DeepGEMM and fast.cu on Hopper.
"""

from dataclasses import dataclass

from treadle import remarks
from treadle.dialects import tile
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.transforms.kernel.kernel_ir import KernelPass, config_int
from treadle.transforms.kernel.roles.frame import RoleChoices
from treadle.transforms.kernel.roles.late_stores import late_refusal
from treadle.transforms.kernel.roles.parts import cluster_refusal, refusal, turns_refusal
from treadle.transforms.kernel.roles.rebuild import rebuild_as_roles

NAME = "specialize-warps"


@register_pass
@dataclass(frozen=True)
class SpecializeWarpsPass(KernelPass):
    """Works on kernels whose config has `stages`."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        stages = config_int(kernel, "stages", 0)
        if not stages:
            return
        if (reason := refusal(kernel)) is not None:
            remarks.emit("refusal", NAME, kernel.sym_name.data, reason, location_of(kernel))
            return
        turns, pending = config_int(kernel, "turns", 1), config_int(kernel, "pending", 0)
        if turns > 1 and (reason := turns_refusal(kernel)) is not None:
            remarks.emit("refusal", NAME, kernel.sym_name.data, f"no turns: {reason}", location_of(kernel))
            turns = 1
        workgroups = config_int(kernel, "workgroups", spec.compute_units)
        if turns > 1 and not workgroups:
            remarks.emit("refusal", NAME, kernel.sym_name.data, "no turns: each workgroup has one tile", location_of(kernel))
            turns = 1
        cluster = config_int(kernel, "cluster", 1)
        if cluster > 1 and (reason := cluster_refusal(kernel, cluster)) is not None:
            remarks.emit("refusal", NAME, kernel.sym_name.data, f"no clusters: {reason}", location_of(kernel))
            cluster = 1
        # Index arithmetic on sizes that only the runtime knows does not fit 40 registers.
        registers = (56, 224) if kernel.symbol_names() else (40, 232)
        late = bool(config_int(kernel, "late", 0))
        if late and (reason := late_refusal(kernel, turns, workgroups, spec)) is not None:
            remarks.emit("refusal", NAME, kernel.sym_name.data, f"no late stores: {reason}", location_of(kernel))
            late = False
        rebuild_as_roles(kernel, spec, RoleChoices(stages, turns, pending, registers, workgroups, late, cluster))
