"""Slots that all threads of a role copy while those of the steps before are still in flight: handed over so many steps later.

Each step closes a group of copies and waits for the one that is `FILLS_IN_FLIGHT` steps older, whose slot is full then; the last ones are
waited for behind the loop. So as many slots are in flight as hide the memory's latency, in a loop that runs forward only.
"""

from treadle.analysis.synchronisation.hand_overs import Visit
from treadle.analysis.synchronisation.operations import queue_of
from treadle.dialects import pipe, sync, tile
from treadle.ir.core import Block, BlockArgument, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


@dataclass(frozen=True, slots=True)
class LateFill:
    """The fills of a ring of `slots` in a loop: `last` is the last operation of a step's, `slot` the carried number, `lag` how many steps'
    copies of `queue` are in flight.
    """

    loop: scf.ForOp
    last: Operation
    slot: BlockArgument
    slots: int
    lag: int
    queue: str


def late_fill(fill: Visit, last: Operation, slots: int, spec: TargetSpec) -> LateFill | None:
    """How a visit's fills are handed over late; None where they are not: nobody asks for it, or something but queued copies fills."""
    loop, slot = fill.block.parent_op(), fill.slot
    if not isinstance(loop, scf.ForOp) or not isinstance(slot, BlockArgument) or slot.block is not fill.block or not slot.index:
        return None
    asked = loop.attributes.get(pipe.FILLS_IN_FLIGHT)
    lag = min(asked.value.data, slots - 1) if isinstance(asked, builtin.IntegerAttr) else 0
    writers = [use.operation for place in fill.places for use in place.result.uses]
    if lag < 1 or not all(isinstance(op, tile.CopyOp) and op.parent is fill.block for op in writers):
        return None
    queues = {queue.name for op in writers if (queue := queue_of(op, spec)) is not None and queue.is_committed}
    return LateFill(loop, last, slot, slots, lag, queues.pop()) if len(queues) == 1 else None


def hand_over_late(fill: LateFill, full: SSAValue, *, crosses_proxies: bool) -> None:
    """Write what each step hands over, and what is left behind the loop. `crosses_proxies`: slots are read through the async proxy.

    A fence waits for all copies of its thread, those in flight too: where readers are threads, slots come without.
    """
    loop, lag = fill.loop, fill.lag
    ahead = IndexBuilder(Builder(InsertPoint.before(loop)), {})
    begins = [ahead.add(loop.lb, ahead.multiply(loop.step, number)) for number in range(lag + 1)]
    step = IndexBuilder(Builder(InsertPoint.after(fill.last)), {})
    step.builder.insert(sync.CommitOp(fill.queue))
    step.builder.insert(sync.WaitOp(fill.queue, lag))
    if crosses_proxies:
        step.builder.insert(sync.FenceOp("async_shared"))
    _arrive(step, fill, fill.slot, lag, full, step.insert(arith.CmpiOp(loop.body.block.args[0], begins[lag], "sge")))
    behind = IndexBuilder(Builder(InsertPoint.after(loop)), {})
    behind.builder.insert(sync.WaitOp(fill.queue, 0))
    if crosses_proxies:
        behind.builder.insert(sync.FenceOp("async_shared"))
    for number in range(lag, 0, -1):
        is_made = behind.insert(arith.CmpiOp(begins[number - 1], loop.ub, "slt"))
        _arrive(behind, fill, loop.results[fill.slot.index - 1], number, full, is_made)


def _arrive(index: IndexBuilder, fill: LateFill, slot: SSAValue, back: int, full: SSAValue, condition: SSAValue) -> None:
    """Hand over the slot `back` steps before `slot`, where there was such a step."""
    earlier = index.insert(pipe.AdvanceOp(slot, index.constant(fill.slots - back), fill.slots))
    branch = Block()
    barrier = sync.MbarrierSlotOp(full, earlier)
    branch.add_ops([barrier, sync.ArriveOp(barrier.result), scf.YieldOp()])
    index.builder.insert(scf.IfOp(condition, [], [branch]))
