"""insert-sync: makes a sequential kernel right on a machine where threads, copies and matrix instructions overlap.

Level: tile to schedule. Reads: effects of all operations on shared memory, byte offsets of buffers, the machine's facts (`async_matrix`,
`bulk_tensor`). Writes: `sync.*`, the barrier operand of tile.copy, parities carried by loops. Leaves alone: kernels that use no shared
memory; global memory, which one kernel never both writes and reads.

A forward data flow over structured control flow: the state holds accesses that are not yet ordered before what other agents do next
(`analysis/shared_accesses.py`), joins are unions, loops run to a fix point, and only then synchronisation is inserted, at the last moment
and only where a conflict asks for it. Matrix instructions reading shared buffers form groups of the queue "wgmma", which is drained before
their results are used and at the end of a region.
"""

from dataclasses import dataclass, replace

from treadle.analysis.shared_accesses import (
    EMPTY,
    Order,
    SharedAccess,
    State,
    after_barrier,
    after_queue_wait,
    has_in_flight,
    orders_needed,
    shared_accesses,
)
from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import InternalError
from treadle.ir.core import Block, IsTerminator, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.transforms.kernel.copy_barriers import insert_copy_barriers
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before

QUEUE = "wgmma"
MAX_SWEEPS = 16


def is_queued(op: Operation) -> bool:
    """Whether an operation is issued to the matrix queue: a contraction of shared buffers."""
    return isinstance(op, tile.ContractOp) and (is_shared(op.a.type) or is_shared(op.b.type))


@dataclass(frozen=True, slots=True)
class _Flow:
    """What is known before an operation: accesses in flight, results of the queue that are not there yet."""

    accesses: State = EMPTY
    unfinished: frozenset[SSAValue] = frozenset()

    def join(self, other: "_Flow") -> "_Flow":
        return _Flow(self.accesses | other.accesses, self.unfinished | other.unfinished)

    @property
    def is_queue_busy(self) -> bool:
        return bool(self.unfinished) or has_in_flight(self.accesses)


