"""What shared memory a kernel needs beside the bytes of its buffers: alignment for descriptors, and barriers."""

from math import prod

from treadle.analysis.buffers import buffer_view
from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.ir.ancestry import ancestors
from treadle.machine import TargetSpec


def has_descriptor_access(alloc: tile.AllocOp) -> bool:
    """Whether copies or matrix instructions reach the buffer through descriptors (swizzle atoms must be aligned)."""
    pending = [alloc.result]
    while pending:
        buffer = pending.pop()
        for use in buffer.uses:
            op = use.operation
            if isinstance(op, pipe.SlotOp | pipe.PartOp):
                pending.append(op.result)
            elif isinstance(op, HasEffects) and any(e.resource is buffer and e.proxy == "async" for e in op.effects()):
                return True
    return False


def barrier_bytes(kernel: tile.KernelOp, spec: TargetSpec) -> int:
    """Bytes behind the buffers for transaction barriers: those there are, and what insert-sync may make for slots that bulk copies fill.

    One a slot; in roles two, and one for each role that takes turns.
    """
    allocated = sum(op.slot_count() for op in kernel.body.walk() if isinstance(op, sync.MbarrierAllocOp))
    filled: dict[tile.AllocOp, int] = {}
    for op in kernel.body.walk():
        if isinstance(op, pipe.RolesOp):
            allocated += len(op.alternating())
        if isinstance(op, tile.CopyOp) and op.is_bulk and op.barrier is None:
            if (view := buffer_view(op.destination)) is not None:
                filled[view.alloc] = prod(view.slot_extents) * (
                    2 if any(isinstance(around, pipe.RolesOp) for around in ancestors(op)) else 1
                )
    return spec.barrier_bytes * (allocated + sum(filled.values()))
