"""Who executes an operation: the workgroup's warps, or one group of a role; and how many hardware arrivals one of the model's is.

The one definition of an issuing role, for the verifier, the simulator and the emitters (docs/schedule.md, "Agents"). Pure functions over
the IR.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import ArriveOp, BarrierOp, MbarrierAllocOp, MbarrierSlotOp
from treadle.dialects.tile import KernelOp, ints
from treadle.errors import InternalError
from treadle.ir.core import Operation, Region, SSAValue

# One thread can do all of these for its group, so a role of nothing else needs one warp of a group.
_ISSUED = frozenset(
    {
        "tile.copy",
        "tile.copy_out",
        "tile.view",
        "tile.program_id",
        "sync.mbarrier_expect",
        "sync.wait_phase",
        "sync.arrive",
        "sync.commit",
        "sync.wait",
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
_ISSUED_PATH, _ISSUED_QUEUE = "bulk_tensor", "bulk_store"


@dataclass(frozen=True, slots=True)
class Role:
    """One region of `pipe.roles`: its warps are `first_warp` to `first_warp + groups * warps`. `registers` 0: as they are."""

    name: str
    region: Region
    first_warp: int
    warps: int
    groups: int
    registers: int

    @property
    def end_warp(self) -> int:
        """The first warp behind the role's."""
        return self.first_warp + self.groups * self.warps

    def operations(self) -> Iterator[Operation]:
        """All operations of the role, nested ones too."""
        for block in self.region.blocks:
            for op in block.ops:
                yield from op.walk()

    @property
    def is_issuing(self) -> bool:
        """Whether the role only issues bulk copies and hands over transaction barriers: one warp of a group does that."""
        return all(_is_issued(op) for op in self.operations())

    @property
    def executing_warps(self) -> int:
        """Warps of a group that do anything."""
        return 1 if self.is_issuing else self.warps


def _is_issued(op: Operation) -> bool:
    if op.name.startswith("arith."):
        return True
    for name, needed in (("path", _ISSUED_PATH), ("queue", _ISSUED_QUEUE)):
        word = op.properties.get(name)
        if word is not None and str(word).strip('"') != needed:
            return False
    return op.name in _ISSUED


def roles_of(op: RolesOp) -> tuple[Role, ...]:
    """The roles, warps dealt out in order. Raises InternalError where the kernel has too few warps or the op is not at its top level."""
    kernel = op.parent_op()
    if not isinstance(kernel, KernelOp):
        raise InternalError("pipe.roles must stand at the top level of its kernel")
    found: list[Role] = []
    first = 0
    facts = zip(op.role_names(), op.roles, op.role_warps(), op.role_groups(), ints(op.registers), strict=True)
    for name, region, warps, groups, registers in facts:
        found.append(Role(name, region, first, warps, groups, registers))
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
