"""Writes the slots of a warp pipeline: barriers, waits, priorities and scheduling fences between stages, and what lets the groups in."""

from treadle.analysis.shared_accesses import shared_accesses
from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINE, WARP_PIPELINED
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, scf
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import erase, insert_after, insert_before
from treadle.transforms.kernel.warp_pipelines.borders import Border, WarpPipeline
from treadle.transforms.kernel.warp_pipelines.orders import SlotPlan, local_is_drained


@dataclass(frozen=True, slots=True)
class Ends:
    """What is around a pipeline. `before`: the pipeline whose groups go on to it as they are. `meets`: another one follows it directly,
    and lets its groups in behind a barrier, unless they go on (`goes_on`).
    """

    before: WarpPipeline | None = None
    meets: bool = False
    goes_on: bool = False


ALONE = Ends()


def write_slots(pipeline: WarpPipeline, plan: SlotPlan, kernel: tile.KernelOp, spec: TargetSpec, ends: Ends = ALONE) -> None:
    """Turn the borders of a checked pipeline into slots; the loop's stages are its attribute `warp_pipelined` then."""
    if ends.before is None:
        _let_in(pipeline, plan, spec)
    else:
        _go_on(pipeline, ends.before, spec)
    if not ends.goes_on:
        is_followed = plan.is_open and not ends.meets and _is_followed(pipeline.loop, kernel)
        _let_out(pipeline, plan, spec, is_followed=is_followed)
    end = pipeline.loop.body.block.last_op
    for op in pipeline.ahead:  # ahead of the first stage is behind the last
        op.detach()
        if end is not None:
            insert_before(end, op)
    for number, border in enumerate(pipeline.borders):
        _write(pipeline, number, border, plan, spec)
    for stage in pipeline.stages:
        erase(stage.begin, stage.end)
    pipeline.loop.attributes.pop(WARP_PIPELINE, None)
    pipeline.loop.attributes[WARP_PIPELINED] = builtin.DictionaryAttr(
        {
            "groups": builtin.IntegerAttr(pipeline.groups, builtin.i64),
            "gap": builtin.IntegerAttr(pipeline.gap, builtin.i64),
            "stages": builtin.ArrayAttr([builtin.StringAttr(stage.label) for stage in pipeline.stages]),
            "local": tile.i64_array(sorted(plan.flushing)),
            **({} if ends.before is None else {"joins": builtin.UnitAttr()}),
        }
    )


def _fence(spec: TargetSpec) -> list[Operation]:
    return [] if spec.stage_fence is None else [sync.SchedFenceOp(spec.stage_fence)]


def _priorities(pipeline: WarpPipeline) -> list[int]:
    """That of each stage, where any has one; the others run at the lowest."""
    if all(stage.priority is None for stage in pipeline.stages):
        return []
    return [stage.priority or 0 for stage in pipeline.stages]


def _conditional(pipeline: WarpPipeline, *, entering: bool) -> list[Operation]:
    """The barriers that let the groups in, or out, one after the other: group q meets q * gap of them ahead of the loop."""
    last = pipeline.groups - 1
    steps = [range(q, last + 1) for q in range(1, last + 1)] if entering else [range(q) for q in range(last, 0, -1)]
    return [sync.BarrierOp(bare=True, groups=list(those)) for those in steps for _ in range(pipeline.gap)]


def _let_in(pipeline: WarpPipeline, plan: SlotPlan, spec: TargetSpec) -> None:
    """What was done ahead of the loop is over, for all groups; then they begin, `gap` stages apart."""
    loop, priorities = pipeline.loop, _priorities(pipeline)
    # A group that is behind waits for its own copies a stage later than others read them: those from ahead of the loop are waited for here.
    waits: list[Operation] = [sync.WaitOp(queue, 0) for queue in dict.fromkeys(_queues(pipeline, plan)) if _is_used(queue, loop, spec)]
    waits += [sync.FenceOp("async_shared")] if plan.fences else []
    first: list[Operation] = [sync.SetPriorityOp(priorities[0])] if priorities else []
    insert_before(loop, *waits, sync.BarrierOp(), *_conditional(pipeline, entering=True), *first, *_fence(spec))


