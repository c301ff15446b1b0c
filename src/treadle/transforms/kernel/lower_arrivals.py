"""lower-arrivals: an arrival of the workgroup becomes that of one thread, which tells the others through shared memory.

Level: tile. Reads: tile.arrive_last. Writes: a flag (tile.alloc), tile.count_in, tile.local_flag. Leaves alone: everything else.
What the arrival says about memory is left to insert-sync.
"""

from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import row_major
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before


def lower_arrival(op: tile.ArriveLastOp) -> None:
    """Replace one arrival."""
    flag = tile.AllocOp(tile.shared_buffer_type((1,), builtin.i32, row_major((1,), (0,))))
    count = tile.CountInOp(op.counters, list(op.offsets), op.count, flag.result)
    last = tile.LocalFlagOp(flag.result)
    insert_before(op, flag, count, last)
    last.result.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(last.result)
    op.detach()
    op.erase()


@register_pass
@dataclass(frozen=True)
class LowerArrivalsPass(KernelPass):
    """Lets one thread of each workgroup arrive."""

    name = "lower-arrivals"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Lower the arrivals of one kernel."""
        for op in tuple(kernel.body.walk()):
            if isinstance(op, tile.ArriveLastOp):
                lower_arrival(op)
