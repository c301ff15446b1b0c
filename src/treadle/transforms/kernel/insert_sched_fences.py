"""insert-sched-fences: where the machine's own scheduler must not mix the stages of a pipelined loop.

Level: schedule. Reads: the loops that pipeline-loops has left, their barriers and accesses; `stage_fence` of the machine's row. Writes:
`sync.sched_fence` at the borders of stages. Leaves alone: loops that are not pipelined, warp pipelines,
whose slots have theirs, and machines whose rows ask for none.

Nothing ties matrix instructions to a barrier, or to the stores behind it: they touch no memory. A scheduler that mixes them makes them wait
for the loads that the stores wait for, and the loop has prefetched for nothing. A border is each side of a barrier, with the waits in
front of it, and the first operation of the write stage behind a matrix instruction, which is where loads are first used: conversions of
what they brought belong to that stage. Where the write stage comes first, the border is behind it, else the matrix instructions would stand
among its waits. The fence orders the compiler alone: without it the kernel is as right as before, and slower.
docs/audits.md has the figures.
"""

from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Block, Operation
from treadle.ir.dialects import scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_before
from treadle.transforms.kernel.pipelining.request import PIPELINED

_OTHER_STAGES = (tile.LoadOp, tile.GatherOp, tile.LocalLoadOp, tile.ContractOp)


def _writes(body: Block) -> frozenset[Operation]:
    """The write stage of a loop's body: stores to shared memory, and what computes the tiles they store from loads."""
    found = {op for op in body.ops if any(isinstance(inner, tile.LocalStoreOp) for inner in op.walk())}
    todo = list(found)
    while todo:
        for op in [one.owner for inner in todo.pop().walk() for one in inner.operands]:
            if isinstance(op, Operation) and op.parent is body and op not in found and not isinstance(op, _OTHER_STAGES):
                if any(is_tile(result) for result in op.results):
                    found.add(op)
                    todo.append(op)
    return frozenset(found)


def _first_wait(barrier: Operation) -> Operation:
    """The first of the waits that stand in front of a barrier, or the barrier."""
    first = barrier
    while isinstance(first.prev_op, sync.WaitOp):
        first = first.prev_op
    return first


def borders(body: Block) -> list[Operation]:
    """The operations of a loop's body that a stage begins with, in order."""
    writes = _writes(body)
    found: list[Operation] = []
    multiplied = wrote = False
    behind: Operation | None = None  # what stands behind a write stage that comes before the matrix instructions
    for op in body.ops:
        if isinstance(op, sync.BarrierOp):
            found += [_first_wait(op), *([op.next_op] if op.next_op is not None else [])]
            multiplied, wrote, behind = False, False, None
        elif op in writes:
            found += [op] if multiplied else []
            multiplied, wrote, behind = False, True, None
        elif wrote and isinstance(op, _OTHER_STAGES):
            behind, wrote = op, False
        if isinstance(op, tile.ContractOp):
            found += [behind] if behind is not None else []
            multiplied, behind = True, None
    return list(dict.fromkeys(found))


@register_pass
@dataclass(frozen=True)
class InsertSchedFencesPass(KernelPass):
    """Puts `sync.sched_fence` at the borders of stages."""

    name = "insert-sched-fences"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Mark the borders of one kernel's pipelined loops."""
        if spec.stage_fence is None:
            return
        loops = [op for op in kernel.body.walk() if isinstance(op, scf.ForOp) and PIPELINED in op.attributes]
        for loop in [op for op in loops if WARP_PIPELINED not in op.attributes]:
            for op in borders(loop.body.block):
                if not isinstance(op.prev_op, sync.SchedFenceOp):
                    insert_before(op, sync.SchedFenceOp(spec.stage_fence))