def _is_used(queue: str, loop: scf.ForOp, spec: TargetSpec) -> bool:
    """Whether anything may be in flight in a queue ahead of a loop."""
    matrix, current = spec.queue_for("matrix"), loop.prev_op
    if matrix is None or queue != matrix.name:
        return True
    while current is not None and not _goes_to_matrix(current):
        current = current.prev_op
    return current is not None


def _go_on(pipeline: WarpPipeline, before: WarpPipeline, spec: TargetSpec) -> None:
    """The groups come from another pipeline, as far apart as they are to be."""
    priorities = _priorities(pipeline) or ([0] if _priorities(before) else [])
    if priorities:
        insert_before(pipeline.loop, sync.SetPriorityOp(priorities[0]), *_fence(spec))


def _let_out(pipeline: WarpPipeline, plan: SlotPlan, spec: TargetSpec, *, is_followed: bool) -> None:
    """The groups meet again, the others where the last one meets its last slot. What is not complete there is behind a barrier of all
    groups, where more is done with shared memory.
    """
    reset: list[Operation] = [sync.SetPriorityOp(0)] if _priorities(pipeline) else []
    waits: list[Operation] = [sync.WaitOp(queue, 0) for queue in dict.fromkeys(_queues(pipeline, plan))]
    joined: list[Operation] = [sync.BarrierOp()] if is_followed else []
    insert_after(pipeline.loop, *_fence(spec), *_conditional(pipeline, entering=False), *reset, *waits, *joined)


def _queues(pipeline: WarpPipeline, plan: SlotPlan) -> list[str]:
    """The queues that slots wait for."""
    return [*plan.queues, *(wait.queue.data for border in pipeline.borders for wait in border.waits)]


def _is_followed(loop: scf.ForOp, kernel: tile.KernelOp) -> bool:
    """Whether shared memory is used behind the loop, or again in a loop around it."""
    if isinstance(loop.parent_op(), scf.ForOp):
        return True
    ops = list(kernel.body.walk())
    inside = set(loop.walk())
    return any(shared_accesses(op) for op in ops[ops.index(loop) :] if op not in inside)


def _write(pipeline: WarpPipeline, number: int, border: Border, plan: SlotPlan, spec: TargetSpec) -> None:
    """One slot. A barrier that stands there stays, and flushes where the slot has to."""
    stage, priorities = pipeline.stages[number], _priorities(pipeline)
    following = (number + 1) % len(pipeline.stages)
    flushes = number in plan.flushing and not local_is_drained(border.waits, spec)
    if border.barrier is None:
        barrier = sync.BarrierOp(bare=not flushes)
        insert_after(border.waits[-1] if border.waits else stage.end, barrier)
    else:
        barrier = border.barrier
        if flushes:
            barrier.bare = None
    waits = [sync.WaitOp(queue, pending) for slot, queue, pending in plan.waits if slot == number]
    insert_before(barrier, *waits)
    first = next((wait for wait in (*border.waits, *waits) if _is_ahead(wait, barrier)), barrier)
    changes = len(set(priorities)) > 1
    matrix = spec.queue_for("matrix")
    if number in plan.fences:
        insert_before(stage.end, sync.FenceOp("async_shared"))
    if matrix is not None and matrix.name in plan.queues and any(_goes_to_matrix(op) for op in stage.ops):
        insert_before(stage.end, sync.CommitOp(matrix.name))
    insert_before(first, *_fence(spec), *([sync.SetPriorityOp(priorities[following])] if changes else []))
    insert_after(barrier, *_fence(spec))


def _goes_to_matrix(op: Operation) -> bool:
    return any(isinstance(inner, tile.ContractOp) for inner in op.walk())


def _is_ahead(one: Operation, other: Operation) -> bool:
    """Whether one operation of a block stands ahead of another."""
    current = other.prev_op
    while current is not None and current is not one:
        current = current.prev_op
    return current is one