class _Inserter:
    """Walks a kernel; with `emit` it inserts, without it only computes the state."""

    def __init__(self, kernel: tile.KernelOp, *, queued: bool) -> None:
        self.queued = queued
        self.position = {op: at for at, op in enumerate(kernel.walk())}
        self.async_accesses = tuple((op, a) for op in self.position for a in shared_accesses(op) if a.is_async)

    def block(self, block: Block, flow: _Flow, *, emit: bool) -> _Flow:
        """The state after a block."""
        for op in tuple(block.ops):
            flow = self.operation(op, flow, emit=emit)
        return flow

    def operation(self, op: Operation, flow: _Flow, *, emit: bool) -> _Flow:
        """The state after an operation, synchronisation before it included."""
        match op:
            case scf.ForOp():
                return self._loop(op, self._use(op, flow, emit=emit), emit=emit)
            case scf.IfOp():
                flow = self._use(op, flow, emit=emit)
                ends = [self.block(block, flow, emit=emit) for region in op.regions for block in region.blocks]
                if len(ends) < 2:
                    ends.append(flow)
                return ends[0].join(ends[1])
            case sync.BarrierOp():
                return _Flow(after_barrier(flow.accesses), flow.unfinished)
            case sync.WaitOp() | sync.CommitOp() | sync.FenceOp():
                raise InternalError(f"insert-sync on a kernel that has {op.name} already")
            case tile.ReduceOp():
                return self._use(op, flow, emit=emit)
            case _ if op.regions:
                raise InternalError(f"insert-sync does not know the control flow of {op.name}")
            case _:
                return self._plain(op, flow, emit=emit)

    def _loop(self, loop: scf.ForOp, entry: _Flow, *, emit: bool) -> _Flow:
        block = loop.body.block
        for _ in range(MAX_SWEEPS):
            around = entry.join(self.block(block, entry, emit=False))
            if around == entry:
                break
            entry = around
        else:
            raise InternalError("insert-sync: a loop did not reach its fix point")
        if emit:
            self.block(block, entry, emit=True)
        return entry

    def _plain(self, op: Operation, flow: _Flow, *, emit: bool) -> _Flow:
        flow = self._use(op, flow, emit=emit)
        flow = self._order(op, flow, self._starting(op), emit=emit)
        accesses = shared_accesses(op)
        if is_queued(op):
            if not self.queued:  # the instruction is complete when the next one starts
                accesses = tuple(replace(access, in_flight=False) for access in accesses)
                return _Flow(flow.accesses | frozenset(accesses), flow.unfinished)
            return _Flow(flow.accesses | frozenset(accesses), flow.unfinished | {op.results[0]})
        if isinstance(op, tile.CopyOp):  # every thread waits for its barrier before anything touches the destination
            return flow
        return _Flow(flow.accesses | frozenset(accesses), flow.unfinished)

    def _starting(self, op: Operation) -> tuple[SharedAccess, ...]:
        """The accesses that start with `op`: its own; those of the announced copies for an expect, none for such a copy."""
        if isinstance(op, sync.MbarrierExpectOp):
            copies = [use.operation for use in op.barrier.uses if isinstance(use.operation, tile.CopyOp)]
            return tuple(access for copy in copies for access in shared_accesses(copy))
        if isinstance(op, tile.CopyOp) and op.barrier is not None:
            return ()
        return shared_accesses(op)

    def _use(self, op: Operation, flow: _Flow, *, emit: bool) -> _Flow:
        """Drain the queue before its results are used, and before a region ends."""
        reads = [v for v in op.operands if v in flow.unfinished]
        if is_queued(op) and all(v is op.operands[2] for v in reads):
            return flow  # accumulators of one chain stay in the queue
        if reads or (op.has_trait(IsTerminator) and flow.is_queue_busy):
            return self._drain(op, flow, emit=emit)
        return flow

    def _drain(self, op: Operation, flow: _Flow, *, emit: bool) -> _Flow:
        if emit:
            insert_before(op, sync.CommitOp(QUEUE), sync.WaitOp(QUEUE, 0))
        return _Flow(after_queue_wait(flow.accesses))

    def _order(self, op: Operation, flow: _Flow, starting: tuple[SharedAccess, ...], *, emit: bool) -> _Flow:
        """Insert what the starting accesses need: the queue's wait, the fence, the barrier, in this order."""
        needed: frozenset[Order] = orders_needed(flow.accesses, starting)
        if "queue" in needed:
            flow = self._drain(op, flow, emit=emit)
        if "barrier" in needed:
            if emit and self._crosses_proxies(op, flow.accesses):
                insert_before(op, sync.FenceOp("async_shared"))
            if emit:
                insert_before(op, sync.BarrierOp())
            flow = _Flow(after_barrier(flow.accesses), flow.unfinished)
        return flow

    def _crosses_proxies(self, op: Operation, state: State) -> bool:
        """Whether a barrier before `op` publishes generic writes to bytes that are accessed asynchronously from there on."""
        written = [access for access in state if access.is_write and not access.is_async]
        return any(self._may_follow(later, op) and any(w.overlaps(access) for w in written) for later, access in self.async_accesses)

    def _may_follow(self, later: Operation, op: Operation) -> bool:
        """Whether `later` may be executed at or after `op`: it stands behind it, or a loop holds both."""
        return self.position[later] >= self.position[op] or bool(_loops(later) & _loops(op))


def _loops(op: Operation) -> set[Operation]:
    found: set[Operation] = set()
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, scf.ForOp):
            found.add(parent)
        parent = parent.parent_op()
    return found


@register_pass
@dataclass(frozen=True)
class InsertSyncPass(KernelPass):
    """Inserts the synchronisation that a kernel's accesses to shared memory need."""

    name = "insert-sync"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Synchronise one kernel."""
        if any(isinstance(op, pipe.RolesOp) for op in kernel.body.block.ops):
            return  # specialize-warps has written the hand-over between its roles
        if any(isinstance(op, tile.CopyOp) for op in kernel.walk()):
            if spec.bulk_tensor is None:
                raise InternalError(f"{spec.name} has no descriptor copies")
            insert_copy_barriers(kernel)
        inserter = _Inserter(kernel, queued=spec.async_matrix)
        inserter.block(kernel.body.block, _Flow(), emit=True)
