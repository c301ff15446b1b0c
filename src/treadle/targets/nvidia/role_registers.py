"""Registers that move between the roles of a kernel, a warpgroup's at a time (`setmaxnreg`)."""

from collections.abc import Sequence

from treadle.dialects.agents import Role
from treadle.dialects.tile import ContractOp
from treadle.errors import InternalError
from treadle.machine import RegisterMoves, TargetSpec
from treadle.targets.nvidia.residency import resident_workgroups
from treadle.targets.simt.context import KernelContext

WARPGROUP = 4


def _moves(spec: TargetSpec) -> RegisterMoves:
    if spec.register_moves is None:
        raise InternalError(f"registers do not move between roles on {spec.name}")
    return spec.register_moves


def _at_start(ctx: KernelContext, spec: TargetSpec) -> int:
    """Registers a thread that ptxas gives a kernel whose registers move: as many as its threads may have."""
    return spec.registers_at_start(ctx.kernel.num_warps.value.data * resident_workgroups(ctx.kernel))


def check(ctx: KernelContext, roles: Sequence[Role], spec: TargetSpec) -> None:
    """Raise `InternalError` for roles whose registers the machine does not move, or does not have."""
    before, moves = _at_start(ctx, spec), _moves(spec)
    taken = (ctx.warps - roles[-1].end_warp) * ctx.lanes * before
    for role in roles:
        taken += (role.end_warp - role.first_warp) * ctx.lanes * (role.registers or before)
        if role.registers and (role.first_warp % moves.warps or role.end_warp % moves.warps):
            raise InternalError(f"role '{role.name}' takes warps {role.first_warp} to {role.end_warp - 1}: registers move by warpgroups")
        if role.registers % moves.granule or (role.registers and not moves.fewest <= role.registers <= moves.most):
            raise InternalError(f"role '{role.name}' with {role.registers} registers a thread")
        matrix = any(isinstance(op, ContractOp) and op.instruction.data != "fma" for op in role.operations())
        if matrix and (role.first_warp % WARPGROUP or role.warps % WARPGROUP):
            raise InternalError(f"role '{role.name}' issues matrix instructions from warps {role.first_warp} on in groups of {role.warps}")
    if any(role.registers for role in roles) and taken > before * ctx.warps * ctx.lanes:
        # The hardware would wait for them for ever.
        raise InternalError(f"roles want {taken} registers of the {before * ctx.warps * ctx.lanes} that their workgroup begins with")


def move(ctx: KernelContext, role: Role, spec: TargetSpec) -> None:
    """Give the warps of a role the registers that it asks for, at its start."""
    before = _at_start(ctx, spec)
    if role.registers and role.registers != before:
        ctx.b.asm(f"setmaxnreg.{'inc' if role.registers > before else 'dec'}.sync.aligned.u32 {role.registers};", "~{memory}")
