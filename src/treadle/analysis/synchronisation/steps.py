"""The operations that a walk of insert-sync comes to, each with what does not depend on where the walk comes from."""

from collections.abc import Collection, Container
from functools import cached_property

from treadle.analysis.buffers import buffer_view
from treadle.analysis.shared_accesses import SharedAccess, accesses_in_any_slot
from treadle.analysis.synchronisation.accumulators import accumulator_names, is_used_beside
from treadle.analysis.synchronisation.loop_edges import LoopEdges
from treadle.analysis.synchronisation.needs import Start
from treadle.analysis.synchronisation.operations import (
    barrier_alloc,
    is_cheap,
    is_idle,
    is_matrix,
    loops_around,
    only_copies,
    phase_access,
    queue_of,
)
from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.machine import TargetSpec
from treadle.records import dataclass

ORDERS = frozenset(
    {
        sync.BarrierOp,
        sync.ClusterBarrierOp,
        sync.CommitOp,
        sync.FenceOp,
        sync.NamedBarrierOp,
        sync.WaitOp,
        tile.ReturnOp,
        pipe.EndRoleOp,
    }
)
"""What a walk comes to though it accesses nothing."""


@dataclass(eq=False, slots=True)
class Step:
    """One operation. `leaves`: accesses that are there behind it; `queue`: what it is issued to; `matters`: a walk must come to it."""

    op: Operation
    leaves: tuple[int, ...]
    queue: str
    is_cheap: bool
    matters: bool


