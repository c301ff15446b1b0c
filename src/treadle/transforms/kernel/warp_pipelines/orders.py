"""What the accesses of a warp pipeline's stages ask of its slots: which of them flush, which wait for copies. Reads and refuses (TR418)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from treadle.analysis.slot_values import SlotValues, Trip
from treadle.analysis.stage_meetings import Meeting, StageAccess, meetings, stage_accesses
from treadle.dialects import sync, tile
from treadle.errors import WARP_PIPELINE_ORDER, TreadleError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.machine import Queue, TargetSpec
from treadle.plan.leap_frog import Order, Ring, flushing_slots, smallest_ring, widest_gap
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import num_warps
from treadle.transforms.kernel.warp_pipelines.borders import Stage, WarpPipeline, refuse
from treadle.transforms.kernel.warp_pipelines.rehoming import Homes, exchange


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """What the slots of a pipeline do. `flushing`: by number, with a reason each. `waits`: (slot, queue, groups left pending). `is_open`:
    something done in the last iteration is not complete at the slots behind it. `queues`: those that stages issue to. `fences`: stages
    whose stores matrix instructions read.
    """

    flushing: dict[int, str]
    waits: tuple[tuple[int, str, int], ...]
    is_open: bool = True
    queues: tuple[str, ...] = ()
    fences: tuple[int, ...] = ()


def plan_slots(pipeline: WarpPipeline, homes: Homes, kernel: tile.KernelOp, spec: TargetSpec) -> SlotPlan:
    """What each slot has to do, so that the program means what it says. Raises TR418 where no barrier can see to that."""
    values, stages = SlotValues(), len(pipeline.stages)
    found = stage_accesses(pipeline.loop, homes.stages, values)
    matrix, copies = spec.queue_for("matrix"), spec.queue_for("copy_in")
    for each in found:
        if each.access.is_async and not isinstance(each.op, tile.ContractOp):
            text = f"descriptor copies of {spec.name} reach shared memory by themselves, which slots do not order"
            _refuse(each, text, f"leave the stages out on {spec.name}: copying overlaps computing there without them")
    _check_teams(pipeline, kernel, spec)
    orders: dict[Order, Meeting] = {}
    queued: dict[str, list[tuple[Order, StageAccess]]] = {"copy_in": [], "matrix": []}
    fences: set[int] = set()
    for meeting in meetings(pipeline.loop, found, values, num_warps(kernel), pipeline.groups):
        order = Order(meeting.first.stage, meeting.distance(stages), meeting.lead * pipeline.gap)
        if not order.is_kept:
            _refuse_meeting(meeting, order, pipeline, values)
        if isinstance(meeting.first.op, tile.CopyOp | tile.ContractOp):
            queued["copy_in" if isinstance(meeting.first.op, tile.CopyOp) else "matrix"].append((order, meeting.first))
        else:
            orders.setdefault(order, meeting)
        if meeting.second.access.is_async and not meeting.first.access.is_async:
            fences.add(meeting.first.stage)
    chosen = flushing_slots(list(orders), stages)
    reasons = {slot: _reason(slot, orders, pipeline) for slot in chosen}
    waits = [
        (slot, queue.name, pending)
        for queue in (copies, matrix)
        if queue is not None
        for slot, pending in sorted(_waits(queued[queue.role], queue, pipeline, _first_waits(queue, pipeline)).items())
    ]
    multiplies = any(each.access.is_async for each in found)
    queues = (*(name for _, name, _ in waits), *((matrix.name,) if multiplies and matrix is not None else ()))
    plan = SlotPlan(reasons, tuple(waits), queues=tuple(dict.fromkeys(queues)), fences=tuple(sorted(fences)))
    last = max((slot for slot, flushes in enumerate(flushing(pipeline, plan, spec)) if flushes), default=-1)
    is_open = any(each.stage > last or isinstance(each.op, tile.CopyOp | tile.ContractOp) for each in found)
    return replace(plan, is_open=is_open)


def _check_teams(pipeline: WarpPipeline, kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """A group issues matrix instructions by itself: it is as many warps as that takes, or several times as many."""
    names = {op.instruction.data for op in pipeline.loop.walk() if isinstance(op, tile.ContractOp)} - {"", "fma"}
    team, warps = max((spec.instruction(name).warps for name in names), default=1), num_warps(kernel) // pipeline.groups
    if warps % team:
        text = f"{pipeline.groups} groups of {warps} warps: matrix instructions of {spec.name} are those of {team} warps"
        refuse(pipeline.loop, text, f"launch it with num_warps = {pipeline.groups * team}")


def _first_waits(queue: Queue, pipeline: WarpPipeline) -> dict[int, int]:
    """The slots at which matrix instructions are waited for first: behind their stages, where more than a chain reads them."""
    if queue.role != "matrix":
        return {}
    return {number: 0 for number, stage in enumerate(pipeline.stages) if any(_is_read(op, stage) for op in _issued(stage.ops, queue))}


def _is_read(op: Operation, stage: Stage) -> bool:
    """Whether anything but matrix instructions that go on with it reads a result. Raises TR418 where the stage itself does."""
    pending, seen, now = list[SSAValue](op.results), set[SSAValue](), set[SSAValue](op.results)
    around = stage.begin.parent_op()
    is_read = isinstance(op, tile.ContractOp) and op.holds_registers()
    while pending:
        value = pending.pop()
        seen.add(value)
        for use in value.uses:
            user = use.operation
            if isinstance(user, scf.YieldOp) and isinstance(loop := user.parent_op(), scf.ForOp):
                inner = [] if loop is around else [loop.results[use.index]]
                now.update(inner)
                pending += [each for each in (loop.body.block.args[1 + use.index], *inner) if each not in seen]
            elif not isinstance(user, tile.ContractOp) or user.accumulator is not value:
                is_read = True
                if value in now and user in stage.ops:
                    text = f"the result of matrix instructions is used in their own stage '{stage.label}', which they outlast"
                    fix = "use it in a later stage, which begins when it is there"
                    raise TreadleError(WARP_PIPELINE_ORDER, location_of(user), problem=text, fix=fix)
    return is_read


def _waits(orders: Sequence[tuple[Order, StageAccess]], queue: Queue, pipeline: WarpPipeline, there: Mapping[int, int]) -> dict[int, int]:
    """By slot, how many groups of a queue a wait there may leave pending: each operation is waited for at a slot that its order has, the
    last one where nothing else has waited for it. Waits that are there stay, and are taken to be right; the proof knows.
    """
    stages = len(pipeline.stages)
    found = dict(there)
    for order, copy in sorted(orders, key=lambda each: each[0].distance - each[0].lag):
        newer = _newer(copy, order, queue, pipeline)
        places = [((order.first + n) % stages, left) for n, left in enumerate(newer)]
        if any(wait.queue.data == queue.name for slot, _ in places for wait in pipeline.borders[slot].waits):
            continue
        if not any(found.get(slot, queue.max_pending + 1) <= left for slot, left in places):
            slot, left = places[-1]
            found[slot] = min(left, queue.max_pending, found.get(slot, left))
    return found


def _newer(copy: StageAccess, order: Order, queue: Queue, pipeline: WarpPipeline) -> list[int]:
    """How many groups are newer than a copy's at each slot of its order; 0 where branches decide."""
    stages = len(pipeline.stages)
    own = _units(pipeline.stages[copy.stage].ops, queue)
    is_conditional = any(op.parent is not pipeline.loop.body.block for stage in pipeline.stages for op in _issued(stage.ops, queue))
    total = 0 if queue.is_committed else len(own) - 1 - own.index(copy.op)
    found: list[int] = []
    for n in range(order.distance - order.lag):
        total += len(_units(pipeline.stages[(copy.stage + n) % stages].ops, queue)) if n else 0
        found.append(0 if is_conditional else total)
    return found


