"""set-roles: which warps copy and which compute, and how they work together.

Level: tile. Reads: what the config of a form with roles asks for; operations; the
machine's facts. Writes: `roles` (`#pipe.role_plan`), which form-roles carries out. Leaves alone: kernels that have it already; those whose
config asks for no roles; those it must refuse. What is refused or cut back, a remark says. A kernel whose warpgroups share a tile is none
without roles: it is rejected, and its next candidate is tried.

The shape of the kernels (a ring of mbarriers, a producer warp, register reallocation) is that of CUTLASS, DeepGEMM and fast.cu on Hopper.
"""

from collections.abc import Sequence
from math import prod

from treadle import remarks
from treadle.analysis.divisibility import constant_value
from treadle.dialects import pipe, tile
from treadle.dialects.role_plan import RolePlan, RolePlanAttr
from treadle.dialects.stages import TURNS
from treadle.errors import InternalError, KernelRejected
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.split_tiles import part_slots
from treadle.records import dataclass
from treadle.transforms.kernel.forms import attention, roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.roles import chained_steps
from treadle.transforms.kernel.roles.copy_rings import (
    copied_bytes,
    epilogue_boxes,
    fitting_plan,
    fitting_stages,
    is_chain,
    partition_refusal,
    stages_beside_cache,
    threads_copies,
    through_registers,
)
from treadle.transforms.kernel.roles.deferred_stores import deferral_refusal
from treadle.transforms.kernel.roles.parts import cluster_refusal, refusal, turns_refusal
from treadle.transforms.kernel.roles.splitting import splitting

NAME = "set-roles"
BESIDE_ACCUMULATORS = 32
"""Registers of a consumer's thread, for descriptors and addresses."""
TO_MERGE = 128
"""The same of kernels that merge parts themselves, all together: with 96 they spill."""
MOST_COPIED = 3.5
"""Bytes that threads copy for each that goes through registers, where two groups of warps copy: with 64 rows of 64 in bf16 through
registers beside 64 rows of 160 they took 0.98 of the time on an H200, beside 64 rows of 192 from 0.91 to 1.14 of it."""


def asked_roles(kernel: tile.KernelOp) -> roles.Config:
    """What the config asks of roles; InternalError for another form."""
    config = config_of(kernel)
    if not isinstance(config, roles.Config):
        raise InternalError(f"kernel {kernel.sym_name.data} is of no form with roles")
    return config