class Steps(LoopEdges):
    """A walk over a kernel that knows its operations. `owing`: those behind which slots of rings are handed back."""

    def __init__(self, kernel: tile.KernelOp, spec: TargetSpec, owing: Container[Operation]) -> None:
        super().__init__(kernel)
        self.spec, self._owing = spec, owing
        ops = list(kernel.walk())
        self.position = {op: at for at, op in enumerate(ops)}
        self._in_flight = accumulator_names([op.results[0] for op in ops if is_matrix(op, spec)])
        self._known: dict[Operation, Step] = {}
        self._starts: dict[Operation, Start] = {}
        self._waits: dict[Operation, bool] = {}
        self._following: dict[Operation, list[Step]] = {}
        self._blocks: dict[Block, tuple[Step, ...]] = {}
        expects = [op for op in ops if isinstance(op, sync.MbarrierExpectOp)]
        self._announced = {(_role(op), barrier_alloc(op, op.barrier)) for op in expects}

    @cached_property
    def asynchronous(self) -> list[tuple[Operation, set[Operation], tuple[SharedAccess, ...]]]:
        """The operations that access shared memory through the async proxy, with the loops around them and these accesses."""
        kinds = tile.CopyOp | tile.CopyOutOp | tile.ContractOp
        found = [(op, tuple(a for a in accesses_in_any_slot(op) if a.is_async)) for op in self.position if isinstance(op, kinds)]
        return [(op, loops_around(op), accesses) for op, accesses in found if accesses]

    def block_changed(self) -> None:
        """Operations were inserted."""
        self._blocks.clear()
        self._following.clear()

    def steps(self, block: Block) -> tuple[Step, ...]:
        """What of a block a walk comes to."""
        if block not in self._blocks:
            ops = [op for op in block.ops if not is_idle(op)]
            owes = any(op in self._owing for op in ops)
            self._blocks[block] = tuple(step for op in ops if (step := self.step(op)).matters or owes)
        return self._blocks[block]

    def leaves_nothing(self, block: Block) -> bool:
        """Whether no operation of a block leaves accesses behind, or is in flight."""
        return not any(self._leaves(op) for op in block.walk())

    def waits_for_others(self, op: Operation) -> bool:
        """Whether a loop or a conditional waits for a phase."""
        if op not in self._waits:
            self._waits[op] = any(isinstance(inner, sync.WaitPhaseOp) for inner in op.walk())
        return self._waits[op]

    def following(self, op: Operation) -> list[Step]:
        """The steps behind an operation in its block, up to control flow."""
        if op not in self._following:
            found, current = list[Step](), op.next_op
            while current is not None and (not current.regions or isinstance(current, tile.ReduceOp)):
                if not (is_idle(current) and is_cheap(current)):
                    found.append(self.step(current))
                current = current.next_op
            self._following[op] = found
        return self._following[op]

    def step(self, op: Operation) -> Step:
        """What is known of an operation."""
        if op not in self._known:
            leaves, queue = tuple(map(self.table.number, self._left(op))), queue_of(op, self.spec)
            matters = bool(leaves or queue is not None) or self._always_matters(op) or bool(self.start(op).accesses)
            self._known[op] = Step(op, leaves, "" if queue is None else queue.name, is_cheap(op), matters)
        return self._known[op]

    def start(self, op: Operation) -> Start:
        """What starts with an operation."""
        if op not in self._starts:
            accesses = tuple(dict.fromkeys(map(self.table.number, self._starting(op))))
            self._starts[op] = Start(self.table, accesses, self._reads(op))
        return self._starts[op]

    def _always_matters(self, op: Operation) -> bool:
        """Whether a walk comes to an operation that accesses nothing: for what it reads, orders, ends or holds."""
        if op in self._owing or any(value in self._in_flight for value in op.operands):
            return True
        if isinstance(op, scf.ForOp | scf.IfOp):
            return any(self.steps(region.block) for region in op.regions if region.blocks)
        if op.regions:
            return not isinstance(op, tile.ReduceOp)
        if isinstance(op, scf.YieldOp):
            return isinstance(op.parent_op(), scf.ForOp) or _holds_registers(op.parent)
        return type(op) in ORDERS

    def _leaves(self, op: Operation) -> bool:
        """Whether there is something behind an operation: its accesses, the phase of a wait where its role announces the next.

        Copies with a barrier leave nothing: every thread waits for it before anything touches the destination.
        """
        if isinstance(op, sync.WaitPhaseOp):
            return (_role(op), barrier_alloc(op, op.barrier)) in self._announced
        if isinstance(op, tile.CopyOp):
            return queue_of(op, self.spec) is not None
        return isinstance(op, HasEffects) and any(buffer_view(effect.resource) for effect in op.effects())

    def _left(self, op: Operation) -> tuple[SharedAccess, ...]:
        if isinstance(op, sync.WaitPhaseOp):
            return (phase_access(op, op.barrier, self.values, is_write=False),) if self._leaves(op) else ()
        return self.accesses(op) if not isinstance(op, tile.CopyOp) or self._leaves(op) else ()

    def _starting(self, op: Operation) -> tuple[SharedAccess, ...]:
        """The accesses that start with `op`: its own; those of the announced copies for an expect, none for such a copy.

        A conditional around nothing but copies starts them all: what orders them stands before it, the same on both paths; so it does for
        what other workgroups have handed on where both cases touch that.
        """
        if isinstance(op, sync.MbarrierExpectOp):
            announced: list[SharedAccess] = [phase_access(op, op.barrier, self.values, is_write=True)]
            copy = op.next_op
            while copy is not None:
                if isinstance(copy, tile.CopyOp) and copy.barrier is op.barrier:
                    announced += self.accesses(copy)
                copy = copy.next_op
            return tuple(announced)
        if isinstance(op, tile.CopyOp) and op.barrier is not None:
            return ()
        if isinstance(op, pipe.RolesOp):
            return tuple(a for inner in op.walk() for a in self.accesses(inner))
        if isinstance(op, scf.IfOp) and only_copies(op):
            return tuple(a for inner in op.walk() if inner is not op for a in self._starting(inner))
        return (*self.accesses(op), *self.handed_on.accesses_in_each(op)) if isinstance(op, scf.IfOp) else self.accesses(op)

    def _reads(self, op: Operation) -> frozenset[SSAValue]:
        """The values in flight that must be there when an operation starts."""
        values = op.operands
        if is_matrix(op, self.spec) and not is_used_beside(op.operands[2], op):
            values = op.operands[:2]  # accumulators of one chain stay in the queue
        elif isinstance(op, scf.ForOp):  # what it alone carries is waited for where it is read
            values = [value for value in op.iter_args if value in self._in_flight and is_used_beside(value, op)]
        elif isinstance(op, scf.IfOp):  # what both cases read is waited for once, ahead of them
            values = self._read_in_each(op)
        elif isinstance(op, scf.YieldOp) and isinstance(op.parent_op(), scf.ForOp):
            values = []
        return frozenset(value for value in values if value in self._in_flight)

    def _read_in_each(self, branch: scf.IfOp) -> Collection[SSAValue]:
        """The values that both cases of a conditional read."""
        yes, no = (
            {value for op in region.walk() for value in (op.operands[:2] if is_matrix(op, self.spec) else op.operands)}
            for region in branch.regions
        )
        return yes & no


def _holds_registers(block: Block | None) -> bool:
    """Whether an operation of a block reads registers while it is in flight."""
    return block is not None and any(isinstance(op, tile.ContractOp) and op.holds_registers() for op in block.ops)


def _role(op: Operation) -> Block | None:
    """The role that an operation lies in."""
    block = op.parent
    while block is not None and not isinstance(around := block.parent_op(), pipe.RolesOp):
        block = around.parent if around is not None else None
    return block