def _issued(ops: Sequence[Operation], queue: Queue) -> list[Operation]:
    """The operations of a stage that go to a queue."""
    kind = tile.CopyOp if queue.role == "copy_in" else tile.ContractOp
    return [inner for op in ops for inner in op.walk() if isinstance(inner, kind)]


def _units(ops: Sequence[Operation], queue: Queue) -> list[Operation]:
    """What a queue counts of a stage: each operation, or all of them where groups are committed."""
    found = _issued(ops, queue)
    return found[:1] if queue.is_committed else found


def _reason(slot: int, orders: dict[Order, Meeting], pipeline: WarpPipeline) -> str:
    """For whom a slot flushes: the nearest of those that it is chosen for."""
    stages = len(pipeline.stages)
    served = [(order.distance, n) for n, order in enumerate(orders) if slot in order.slots(stages)]
    meeting = list(orders.values())[min(served)[1]]
    return f"{described(meeting.first, pipeline)} comes before {described(meeting.second, pipeline)}"


# --- refusals


def _refuse(at: StageAccess, problem: str, fix: str) -> NoReturn:
    raise TreadleError(WARP_PIPELINE_ORDER, location_of(at.op), problem=problem, fix=fix)


def described(found: StageAccess, pipeline: WarpPipeline) -> str:
    """An access in a message: what it does, where it stands in the text, and in which stage."""
    hidden = exchange(found.op, pipeline)
    place = location_of(found.op)
    line = f" (line {place.line})" if place is not None else ""
    if isinstance(found.op, tile.ContractOp):
        return f"a product from shared memory{line} in stage '{pipeline.stages[found.stage].label}'"
    what = "a copy to" if isinstance(found.op, tile.CopyOp) else "a store to" if found.access.is_write else "a load from"
    return f"{hidden[1] if hidden else what + ' shared memory'}{line} in stage '{pipeline.stages[found.stage].label}'"