def role_plan(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[RolePlan, list[str]]:
    """The roles of a kernel that `refusal` lets pass, and what of its config could not be had."""
    cut: list[str] = []
    asked = asked_roles(kernel)
    ping_pong, workgroups = asked.ping_pong, asked.workgroups
    if TURNS in kernel.attributes and threads_copies(kernel):
        del kernel.attributes[TURNS]
        cut.append("each workgroup has one tile: the proof of copies by threads that go on from tile to tile takes too long")
    by_grid = int(TURNS in kernel.attributes)
    reason = turns_refusal(kernel) if workgroups or by_grid else "each workgroup has one tile"
    if ping_pong > 1 and reason is not None:
        cut.append(f"no ping-pong: {reason}")
        ping_pong = 1
    cluster = asked.cluster
    several = bool(workgroups or by_grid)
    if cluster > 1 and (reason := cluster_refusal(kernel, asked.tiles_together, in_turn=several)) is not None:
        cut.append(f"no clusters: {reason}")
        cluster = 1
    deferred = int(asked.deferred_store)
    if deferred and (reason := deferral_refusal(kernel, ping_pong, workgroups, spec)) is not None:
        cut.append(f"no deferred stores: {reason}")
        deferred = 0
    copies = threads_copies(kernel)
    through = [copy for copy in copies if through_registers(copy, spec)]
    copying = _copying_groups(kernel, copies, through, spec)
    producer, consumer = _moved_registers(kernel, copying, spec)
    in_flight = min(asked.steps_in_flight, 1)
    wanted = RolePlan(asked.num_stages, ping_pong, in_flight, producer, consumer, workgroups, deferred, cluster)
    wanted = wanted._replace(by_grid=by_grid, cluster_n=asked.cluster_n if cluster > 1 else 1, copying_groups=copying)
    if spec.register_moves is not None and (split := splitting(kernel)) is not None:
        producer, splitter, consumer = spec.register_moves.three_split
        slots = part_slots(len(split.stores))
        wanted = wanted._replace(producer_registers=producer, consumer_registers=consumer, split_slots=slots, splitter_registers=splitter)
    plan = fitting_plan(kernel, wanted, spec)
    if plan.num_stages < wanted.num_stages:
        cut.append(_cut_back(plan.num_stages, wanted.num_stages))
    if asked.keeps_cache and (fewer := stages_beside_cache(kernel, plan, spec)) < plan.num_stages:
        cut.append(f"the ring has {fewer} stages instead of {plan.num_stages}: more would leave threads' copies too little cache")
        plan = plan._replace(num_stages=fewer)
    if len(through) < len(copies):
        # Half of the ring is in flight, half is there: consumers never wait for a copy that was issued last. Where other copies go through
        # registers each step waits for its loads anyway.
        plan = plan._replace(fills_in_flight=1 if through else plan.num_stages // 2)
    # A step keeps its slot until the next one has begun, and copies in flight are handed over when later ones are issued.
    if plan.num_stages < 2 + plan.fills_in_flight:
        plan = plan._replace(steps_in_flight=0)
    if plan.epilogue_slots < (boxes := epilogue_boxes(kernel)):
        told = f"what the epilogue reads has {plan.epilogue_slots} slots for {boxes} boxes a tile"
        cut.append(f"{told}: shared memory holds no more beside the other buffers")
    return plan, cut


def chain_plan(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[RolePlan | None, list[str]]:
    """The roles of a kernel whose contractions read each other's results, and what of its config could not be had; None without room."""
    asked = asked_roles(kernel)
    wanted = asked.num_stages
    without = {"ping-pong": asked.ping_pong > 1, "deferred stores": asked.deferred_store, "clusters": asked.cluster > 1}
    producer, consumer = _shared_registers(kernel, spec)
    plan = RolePlan(wanted, 1, _chained_steps(kernel, asked.workgroups, consumer, spec), producer, consumer, asked.workgroups)
    if kernel.attributes.pop(pipe.ISSUE_TURNS, None) is not None and plan.steps_in_flight:
        plan = plan._replace(issue_turns=1)
    stages = fitting_stages(kernel, plan, spec)
    cut = [f"no {name}: contractions read each other's results" for name, is_asked in without.items() if is_asked]
    if 0 < stages < wanted:
        cut.append(_cut_back(stages, wanted))
    return (plan._replace(num_stages=stages) if stages else None), cut


def _chained_steps(kernel: tile.KernelOp, workgroups: int, registers: int, spec: TargetSpec) -> int:
    """1 where every loop of a chain has registers for steps that overlap, else 0. A loop that may make no step is one a workgroup."""
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and any(isinstance(one, tile.ContractOp) for one in op.body.block.ops)]
    threads = num_warps(kernel) * spec.subgroup_size
    return int(all(chained_steps.fits(loop, threads, registers) and (not workgroups or _surely_runs(loop)) for loop in loops))


def _surely_runs(loop: scf.ForOp) -> bool:
    low, high = constant_value(loop.lb), constant_value(loop.ub)
    return low is not None and high is not None and low < high


def _cut_back(stages: int, wanted: int) -> str:
    return f"the ring has {stages} stages instead of {wanted}: shared memory holds no more beside the other buffers"


def _shared_registers(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[int, int]:
    """The same as `_registers`, where several workgroups share a unit's: the role that computes has what the other leaves."""
    producer, consumer = _registers(kernel, spec)
    moves, asked = spec.register_moves, asked_roles(kernel)
    resident = asked.resident if isinstance(asked, attention.Config) else 0
    if moves is None or resident < 2:
        return producer, consumer
    computing = num_warps(kernel)
    each = spec.registers_at_start(resident * (computing + moves.warps))
    left = (each * (computing + moves.warps) - producer * moves.warps) // computing // moves.granule * moves.granule
    return producer, min(left, consumer)


def _computing_warps(kernel: tile.KernelOp) -> int:
    return num_warps(kernel) * kernel.group_count() * asked_roles(kernel).ping_pong


def _registers(kernel: tile.KernelOp, spec: TargetSpec) -> tuple[int, int]:
    """Of a thread of the producer and of a consumer; 0 where registers do not move."""
    moves = spec.register_moves
    if moves is None:
        return 0, 0
    producer, consumer = moves.index_split if kernel.symbol_names() else moves.split
    if copies := threads_copies(kernel):
        producer, consumer = moves.shift_split if any(through_registers(copy, spec) for copy in copies) else moves.copy_split
    computing = _computing_warps(kernel)
    left = (spec.registers_at_start(computing + moves.warps) * (computing + moves.warps) - producer * moves.warps) // computing
    return producer, min(consumer, left // moves.granule * moves.granule)


def _moved_registers(kernel: tile.KernelOp, copying: int, spec: TargetSpec) -> tuple[int, int]:
    """The same as `_registers`; 0 where all threads have as many without that they move, as one consumer warpgroup and its producer do, or
    as many as they need beside several `copying` groups.
    """
    producer, consumer = _registers(kernel, spec)
    moves = spec.register_moves
    if moves is None:
        return producer, consumer
    suffice = copying > 1 or spec.registers_at_start(_computing_warps(kernel) + moves.warps) >= max(producer, consumer)
    return (0, 0) if suffice else (producer, consumer)


def _copying_groups(kernel: tile.KernelOp, copies: Sequence[tile.CopyOp], through: Sequence[tile.CopyOp], spec: TargetSpec) -> int:
    """Groups of warps of the producer: two where copies go `through` registers, so that one's loads and shifts run while the other waits.

    One where two have no pieces of equal number, where most of what threads copy goes another way, which gains nothing and needs more
    cache at a time, or where registers do not suffice: those of consumers, or of arithmetic on sizes that only the runtime knows.
    """
    moves = spec.register_moves
    if not through or moves is None or splitting(kernel) is not None or kernel.symbol_names():
        return 1
    everything, shifted = (sum(copied_bytes(copy, kernel.group_count()) for copy in each) for each in (copies, through))
    pieces = 2 * moves.warps * spec.subgroup_size * spec.max_vector_bytes
    if any(copied_bytes(copy, kernel.group_count()) % pieces for copy in through) or everything > MOST_COPIED * shifted:
        return 1
    ops = list(kernel.walk())
    accumulators = max(prod(tile.tile_type(op.result).get_shape()) for op in ops if isinstance(op, tile.ContractOp))
    needed = accumulators // (num_warps(kernel) * spec.subgroup_size) + BESIDE_ACCUMULATORS
    if any(isinstance(op, tile.CountInOp) for op in ops):
        needed = max(needed, TO_MERGE)
    return 2 if needed <= spec.registers_at_start(_computing_warps(kernel) + 2 * moves.warps) else 1


@register_pass
@dataclass(frozen=True)
class SetRolesPass(KernelPass):
    """Works on kernels of a form with roles."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Decide for one kernel."""
        if not isinstance(config_of(kernel), roles.Config) or "roles" in kernel.attributes:
            return
        subject, place = kernel.sym_name.data, location_of(kernel)
        reason, plan, cut = refusal(kernel), None, []
        if reason is None:
            plan, cut = role_plan(kernel, spec)
        elif is_chain(kernel) and (reason := partition_refusal(kernel)) is None:
            plan, cut = chain_plan(kernel, spec)
            reason = "not one slot of its rings fits beside the other buffers" if plan is None else None
        if plan is None and kernel.group_count() > 1:
            # Consumer warpgroups share a tile: without roles nobody tells them apart.
            raise KernelRejected(subject, f"roles are refused: {reason}", place)
        if plan is None:
            remarks.emit("refusal", NAME, subject, reason or "", place)
            kernel.attributes.pop(TURNS, None)  # each workgroup has a tile
            return
        for text in cut:
            remarks.emit("refusal", NAME, subject, text, place)
        kernel.attributes["roles"] = RolePlanAttr(plan)
