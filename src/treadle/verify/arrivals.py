"""What arrivals and turns at counters order between the workgroups of a launch. The argument is in docs/schedule.md, "Arrivals", "Turns".

Statically, once a kernel: which pairs of accesses of different workgroups an arrival or a turn orders, and what each has to hand on for
that.
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
from treadle.verify.counting import Counting, counting_of, turns_of
from treadle.verify.global_accesses import GlobalAccess
from treadle.verify.global_arrays import GlobalArrays
from treadle.verify.program import Program

Key = tuple[Operation, Effect | None]


@dataclass(slots=True)
class HandOver:
    """An arrival, or a turn: what it is to release, done before `end`, and what may be done only once `op` has acquired.

    An arrival is both; a turn begins with one operation and ends with another.
    """

    op: tile.CountInOp | tile.AwaitTurnOp
    end: tile.CountInOp | tile.PassTurnOp
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
    """The arrivals and turns of a program. `orders` is asked for every pair that may meet; what it relies on gathers in `hand_overs`.
    `loose`: waits for turns that nobody ends, and ends of turns that nobody waits for.
    """

    def __init__(self, program: Program, arrays: GlobalArrays) -> None:
        self.program, self.arrays = program, arrays
        self.hand_overs: list[HandOver] = []
        self.loose: list[tuple[tile.OrderedCounterOp, str]] = []
        for op in program.all(tile.CountInOp):
            if (access := self._counters(op, op)) is not None:
                self.hand_overs.append(HandOver(op, op, access, counting_of(arrays.forms, op, access)))
        self._read_turns()
        self._known: dict[tuple[GlobalAccess, GlobalAccess], bool] = {}

    def _read_turns(self) -> None:
        """Turns by the two operations that they begin and end with."""
        ends = list(self.program.all(tile.PassTurnOp))
        for wait in self.program.all(tile.AwaitTurnOp):
            end = next((other for other in ends if _is_turn(wait, other)), None)
            if end is None:
                self.loose.append((wait, "nothing behind it in its block ends the turn, at the same counter, that it waits for"))
                continue
            ends.remove(end)
            if (access := self._counters(wait, end)) is None:
                self.loose.append((wait, "something else touches its counters"))
            else:
                self.hand_overs.append(HandOver(wait, end, access, turns_of(self.arrays.forms, wait, end, access)))
        self.loose += [(end, "nothing ahead of it in its block waits for the turn, at the same counter, that it ends") for end in ends]

    def _counters(self, op: tile.OrderedCounterOp, end: tile.OrderedCounterOp) -> GlobalAccess | None:
        """The access of an arrival, or of a turn's two ends, to its counters; None where something else touches the array: what it counts
        is not known then.
        """
        effects = [effect for effect in op.effects() if effect.resource is op.counters]
        access = self.arrays.of(op, effects[-1])
        alone = all(other.op in (op, end) for other in self.arrays.read() if other.pointer is access.pointer)
        return access if alone else None

    def orders(self, one: GlobalAccess, other: GlobalAccess) -> bool:
        """Whether an arrival orders the two wherever executions of different workgroups meet."""
        if self.count_both(one.op, other.op):
            return True
        if (one, other) not in self._known:
            self._known[one, other] = any(self._is_ordered_by(known, one, other) for known in self.hand_overs)
        return self._known[one, other]

    def count_both(self, one: Operation, other: Operation) -> bool:
        """Whether both are one arrival, of two agents, or of one turn: each is one step at the counter."""
        return any(one in (known.op, known.end) and other in (known.op, known.end) for known in self.hand_overs)

    def doubt(self, one: GlobalAccess, other: GlobalAccess) -> str:
        """Why no arrival orders two accesses, of which one is of the last workgroup alone; empty where neither is."""
        for known in self.hand_overs:
            sides = [side_of(access.op, known) for access in (one, other)]
            if known.counting.status == "right" and not {"last", "turn"}.isdisjoint(sides) and None not in sides:
                return f"the two may arrive at different counters of {known.op.name}"
        return ""

    def _is_ordered_by(self, known: HandOver, one: GlobalAccess, other: GlobalAccess) -> bool:
        sides = [side_of(access.op, known) for access in (one, other)]
        if sides == ["turn", "turn"] and known.counting.status == "wrong":
            return True  # if turns came, they would; that they do not is said once
        if known.counting.status != "right" or None in sides:
            return False
        is_async = [isinstance(access.op, tile.CopyOp | tile.CopyOutOp) for access in (one, other)]
        if sides == ["turn", "turn"]:
            if any(is_async) or self.arrays.meets_apart(one, other, known.access):
                return False
            for side in (known.released, known.acquired):
                side.update((one.op, other.op))
            return True
        if "last" not in sides:
            return False
        if "before" in sides and is_async[sides.index("last")]:
            return False  # what other workgroups wrote it may not see: no fence here covers both proxies of two workgroups
        if self.arrays.meets_apart(one, other, known.access):
            return False
        for access, side in zip((one, other), sides, strict=True):
            (known.acquired if side == "last" else known.released).add(access.op)
        return True


def lanes_meet(known: HandOver) -> bool:
    """Whether a barrier stands between an arrival and what it releases, and between it and its flag; or between the start of a turn, what
    is done in it, and its end.

    Where one warp alone arrives, which is one agent, nothing else tells that the counting thread knows of what the warp's other threads
    did, and they of the count.
    """
    if not all(_meets_between(op, known.end, ahead=False) for op in known.released if not isinstance(op, tile.OrderedCounterOp)):
        return False
    if not isinstance(known.op, tile.CountInOp):
        return all(_meets_between(op, known.op, ahead=True) for op in known.acquired if not isinstance(op, tile.OrderedCounterOp))
    behind = known.op.next_op
    while behind is not None and not _is_meeting(behind):
        if isinstance(behind, tile.LocalFlagOp) and behind.flag is known.op.flag:
            return False
        behind = behind.next_op
    return True


def _meets_between(op: Operation, end: Operation, *, ahead: bool) -> bool:
    """Whether a barrier stands on every way between an operation and `end`, in whose block it is or is nested; `ahead`: `end` is ahead."""
    at: Operation | None = op
    while at is not None:
        beside = at.prev_op if ahead else at.next_op
        while beside is not None and beside is not end:
            if _is_meeting(beside):
                return True
            beside = beside.prev_op if ahead else beside.next_op
        if beside is end:
            return False
        at = at.parent_op()
    return False


def _is_meeting(op: Operation) -> bool:
    return isinstance(op, sync.BarrierOp) or (isinstance(op, sync.NamedBarrierOp) and op.arrive is None)


def arriving_warps(op: tile.OrderedCounterOp) -> int:
    """Warps that a count stands for: those of the workgroup, or of a group of the role that it stands in."""
    role, kernel = role_of(op), op.parent_op()
    if role is None:
        return kernel.num_warps.value.data if isinstance(kernel, tile.KernelOp) else 0
    return role.executing_warps


def _is_turn(wait: tile.AwaitTurnOp, end: tile.PassTurnOp) -> bool:
    """Whether the two begin and end a turn at one counter."""
    if end.parent is not wait.parent or end.counters is not wait.counters or tuple(end.offsets) != tuple(wait.offsets):
        return False
    behind = wait.next_op
    while behind is not None and behind is not end:
        behind = behind.next_op
    return behind is end


def side_of(op: Operation, known: HandOver) -> str | None:
    """Of an arrival, whether an operation stands ahead of it ("before"), or is done by the workgroup that is the last alone ("last"); of a
    turn, whether it is done in it ("turn"). Else None.
    """
    around, arrival = (op, *ancestors(op)), known.op
    if not isinstance(arrival, tile.CountInOp):
        return "turn" if _stands_before(around, known.end) and not _stands_before(around, arrival) else None
    for inner, outer in pairwise(around):
        if isinstance(outer, scf.IfOp) and inner.parent is outer.true_region.block and _is_flag_of(outer.cond, arrival):
            return "last"
    return "before" if _stands_before(around, arrival) else None


def _stands_before(around: tuple[Operation, ...], end: Operation) -> bool:
    """Whether an operation, given with those around it, stands in a block ahead of `end`, or in what stands there; or is it."""
    top = next((known for known in around if known.parent is end.parent), None)
    while top is not None and top is not end:
        top = top.next_op
    return top is end


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
