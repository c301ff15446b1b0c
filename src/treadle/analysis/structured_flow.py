"""Forward data flow over structured control flow: joins at branches, fix points at the back edges of loops, roles side by side.

A flow says how its states join, what they become at the edges of loops, branches and roles, and what plain operations do to them. The
walk is made here. Sweeps that look for a fix point change nothing (`emit` unset); the last one, from the fix point, may.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from treadle.dialects.pipe import RolesOp
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import scf

MAX_SWEEPS = 200
StateT = TypeVar("StateT")


class StructuredFlow(ABC, Generic[StateT]):
    """One forward data flow. States are immutable; `join` of a state with one that it covers gives an equal state."""

    @abstractmethod
    def plain(self, op: Operation, state: StateT, *, emit: bool) -> StateT:
        """The state after an operation that is no control flow."""

    @abstractmethod
    def join(self, one: StateT, other: StateT) -> StateT:
        """What is known where two paths meet."""

    def block(self, block: Block, state: StateT, *, emit: bool) -> StateT:
        """The state after a block."""
        for op in tuple(block.ops):
            state = self.operation(op, state, emit=emit)
        return state

    def operation(self, op: Operation, state: StateT, *, emit: bool) -> StateT:
        """The state after an operation and all that it holds."""
        if not op.regions:
            return self.terminator(op, state, emit=emit) if isinstance(op, scf.YieldOp) else self.plain(op, state, emit=emit)
        match op:
            case scf.ForOp():
                return self.loop(op, self.before(op, state, emit=emit), emit=emit)
            case scf.IfOp():
                return self.branch(op, self.before(op, state, emit=emit), emit=emit)
            case RolesOp():
                return self.roles(op, self.before(op, state, emit=emit), emit=emit)
            case _:
                return self.plain(op, state, emit=emit)

    def loop(self, loop: scf.ForOp, before: StateT, *, emit: bool) -> StateT:
        """The state behind a loop."""
        entry, back = self.fix_point(loop, self.enter(loop, before))
        if emit:
            self.body(loop, entry, emit=True)
            self.emitted(loop)
        return self.leave(loop, back if self.surely_runs(loop) else entry)

    def fix_point(self, loop: scf.ForOp, entry: StateT) -> tuple[StateT, StateT]:
        """The state before every iteration from one on, and the part of it that comes around the back edge."""
        for _ in range(MAX_SWEEPS):
            back = self.around(loop, self.body(loop, entry, emit=False))
            wider = self.join(entry, back)
            if wider == entry:
                return entry, back
            entry = wider
        raise InternalError(f"{type(self).__name__}: a loop did not reach its fix point")

    def body(self, loop: scf.ForOp, state: StateT, *, emit: bool) -> StateT:
        """The state after one iteration."""
        return self.block(loop.body.block, state, emit=emit)

    def branch(self, op: scf.IfOp, state: StateT, *, emit: bool) -> StateT:
        """The state behind a conditional."""
        ends = [
            self.leave_branch(op, region, self.block(region.block, state, emit=emit)) if region.blocks else state for region in op.regions
        ]
        if emit:
            self.emitted(op)
        return self.join_branches(op, ends)

    def roles(self, op: RolesOp, state: StateT, *, emit: bool) -> StateT:
        """The state behind roles; each starts from the same one."""
        ends = [self.role(op, number, state, emit=emit) for number in range(len(op.roles))]
        for end in ends[1:]:
            ends[0] = self.join(ends[0], end)
        return ends[0]

    # --- what a flow may say about the edges

    def before(self, op: Operation, state: StateT, *, emit: bool) -> StateT:
        """The state in which a loop, a branch or roles start."""
        return state

    def enter(self, loop: scf.ForOp, state: StateT) -> StateT:
        """A state before a loop, seen from its first iteration."""
        return state

    def around(self, loop: scf.ForOp, state: StateT) -> StateT:
        """A state at the end of an iteration, seen from the next."""
        return state

    def leave(self, loop: scf.ForOp, state: StateT) -> StateT:
        """A state before an iteration that is not made, seen from behind the loop."""
        return state

    def surely_runs(self, loop: scf.ForOp) -> bool:
        """Whether a loop makes an iteration in every case."""
        return False

    def leave_branch(self, op: scf.IfOp, region: Region, state: StateT) -> StateT:
        """A state at the end of a branch, seen from behind the conditional."""
        return state

    def join_branches(self, op: scf.IfOp, ends: Sequence[StateT]) -> StateT:
        """The state behind a conditional, from those at the ends of its branches."""
        return self.join(ends[0], ends[-1])

    def role(self, op: RolesOp, number: int, state: StateT, *, emit: bool) -> StateT:
        """The state at the end of one role."""
        return self.block(op.roles[number].block, state, emit=emit)

    def terminator(self, op: scf.YieldOp, state: StateT, *, emit: bool) -> StateT:
        """The state behind what an iteration or branch gives."""
        return state

    def emitted(self, op: Operation) -> None:
        """Called when a loop or a conditional has been walked for the last time."""


def yielded(block: Block) -> tuple[SSAValue, ...]:
    """What the terminator of a region of scf gives."""
    return tuple(block.last_op.operands) if isinstance(block.last_op, scf.YieldOp) else ()


def is_inside(value: SSAValue, op: Operation) -> bool:
    """Whether a value is defined within an operation's regions."""
    owner = value.owner
    current = owner.parent_op()
    while current is not None and current is not op:
        current = current.parent_op()
    return current is op
