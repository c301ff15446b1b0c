"""set-roles: which warps copy and which compute, and how they work together.

Level: tile. Reads: what the config asks of roles (`stages`, `turns`, `pending`, `late`, `cluster`, `workgroups`); operations; the
machine's facts. Writes: `roles` (`#pipe.role_plan`), which form-roles carries out. Leaves alone: kernels that have it already; those whose
config asks for no roles; those it must refuse. What is refused or cut back, a remark says.

The shape of the kernels (a ring of mbarriers, a producer warp, register reallocation) is that of CUTLASS, DeepGEMM and fast.cu on Hopper.
"""

from dataclasses import dataclass

from treadle import remarks
from treadle.dialects import tile
from treadle.dialects.role_plan import RolePlan, RolePlanAttr
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.transforms.kernel.kernel_ir import KernelPass, config_int
from treadle.transforms.kernel.roles.copy_rings import fitting_stages, is_chain, partition_refusal
from treadle.transforms.kernel.roles.late_stores import late_refusal
from treadle.transforms.kernel.roles.parts import cluster_refusal, refusal, turns_refusal

NAME = "set-roles"
CHAINED = (("turns", "ping-pong"), ("late", "deferred stores"), ("cluster", "clusters"))
"""What kernels of contractions that read each other's results do without, by key of the config."""


def role_plan(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[RolePlan, list[str]]:
    """The roles of a kernel that `refusal` lets pass, and what of its config could not be had."""
    cut: list[str] = []
    ping_pong, workgroups = config_int(kernel, "turns", 1), config_int(kernel, "workgroups", spec.compute_units)
    reason = turns_refusal(kernel) if workgroups else "each workgroup has one tile"
    if ping_pong > 1 and reason is not None:
        cut.append(f"no ping-pong: {reason}")
        ping_pong = 1
    cluster = config_int(kernel, "cluster", 1)
    if cluster > 1 and (reason := cluster_refusal(kernel, cluster)) is not None:
        cut.append(f"no clusters: {reason}")
        cluster = 1
    deferred = config_int(kernel, "late", 0)
    if deferred and (reason := late_refusal(kernel, ping_pong, workgroups, spec)) is not None:
        cut.append(f"no deferred stores: {reason}")
        deferred = 0
    wanted = config_int(kernel, "stages")
    stages = max(1, fitting_stages(kernel, ping_pong, wanted, spec))
    if stages < wanted:
        cut.append(_cut_back(stages, wanted))
    producer, consumer = _registers(kernel, spec)
    in_flight = min(config_int(kernel, "pending", 0), 1)
    return RolePlan(stages, ping_pong, in_flight, producer, consumer, workgroups, deferred, cluster), cut


def chain_plan(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[RolePlan | None, list[str]]:
    """The roles of a kernel whose contractions read each other's results, and what of its config could not be had; None without room."""
    wanted = config_int(kernel, "stages")
    stages = fitting_stages(kernel, 1, wanted, spec)
    cut = [f"no {name}: contractions read each other's results" for key, name in CHAINED if config_int(kernel, key, 0) > (key != "late")]
    if 0 < stages < wanted:
        cut.append(_cut_back(stages, wanted))
    producer, consumer = _registers(kernel, spec)
    workgroups = config_int(kernel, "workgroups", spec.compute_units)
    return (RolePlan(stages, 1, 0, producer, consumer, workgroups) if stages else None), cut


def _cut_back(stages: int, wanted: int) -> str:
    return f"the ring has {stages} stages instead of {wanted}: shared memory holds no more beside the other buffers"


def _registers(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[int, int]:
    """Of a thread of the producer and of a consumer; 0 where registers do not move."""
    moves = spec.register_moves
    if moves is None:
        return 0, 0
    return moves.index_split if kernel.symbol_names() else moves.split


@register_pass
@dataclass(frozen=True)
class SetRolesPass(KernelPass):
    """Works on kernels whose config has `stages`."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Decide for one kernel."""
        if not config_int(kernel, "stages", 0) or "roles" in kernel.attributes:
            return
        subject, place = kernel.sym_name.data, location_of(kernel)
        reason, plan, cut = refusal(kernel), None, []
        if reason is None:
            plan, cut = role_plan(kernel, spec)
        elif is_chain(kernel) and (reason := partition_refusal(kernel)) is None:
            plan, cut = chain_plan(kernel, spec)
            reason = "not one slot of its rings fits beside the other buffers" if plan is None else None
        if plan is None:
            remarks.emit("refusal", NAME, subject, reason or "", place)
            return
        for text in cut:
            remarks.emit("refusal", NAME, subject, text, place)
        kernel.attributes["roles"] = RolePlanAttr(plan)
