"""What the threads do to shared memory before an agent tells others to go on.

Bulk copies write through the async proxy. Neither an arrival nor a barrier keeps such a write behind what the threads read through the
generic proxy; a fence does (PTX ISA, "Async proxy": accesses by several proxies need a cross-proxy fence). In the IR both order them
(docs/schedule.md), so the fence belongs to what they are lowered to, wherever copies fill bytes that the threads read.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from types import UnionType

from treadle.analysis.element_bytes import buffer_bytes
from treadle.dialects.agents import role_of
from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import ArriveOp, BarrierOp, FenceOp, NamedBarrierOp
from treadle.dialects.tile import AllocOp, CopyOp, KernelOp, LocalLoadOp, LocalStoreOp
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.targets.nvidia.tf32 import allocation
from treadle.targets.simt.context import KernelContext

_FENCE = "fence.proxy.async.shared::cta;\n"


def _operations(ctx: KernelContext, op: Operation) -> tuple[Operation, ...]:
    """What the agent that executes `op` executes."""
    role = role_of(op)
    return tuple(ctx.kernel.walk() if role is None else role.operations())


def _extent(ctx: KernelContext, buffer: AllocOp) -> range:
    """The bytes of a buffer."""
    begin = ctx.buffer(buffer.result).byte_offset
    return range(begin, begin + buffer_bytes(buffer.result))


def _refilled_reads(ctx: KernelContext, readers: Iterable[Operation], fillers: Iterable[Operation]) -> set[Operation]:
    """Those of `readers` that read bytes by instructions of their lanes that bulk copies among `fillers` fill."""
    filled = {allocation(op.destination) for op in fillers if isinstance(op, CopyOp) and op.is_bulk}
    extents = [_extent(ctx, buffer) for buffer in filled if buffer is not None]
    found: set[Operation] = set()
    for op in readers:
        if isinstance(op, LocalLoadOp) and op.peer is None and (buffer := allocation(op.source)) is not None:
            own = _extent(ctx, buffer)
            if any(own.start < other.stop and other.start < own.stop for other in extents):
                found.add(op)
    return found


def _are_unfenced(op: Operation, reads: set[Operation], fencing: type[Operation] | UnionType) -> bool:
    """Whether some of `reads` may come ahead of an operation, on any path, with nothing between that ends in a fence: one of the
    operations `fencing`, which have one where they need it, or a fence.
    """
    at: Operation | None = op
    while at is not None and not isinstance(at, KernelOp | RolesOp):
        if (found := _nearest(_backwards(at), reads, fencing)) is not None:
            return found
        around = at.parent_op()
        if isinstance(around, scf.ForOp) and (last := around.body.block.last_op) is not None:
            behind = takewhile(lambda other, at=at: other is not at, _backwards(last))
            if _nearest(behind, reads, fencing):
                return True
        at = around
    return False


def _nearest(ops: Iterable[Operation], reads: set[Operation], fencing: type[Operation] | UnionType) -> bool | None:
    """Whether the first of `ops` that decides is a read, not what ends in a fence; None where none decides."""
    for op in ops:
        if any(inner in reads for inner in op.walk()):
            return True
        if isinstance(op, FenceOp):
            if op.proxy.data == "async_shared":
                return False
        elif isinstance(op, fencing) and not (isinstance(op, ArriveOp) and op.peer_ranks()):
            return False
    return None


def _backwards(op: Operation) -> Iterator[Operation]:
    """The operations of a block ahead of one, the last first."""
    before = op.prev_op
    while before is not None:
        yield before
        before = before.prev_op


def ahead_of_arrival(ctx: KernelContext, op: ArriveOp) -> str:
    """What all lanes execute before one of them arrives for them, as PTX."""
    operations = _operations(ctx, op)
    is_access = any(
        isinstance(other, LocalLoadOp | LocalStoreOp) or (isinstance(other, CopyOp) and not other.is_bulk) for other in operations
    )
    if not is_access:
        return ""
    reads = _refilled_reads(ctx, operations, ctx.kernel.walk())
    return f"{_FENCE if _are_unfenced(op, reads, ArriveOp) else ''}bar.warp.sync -1;\n"


def needs_fence(ctx: KernelContext, op: BarrierOp | NamedBarrierOp) -> bool:
    """Whether copies that the agent itself starts behind a barrier may fill what its threads have read ahead of it."""
    operations = _operations(ctx, op)
    return _are_unfenced(op, _refilled_reads(ctx, operations, operations), ArriveOp | BarrierOp | NamedBarrierOp)
