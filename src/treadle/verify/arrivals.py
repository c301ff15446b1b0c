"""What arrivals at counters order between the workgroups of a launch. The argument is in docs/schedule.md, "Arrivals".

Statically, once a kernel: which pairs of accesses of different workgroups an arrival orders, and what each arrival has to hand on for that.
"""

from dataclasses import field
from itertools import pairwise

from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import role_of
from treadle.dialects.effects import Effect
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.records import dataclass
from treadle.verify.counting import Counting, counting_of
from treadle.verify.global_accesses import GlobalAccess
from treadle.verify.global_arrays import GlobalArrays
from treadle.verify.program import Program

Key = tuple[Operation, Effect | None]


@dataclass(slots=True)
class HandOver:
    """An arrival: what it is to release, done before it, and what may be done only once it has acquired."""

    op: tile.CountInOp
    access: GlobalAccess
    counting: Counting
    released: set[Operation] = field(default_factory=set[Operation])
    acquired: set[Operation] = field(default_factory=set[Operation])


class Tracked:
    """The global arrays of a program that are held against one another, and the arrivals that order accesses to them."""

    def __init__(self, program: Program) -> None:
        self.arrays = GlobalArrays(program)
        self.arrivals = Arrivals(program, self.arrays)


class Arrivals:
    """The arrivals of a program. `orders` is asked for every pair that may meet; what it relies on gathers in `hand_overs`."""

    def __init__(self, program: Program, arrays: GlobalArrays) -> None:
        self.program, self.arrays = program, arrays
        self.hand_overs: list[HandOver] = []
        for op in program.all(tile.CountInOp):
            if (access := self._counters(op)) is not None:
                self.hand_overs.append(HandOver(op, access, counting_of(arrays.forms, op, access)))
        self._known: dict[tuple[GlobalAccess, GlobalAccess], bool] = {}

    def _counters(self, op: tile.CountInOp) -> GlobalAccess | None:
        """The access of an arrival to its counters; None where something else touches the array, which then counts nothing known."""
        effects = [effect for effect in op.effects() if effect.resource is op.counters]
        access = self.arrays.of(op, effects[-1])
        alone = all(other.op is op for other in self.arrays.read() if other.pointer is access.pointer)
        return access if alone else None

    def orders(self, one: GlobalAccess, other: GlobalAccess) -> bool:
        """Whether an arrival orders the two wherever executions of different workgroups meet."""
        if self.count_both(one.op, other.op):
            return True
        if (one, other) not in self._known:
            self._known[one, other] = any(self._is_ordered_by(known, one, other) for known in self.hand_overs)
        return self._known[one, other]

    def count_both(self, one: Operation, other: Operation) -> bool:
        """Whether both are one arrival, of two agents: each counts in one step."""
        return one is other and any(known.op is one for known in self.hand_overs)

    def doubt(self, one: GlobalAccess, other: GlobalAccess) -> str:
        """Why no arrival orders two accesses, of which one is of the last workgroup alone; empty where neither is."""
        for known in self.hand_overs:
            sides = [side_of(access.op, known.op) for access in (one, other)]
            if known.counting.status == "right" and "last" in sides and None not in sides:
                return f"the two may arrive at different counters of {known.op.name}"
        return ""

    def _is_ordered_by(self, known: HandOver, one: GlobalAccess, other: GlobalAccess) -> bool:
        sides = [side_of(access.op, known.op) for access in (one, other)]
        if known.counting.status != "right" or "last" not in sides or None in sides:
            return False
        is_async = [isinstance(access.op, tile.CopyOp | tile.CopyOutOp) for access in (one, other)]
        if "before" in sides and is_async[sides.index("last")]:
            return False  # what other workgroups wrote it may not see: no fence here covers both proxies of two workgroups
        if self.arrays.meets_apart(one, other, known.access):
            return False
        for access, side in zip((one, other), sides, strict=True):
            (known.acquired if side == "last" else known.released).add(access.op)
        return True


def lanes_meet(known: HandOver) -> bool:
    """Whether a barrier stands between an arrival and what it releases, and between it and its flag.

    Where one warp alone arrives, which is one agent, nothing else tells that the counting thread knows of what the warp's other threads
    did, and they of the count.
    """
    before, behind = known.op.prev_op, known.op.next_op
    while before is not None and not _is_meeting(before):
        if any(op in known.released for op in before.walk()):
            return False
        before = before.prev_op
    while behind is not None and not _is_meeting(behind):
        if isinstance(behind, tile.LocalFlagOp) and behind.flag is known.op.flag:
            return False
        behind = behind.next_op
    return True


def _is_meeting(op: Operation) -> bool:
    return isinstance(op, sync.BarrierOp) or (isinstance(op, sync.NamedBarrierOp) and op.arrive is None)


def arriving_warps(op: tile.CountInOp) -> int:
    """Warps that a count stands for: those of the workgroup, or of a group of the role that it stands in."""
    role, kernel = role_of(op), op.parent_op()
    if role is None:
        return kernel.num_warps.value.data if isinstance(kernel, tile.KernelOp) else 0
    return role.executing_warps


def side_of(op: Operation, arrival: tile.CountInOp) -> str | None:
    """Whether an operation stands ahead of an arrival, is done by the workgroup that is the last alone, or neither."""
    around = (op, *ancestors(op))
    for inner, outer in pairwise(around):
        if isinstance(outer, scf.IfOp) and inner.parent is outer.true_region.block and _is_flag_of(outer.cond, arrival):
            return "last"
    block = arrival.parent
    top = next((known for known in around if known.parent is block), None)
    while top is not None:
        if top is arrival:
            return "before"
        top = top.next_op
    return None


def _is_flag_of(condition: SSAValue, arrival: tile.CountInOp) -> bool:
    """Whether a condition is the flag that an arrival, and nothing else, leaves."""
    flag = condition.owner
    if not isinstance(flag, tile.LocalFlagOp) or flag.flag is not arrival.flag or not _is_own_buffer(flag.flag):
        return False
    users = [use.operation for use in flag.flag.uses]
    return flag.parent is arrival.parent and all(user is arrival or isinstance(user, tile.LocalFlagOp) for user in users)


def _is_own_buffer(flag: SSAValue) -> bool:
    """Whether a buffer is the workgroup's, or of each group of a role its own, by no other name."""
    owner = flag.owner
    if isinstance(owner, pipe.SlotOp):
        is_of_group = len(owner.indices) == 1 and isinstance(owner.indices[0].owner, pipe.GroupIdOp)
        return is_of_group and isinstance(owner.source.owner, tile.AllocOp) and len(tuple(owner.source.uses)) == 1
    return isinstance(owner, tile.AllocOp)
