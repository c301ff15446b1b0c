"""The warps of a role that share what they write to shared memory, and the named barriers at which they meet."""

from treadle.analysis.buffers import buffer_view
from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.ir.core import Operation
from treadle.records import dataclass

HAND_OVER = (tile.CopyOp, tile.ContractOp)
"""What reaches buffers that roles hand over."""


@dataclass(frozen=True, slots=True)
class Team:
    """Those of a role that meet: `warps` of them. `per_group`: each of the role's `groups` has buffers, and a barrier, of its own."""

    role: tuple[Operation, int]
    warps: int
    groups: int
    per_group: bool


class Teams:
    """The teams of a kernel's roles; hardware barriers are dealt out as they are needed, behind those that the kernel uses already."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        used = [op.id.value.data + 1 for op in kernel.walk() if isinstance(op, sync.NamedBarrierOp)]
        self._next = max([1, *used])
        self._numbers: dict[Team, int] = {}
        self._teams: dict[tuple[Operation, int], Team] = {}

    def of(self, roles: pipe.RolesOp, number: int) -> Team:
        """The team of a role."""
        if (roles, number) not in self._teams:
            self._teams[roles, number] = self._made(roles, number)
        return self._teams[roles, number]

    @staticmethod
    def _made(roles: pipe.RolesOp, number: int) -> Team:
        groups, warps = roles.role_groups()[number], roles.role_warps()[number]
        shares = groups > 1 and not all(_is_of_group(op) for op in roles.roles[number].walk())
        return Team((roles, number), warps * (groups if shares else 1), groups, groups > 1 and not shares)

    def barrier(self, team: Team) -> sync.NamedBarrierOp:
        """A meeting of a team."""
        if team not in self._numbers:
            self._numbers[team] = self._next
            self._next += team.groups if team.per_group else 1
        return sync.NamedBarrierOp(self._numbers[team], team.warps, per_group=team.per_group)


def _is_of_group(op: Operation) -> bool:
    """Whether an operation touches no shared buffer but its group's, or one that is handed over."""
    if not isinstance(op, HasEffects) or isinstance(op, HAND_OVER):
        return True
    views = [view for effect in op.effects() if (view := buffer_view(effect.resource)) is not None]
    return all(any(isinstance(index.owner, pipe.GroupIdOp) for index in view.indices) for view in views)
