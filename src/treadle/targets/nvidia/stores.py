"""A thread that issued copies out of shared memory must not leave the kernel before they have read it: the schedule has to wait.

A data flow over the structured control flow: which `tile.copy_out` may still be running.
"""

from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import WaitOp
from treadle.dialects.tile import CopyOutOp, KernelOp
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.targets.nvidia.elected import STORE_QUEUE

Running = frozenset[CopyOutOp]


def check_stores(kernel: KernelOp) -> None:
    """Raise InternalError, naming the copy, where a path ends the kernel (or a role) without a wait for all groups behind it."""
    _require_none(_block(kernel.body.block, frozenset()))


def _require_none(running: Running) -> None:
    for op in running:
        place = location_of(op)
        raise InternalError(
            f"{op.name}{f' at {place}' if place else ''} may still read shared memory when its thread ends: "
            f'`sync.wait "{STORE_QUEUE}" pending 0` is missing'
        )


def _block(block: Block, running: Running) -> Running:
    for op in block.ops:
        running = _operation(op, running)
    return running


def _operation(op: Operation, running: Running) -> Running:
    match op:
        case CopyOutOp():
            return running | {op}
        case WaitOp() if op.queue.data == STORE_QUEUE and op.pending.value.data == 0:
            return frozenset()
        case scf.ForOp():
            # Twice: what runs on around the back edge.
            once = running | _block(op.body.block, running)
            return running | _block(op.body.block, once)
        case scf.IfOp():
            ends = [_block(block, running) for region in op.regions for block in region.blocks]
            return frozenset[CopyOutOp]().union(*ends, *([running] if len(ends) < 2 else []))
        case RolesOp():
            for region in op.roles:
                _require_none(_block(region.block, frozenset()))
            return running
        case _:
            return running