def _refuse_meeting(meeting: Meeting, order: Order, pipeline: WarpPipeline, values: SlotValues) -> NoReturn:
    first, second = (described(each, pipeline) for each in (meeting.first, meeting.second))
    if meeting.first.stage == meeting.second.stage and not meeting.iterations:
        where = f"stage '{pipeline.stages[meeting.first.stage].label}'"
        if hidden := exchange(meeting.first.op, pipeline):
            text = f"{hidden[1]} goes through shared memory, which takes a barrier inside of {where}"
            _refuse(meeting.first, text, _exchange_fix(hidden[1], pipeline))
        text = f"{first} and {second} meet in one slot, and no barrier stands inside of a stage"
        _refuse(meeting.first, text, "put them into different stages, or into different slots of the buffer")
    far = "in the same iteration" if not meeting.iterations else f"{meeting.iterations} iteration{'s' * (meeting.iterations > 1)} later"
    text = (
        f"{first} comes before {second} {far}, which is {order.distance} stage{'s' * (order.distance != 1)} on; a group that is "
        f"{order.lag} stage{'s' * (order.lag != 1)} ahead is there {'at the same time' if order.distance == order.lag else 'sooner'}"
    )
    _refuse(meeting.first, text, _fix(meeting, pipeline, values))


def _exchange_fix(what: str, pipeline: WarpPipeline) -> str:
    if what == "an operand of a product":
        return "pass it on by a buffer of your own (tl.allocate_shared), stored in one stage and loaded in a later one"
    stages = pipeline.lag + 1
    later = f"{stages} stage{'s' * (stages > 1)} later or more"
    return f"use its result {later}, in a loop of at least {2 * stages} stages; within a stage exchange nothing across warps"


def _fix(meeting: Meeting, pipeline: WarpPipeline, values: SlotValues) -> str:
    """The smallest ring, or gap, with which the groups can share the buffer."""
    stages = len(pipeline.stages)
    ring = _ring(meeting, pipeline, values)
    if ring is None:
        return "give the buffer more slots, each picked by the number of the step (i % slots), or put more stages between the two"
    wanted = smallest_ring(ring, stages, pipeline.lag)
    gap = widest_gap(ring, stages, pipeline.groups)
    more = f", or let the groups be {gap} stage{'s' * (gap > 1)} apart (gap = {gap})" if gap else ""
    if wanted.ahead <= ring.ahead:
        fewest = replace(ring, slots=wanted.slots + ring.ahead - wanted.ahead)
        return f"give the buffer {fewest.slots} slots instead of {ring.slots}{more}"
    ahead = f"{wanted.ahead} iteration{'s' * (wanted.ahead > 1)} ahead"
    return f"fill it {ahead}, in a buffer of {wanted.slots} slots (slot (i + {wanted.ahead}) % {wanted.slots} of iteration i){more}"


def _ring(meeting: Meeting, pipeline: WarpPipeline, values: SlotValues) -> Ring | None:
    """The ring that a fill and a reader go round, where both step by one slot an iteration."""
    fill, read = (meeting.first, meeting.second) if meeting.first.access.is_write else (meeting.second, meeting.first)
    if read.access.is_write or fill.access.alloc is not read.access.alloc:
        return None
    extents = fill.access.slot_extents
    if not extents or len(extents) != 1 or len(read.access.slots) != 1:
        return Ring(fill.stage, read.stage, 0, 1) if not extents else None
    trip, slots = Trip(pipeline.loop), extents[0]
    one, other = fill.access.slots[0].form, read.access.slots[0].form
    difference = one - other
    if slots == 1:
        return Ring(fill.stage, read.stage, 0, 1)
    if one.coefficient(trip) != 1 or not difference.is_constant:
        return None
    return Ring(fill.stage, read.stage, difference.constant % slots, slots)


def flushing(pipeline: WarpPipeline, plan: SlotPlan, spec: TargetSpec) -> tuple[bool, ...]:
    """Whether each slot has all that a warp has done to shared memory completed."""
    stands = [border.barrier is not None and border.barrier.bare is None for border in pipeline.borders]
    drained = [local_is_drained(border.waits, spec) for border in pipeline.borders]
    return tuple(n in plan.flushing or stands[n] or drained[n] for n in range(len(pipeline.stages)))


def local_is_drained(waits: Sequence[sync.WaitOp], spec: TargetSpec) -> bool:
    """Whether waits that stand at a border wait for all that a warp has done to shared memory."""
    queue = spec.queue_for("local")
    return queue is not None and any(wait.queue.data == queue.name and not wait.pending.value.data for wait in waits)
