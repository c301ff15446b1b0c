"""allocate-shared: byte offsets of shared buffers.

Level: tile. Reads: tile.alloc, the accesses of its buffer, the machine's shared memory. Writes: `byte_offset` of tile.alloc.
Leaves alone: everything else. Buffers that are never in use at the same time may share bytes; insert-sync orders their accesses.
"""

from collections.abc import Sequence
from dataclasses import replace

from treadle.analysis.element_bytes import buffer_bytes
from treadle.analysis.liveness import buffer_intervals
from treadle.analysis.shared_demands import barrier_bytes, has_descriptor_access
from treadle.dialects import tile
from treadle.errors import SHARED_MEMORY, KernelRejected
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.shared_packing import BufferDemand, pack_buffers
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass

PLAIN_ALIGN = 16
SMALL_BYTES = 1024
"""Of a buffer that warps hand a reduction's parts over in, and of what all of a kernel's may take more for not sharing bytes."""


def packed(demands: Sequence[BufferDemand], available: int) -> tuple[tuple[int, ...], int]:
    """Offsets and the total. Small buffers have bytes of their own where that takes little: two that share bytes take a barrier more."""
    last = max(demand.end for demand in demands)
    alone = [replace(demand, start=0, end=last) if demand.byte_count <= SMALL_BYTES else demand for demand in demands]
    (offsets, total), found = pack_buffers(demands), pack_buffers(alone)
    return found if found[1] <= min(total + SMALL_BYTES, available) else (offsets, total)


@register_pass
@dataclass(frozen=True)
class AllocateSharedPass(KernelPass):
    """Places the shared buffers of every kernel."""

    name = "allocate-shared"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Place the buffers of one kernel; raises TR401 where they do not fit."""
        intervals = buffer_intervals(kernel)
        allocs = [op for op in kernel.body.walk() if isinstance(op, tile.AllocOp)]
        if not allocs:
            return
        demands = [
            BufferDemand(
                buffer_bytes(alloc.result),
                spec.descriptor_align_bytes if has_descriptor_access(alloc) else PLAIN_ALIGN,
                intervals[alloc].start,
                intervals[alloc].end,
            )
            for alloc in allocs
        ]
        barriers = barrier_bytes(kernel, spec)
        offsets, total = packed(demands, spec.shared_bytes_per_workgroup - barriers)
        if total + barriers > spec.shared_bytes_per_workgroup:
            needed, available = total + barriers, spec.shared_bytes_per_workgroup
            reason = f"it needs {needed} bytes of shared memory, {available} are there"
            raise KernelRejected(
                kernel.sym_name.data,
                reason,
                location_of(kernel),
                entry=SHARED_MEMORY,
                needed=needed,
                target=spec.name,
                available=available,
            )
        for alloc, offset in zip(allocs, offsets, strict=True):
            alloc.byte_offset = builtin.IntegerAttr(offset, builtin.i64)
        emit("decision", self.name, kernel.sym_name.data, f"{len(allocs)} shared buffer(s) in {total} bytes", location_of(kernel))
