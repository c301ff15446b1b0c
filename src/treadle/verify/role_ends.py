"""Branches with which a role ends and that are its group's own affair: no other agent can tell who takes one. The argument is in
docs/schedule.md, "Ends of roles".
"""

from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import Role, role_of
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.program import Program

_OWN = (sync.CommitOp, sync.WaitOp, sync.FenceOp, sync.SchedFenceOp, sync.SetPriorityOp)
"""Synchronisation by which an agent waits for itself alone."""


def is_of_an_end(program: Program, value: SSAValue) -> bool:
    """Whether a flag decides about nothing but such a branch."""
    flag, users = value.owner, [use.operation for use in value.uses]
    if not isinstance(flag, tile.LocalFlagOp) or len(users) != 1:
        return False
    (branch,), role = users, role_of(flag)
    if role is None or not isinstance(branch, scf.IfOp) or branch.results or branch.parent is not flag.parent:
        return False
    block = flag.parent
    if block is None or block.parent is not role.region or not isinstance(branch.next_op, pipe.EndRoleOp):
        return False
    return all(_is_own(program, op, role) for op in branch.walk() if op is not branch)


def _is_own(program: Program, op: Operation, role: Role) -> bool:
    """Whether an operation of a role's group has nothing to do with what other agents wait for, or reach of its memory."""
    if isinstance(op, sync.NamedBarrierOp):
        return _is_of_group(op, role) and all(_is_apart(op, other, role) for other in program.all(sync.NamedBarrierOp))
    if op.name.startswith("sync."):
        return isinstance(op, _OWN)
    if isinstance(op, tile.CopyOp):
        return op.barrier is None and op.multicast is None
    return not isinstance(op, tile.OrderedCounterOp) and not (isinstance(op, tile.LocalLoadOp) and op.peer is not None)


def _is_of_group(op: sync.NamedBarrierOp, role: Role) -> bool:
    """Whether all warps of the executing group, and no others, are counted at a barrier, and wait there."""
    is_each = role.groups == 1 or op.per_group is not None
    return is_each and op.arrive is None and op.warps.value.data == role.executing_warps


def _is_apart(op: sync.NamedBarrierOp, other: sync.NamedBarrierOp, role: Role) -> bool:
    """Whether another use of named barriers is of the same groups, or of other barriers."""
    if op.id == other.id and op.per_group == other.per_group and _is_of_group(other, role):
        return (mine := role_of(other)) is not None and mine.region is role.region
    return _numbers(op).isdisjoint(_numbers(other))


def _numbers(op: sync.NamedBarrierOp) -> set[int]:
    role = role_of(op)
    return {op.number(group) for group in range(1 if role is None else role.groups)}
