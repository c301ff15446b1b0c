"""What orders the local accesses and bulk stores of one role."""

from treadle.analysis.liveness import allocation
from treadle.dialects import sync, tile
from treadle.ir.core import Block
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before

BULK_STORES = "bulk_store"


def order_local_accesses(block: Block, barrier_id: int, warps: int) -> None:
    """A barrier of a role's own warps wherever a local access meets an earlier one of the same buffer, and what bulk stores need.

    Scratch buffers belong to one role, so no other warps need to come. The loop over tiles brings every access back, so at its head every
    buffer counts as written and read. A buffer that leaves by tile.copy_out is free again when its group has been read: with n slots
    filled in turn, n - 1 groups may still be on their way.
    """
    ops = [inner for op in block.ops for inner in op.walk()]
    leaving = {allocation(op.source) for op in ops if isinstance(op, tile.CopyOutOp)}
    written = {allocation(op.destination) for op in ops if isinstance(op, tile.LocalStoreOp)}
    read = set(written)
    for op in ops:
        if isinstance(op, tile.CopyOutOp):
            insert_after(op, sync.CommitOp(BULK_STORES))
        elif isinstance(op, tile.LocalStoreOp):
            alloc = allocation(op.destination)
            if alloc is not None and alloc in leaving:
                slots = tile.memref_type(alloc.result).get_shape()[0]
                insert_before(op, sync.WaitOp(BULK_STORES, slots - 1, read=True), sync.NamedBarrierOp(barrier_id, warps))
                insert_after(op, sync.FenceOp("async_shared"), sync.NamedBarrierOp(barrier_id, warps))
                continue
            if alloc in written or alloc in read:
                insert_before(op, sync.NamedBarrierOp(barrier_id, warps))
                written.clear()
                read.clear()
            written.add(alloc)
        elif isinstance(op, tile.LocalLoadOp):
            alloc = allocation(op.source)
            if alloc in written:
                insert_before(op, sync.NamedBarrierOp(barrier_id, warps))
                written.clear()
                read.clear()
            read.add(alloc)
