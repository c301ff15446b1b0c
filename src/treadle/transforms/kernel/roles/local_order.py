"""What orders the local accesses and bulk stores of one role."""

from collections.abc import Callable, Sequence

from treadle.analysis.liveness import allocation
from treadle.dialects import pipe, sync, tile
from treadle.ir.builtin import IntegerAttr
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before

BULK_STORES = "bulk_store"


def order_local_accesses(block: Block, meet: Callable[[], sync.NamedBarrierOp]) -> None:
    """A barrier of a group's own warps wherever a local access meets an earlier one of the same buffer, and what bulk stores need.

    `meet` makes the barrier: scratch buffers belong to one group, so no other warps need to come. The loop over tiles brings every access
    back, so at its head every buffer counts as written and read. A buffer that leaves by tile.copy_out is free again when its group has
    been read; those sent since may still be on their way.
    """
    ops = [inner for op in block.ops for inner in op.walk()]
    leaving = {allocation(op.source) for op in ops if isinstance(op, tile.CopyOutOp)}
    written = {allocation(op.destination) for op in ops if isinstance(op, tile.LocalStoreOp)}
    read = set(written)
    pending = _sent_since(ops)
    for op in ops:
        if isinstance(op, tile.CopyOutOp):
            insert_after(op, sync.CommitOp(BULK_STORES))
        elif isinstance(op, tile.LocalStoreOp):
            alloc = allocation(op.destination)
            if alloc is not None and alloc in leaving:
                insert_before(op, sync.WaitOp(BULK_STORES, pending[op], read=True), meet())
                insert_after(op, sync.FenceOp("async_shared"), meet())
                continue
            if alloc in written or alloc in read:
                insert_before(op, meet())
                written.clear()
                read.clear()
            written.add(alloc)
        elif isinstance(op, tile.LocalLoadOp):
            alloc = allocation(op.source)
            if alloc in written:
                insert_before(op, meet())
                written.clear()
                read.clear()
            read.add(alloc)


def _sent_since(ops: Sequence[Operation]) -> dict[Operation, int]:
    """For each local store, how many groups of bulk stores the loop's body sends between the last one from the same slot and it."""
    sent = [_slot(op.source) for op in ops if isinstance(op, tile.CopyOutOp)]
    found: dict[Operation, int] = {}
    count = 0
    for op in ops:
        if isinstance(op, tile.CopyOutOp):
            count += 1
        elif isinstance(op, tile.LocalStoreOp):
            # Backwards from here, around the loop.
            before = [*sent[:count][::-1], *sent[count:][::-1]]
            found[op] = next((n for n, slot in enumerate(before) if _may_be_same(slot, _slot(op.destination))), 0)
    return found


Slot = tuple[tile.AllocOp | None, tuple[int | None, ...]]


def _slot(buffer: SSAValue) -> Slot:
    """The allocation of a buffer and the slot, as far as it is static."""
    op = buffer.owner
    if not isinstance(op, pipe.SlotOp):
        return allocation(buffer), ()
    return allocation(buffer), tuple(_constant(index) for index in op.indices)


def _constant(index: SSAValue) -> int | None:
    op = index.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return op.value.value.data
    return None


def _may_be_same(a: Slot, b: Slot) -> bool:
    if a[0] is not b[0] or len(a[1]) != len(b[1]):
        return a[0] is b[0]
    return all(x is None or y is None or x == y for x, y in zip(a[1], b[1], strict=True))
