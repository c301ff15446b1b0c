"""Who executes an operation: the workgroup's warps, or one group of a role; and how many hardware arrivals one of the model's is.

The one definition of an issuing role, for the verifier, the simulator and the emitters (docs/schedule.md, "Agents"). Pure functions over
the IR.
"""

from collections.abc import Iterator

from treadle.dialects.limits import machine_of
from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import ArriveOp, BarrierOp, CommitOp, MbarrierAllocOp, MbarrierSlotOp, WaitOp
from treadle.dialects.tile import CopyOp, ExtractOp, KernelOp, LoadOp, LocalLoadOp, ints
from treadle.errors import InternalError
from treadle.ir.core import Operation, Region, SSAValue
from treadle.records import dataclass

# One thread can do all of these for its group, so a role of nothing else needs one warp of a group.
_ISSUED = frozenset(
    {
        "tile.copy_out",
        "tile.view",
        "tile.lookup",
        "tile.program_id",
        "sync.mbarrier_expect",
        "sync.wait_phase",
        "sync.arrive",
        "sync.mbarrier_slot",
        "pipe.slot",
        "pipe.part",
        "pipe.group_id",
        "pipe.cluster_rank",
        "pipe.end_role",
        "stamp.begin",
        "stamp.event",
        "stamp.end",
        "scf.for",
        "scf.if",
        "scf.yield",
    }
)


@dataclass(frozen=True, slots=True)
class Role:
    """One region of `pipe.roles`: its warps are `first_warp` to `first_warp + groups * warps`. `registers` 0: as they are.

    `elected_queues`: the queues of the machine whose commits and waits one thread executes.
    """

    name: str
    region: Region
    first_warp: int
    warps: int
    groups: int
    registers: int
    elected_queues: frozenset[str]

    @property
    def end_warp(self) -> int:
        """The first warp behind the role's."""
        return self.first_warp + self.groups * self.warps

    def operations(self) -> Iterator[Operation]:
        """All operations of the role, nested ones too."""
        return self.region.walk()

    @property
    def is_issuing(self) -> bool:
        """Whether the role only issues bulk copies and hands over transaction barriers: one warp of a group does that."""
        return all(self._is_issued(op) for op in self.operations())

    def _is_issued(self, op: Operation) -> bool:
        if op.name in _ISSUED or op.name.startswith("arith."):
            return True
        if isinstance(op, CopyOp):
            return op.is_bulk
        if isinstance(op, CommitOp | WaitOp):
            return op.queue.data in self.elected_queues
        return reads_index(op)

    @property
    def executing_warps(self) -> int:
        """Warps of a group that do anything."""
        return 1 if self.is_issuing else self.warps


def reads_index(op: Operation) -> bool:
    """Whether an operation reads an index from memory: the load of one integer, or what makes an index of it."""
    if isinstance(op, LoadOp):
        return all(isinstance(use.operation, ExtractOp) for use in op.results[0].uses)
    return isinstance(op, ExtractOp)


def elected_queues(kernel: Operation) -> frozenset[str]:
    """The queues of a kernel's machine whose commits and waits one thread of a team executes."""
    spec = machine_of(kernel)
    return frozenset(queue.name for queue in spec.queues if queue.scope == "elected") if spec is not None else frozenset()


def roles_of(op: RolesOp) -> tuple[Role, ...]:
    """The roles, warps dealt out in order. Raises InternalError where the kernel has too few warps or the op is not at its top level."""
    kernel = op.parent_op()
    if not isinstance(kernel, KernelOp):
        raise InternalError("pipe.roles must stand at the top level of its kernel")
    found: list[Role] = []
    first, elected = 0, elected_queues(kernel)
    facts = zip(op.role_names(), op.roles, op.role_warps(), op.role_groups(), ints(op.registers), strict=True)
    for name, region, warps, groups, registers in facts:
        found.append(Role(name, region, first, warps, groups, registers, elected))
        first += warps * groups
    if first > kernel.num_warps.value.data:
        raise InternalError(f"roles of {first} warps in a kernel of {kernel.num_warps.value.data}")
    return tuple(found)


def role_of(op: Operation) -> Role | None:
    """The role that executes an operation; None outside roles."""
    region = op.parent_region()
    while region is not None:
        parent = region.parent
        if isinstance(parent, RolesOp):
            return next(role for role in roles_of(parent) if role.region is region)
        region = parent.parent_region() if parent is not None else None
    return None


def split_of(kernel: KernelOp) -> int:
    """Into how many equal groups conditional barriers outside roles split the warps: 0 leads, 1 trails, and so on; 1 without any."""
    listed = [op.groups for op in kernel.body.walk() if isinstance(op, BarrierOp) and op.groups is not None and role_of(op) is None]
    return max(2, *(max(ints(groups)) + 1 for groups in listed)) if listed else 1


def check_barriers(op: RolesOp) -> None:
    """A barrier of the whole workgroup within roles must be met by every role: a subset would wait forever (InternalError)."""
    meets = {role.name: any(isinstance(inner, BarrierOp) for inner in role.operations()) for role in roles_of(op)}
    if any(meets.values()) and not all(meets.values()):
        absent = ", ".join(name for name, there in meets.items() if not there)
        raise InternalError(f"sync.barrier in some roles only: the warps of {absent} never arrive; use sync.named_barrier")


def barrier_of(value: SSAValue) -> MbarrierAllocOp:
    """The allocation that a barrier is, or is a slot of."""
    op = value.owner
    while isinstance(op, MbarrierSlotOp):
        op = op.source.owner
    if not isinstance(op, MbarrierAllocOp):
        raise InternalError("a transaction barrier whose allocation is not known")
    return op


def arrivals_at(barrier: MbarrierAllocOp) -> Iterator[ArriveOp]:
    """The operations that arrive at a barrier or at one of its slots."""
    values: list[SSAValue] = [barrier.result]
    while values:
        for use in values.pop().uses:
            if isinstance(use.operation, ArriveOp):
                yield use.operation
            elif isinstance(use.operation, MbarrierSlotOp):
                values.append(use.operation.result)


def reads_peers(kernel: KernelOp) -> bool:
    """Whether workgroups of a cluster read from each other's shared memory."""
    return any(isinstance(op, LocalLoadOp) and op.peer is not None for op in kernel.body.walk())


def arriving_warps(op: ArriveOp) -> int:
    """Warps of the agent that executes `op`. Each arrives by itself: what its lanes did is then ordered without a barrier among warps."""
    role = role_of(op)
    return 1 if role is None else role.executing_warps


def arrival_unit(barrier: MbarrierAllocOp) -> int:
    """Hardware arrivals that stand for one arrival of an agent: the most warps an agent arrives with.

    Raises InternalError where another agent's warps do not divide it.
    """
    counts = {arriving_warps(op) for op in arrivals_at(barrier)} or {1}
    unit = max(counts)
    if any(unit % count for count in counts):
        raise InternalError(f"agents of {sorted(counts)} warps arrive at one barrier")
    return unit
