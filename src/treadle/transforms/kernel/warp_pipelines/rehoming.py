"""What the compiler takes through shared memory of its own accord (reductions across warps, changes of layout) within a stage.

It is stored and loaded in one stage, with a barrier between that no stage has. Where all that is computed from it there has no effects, the
loads and what follows from them move to the beginning of a later stage, the first one in which all groups know what was stored.
"""

from collections.abc import Iterator, Sequence

from treadle.analysis.slot_values import SlotValues
from treadle.analysis.stage_meetings import meetings, stage_accesses
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.plan.leap_frog import Order
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import insert_after, num_warps
from treadle.transforms.kernel.warp_pipelines.borders import WarpPipeline


@dataclass(frozen=True, slots=True)
class Move:
    """Operations that go from the end of stage `source` to the beginning of stage `to`. `what`: in words."""

    ops: tuple[Operation, ...]
    source: int
    to: int
    what: str


@dataclass(frozen=True, slots=True)
class Homes:
    """The operations of each stage once all moves are made."""

    stages: tuple[tuple[Operation, ...], ...]
    moves: tuple[Move, ...]


def exchange(op: Operation, pipeline: WarpPipeline) -> tuple[tile.AllocOp, str] | None:
    """The buffer of an access that the compiler made, and for what: it has no line of its own in the text."""
    buffer = op.destination if isinstance(op, tile.LocalStoreOp) else op.source if isinstance(op, tile.LocalLoadOp) else None
    alloc = buffer.owner if buffer is not None else None
    if not isinstance(alloc, tile.AllocOp) or location_of(alloc) not in (location_of(op), location_of(pipeline.loop)):
        return None
    users = [use.operation for use in alloc.result.uses]
    if any(isinstance(user, tile.LocalStoreOp) and isinstance(user.value.owner, tile.ReduceOp) for user in users):
        return alloc, "a reduction across warps"
    readers = [use.operation for user in users if isinstance(user, tile.LocalLoadOp) for use in user.result.uses]
    is_operand = any(isinstance(reader, tile.ContractOp) for reader in readers)
    return alloc, "an operand of a product" if is_operand else "a change of layout across warps"


def find_homes(pipeline: WarpPipeline, kernel: tile.KernelOp) -> Homes:
    """Where the operations of each stage go. Nothing is changed; what has no home stays where it is."""
    homes = Homes(tuple(stage.ops for stage in pipeline.stages), ())
    for number in range(len(pipeline.stages)):
        for op in pipeline.stages[number].ops:
            found = exchange(op, pipeline) if isinstance(op, tile.LocalStoreOp) else None
            if found is not None and op in homes.stages[number]:
                homes = _moved(pipeline, kernel, homes, number, *found)
    return homes


def _moved(pipeline: WarpPipeline, kernel: tile.KernelOp, homes: Homes, number: int, alloc: tile.AllocOp, what: str) -> Homes:
    ops = _dependents(homes.stages[number], alloc)
    if not ops or any(not _has_no_effects(op, alloc) for op in ops):
        return homes
    last = min((n for n in range(number + 1, len(homes.stages)) if _uses(homes.stages[n], ops)), default=len(homes.stages) - 1)
    for to in range(number + 1, last + 1):
        stages = list(homes.stages)
        stages[number] = tuple(op for op in stages[number] if op not in ops)
        stages[to] = (*ops, *stages[to])
        if _is_kept(pipeline, kernel, stages, alloc):
            return Homes(tuple(stages), (*homes.moves, Move(ops, number, to, what)))
    return homes


def _dependents(stage: Sequence[Operation], alloc: tile.AllocOp) -> tuple[Operation, ...]:
    """The loads of a buffer in a stage, and what is computed from them there, in order."""
    found: list[Operation] = []
    for op in stage:
        reads = isinstance(op, tile.LocalLoadOp) and op.source.owner is alloc
        if reads or any(value.owner in found for inner in op.walk() for value in inner.operands):
            found.append(op)
    return tuple(found)


def _has_no_effects(op: Operation, alloc: tile.AllocOp) -> bool:
    return all(_is_free(inner, alloc) for inner in op.walk())


def _is_free(op: Operation, alloc: tile.AllocOp) -> bool:
    if isinstance(op, tile.LocalLoadOp):
        return op.source.owner is alloc
    return not (isinstance(op, HasEffects) and op.effects())


def _uses(stage: Sequence[Operation], ops: Sequence[Operation]) -> bool:
    return any(value.owner in ops for op in stage for inner in op.walk() for value in inner.operands)


def _is_kept(pipeline: WarpPipeline, kernel: tile.KernelOp, stages: Sequence[Sequence[Operation]], alloc: tile.AllocOp) -> bool:
    """Whether all groups keep to the order of the accesses to a buffer."""
    values = SlotValues()
    found = [each for each in stage_accesses(pipeline.loop, stages, values) if each.access.alloc is alloc]
    orders: Iterator[Order] = (
        Order(meeting.first.stage, meeting.distance(len(stages)), meeting.lead * pipeline.gap)
        for meeting in meetings(pipeline.loop, found, values, num_warps(kernel), pipeline.groups)
    )
    return all(order.is_kept for order in orders)


def move_home(pipeline: WarpPipeline, homes: Homes) -> None:
    """Make the moves."""
    for move in homes.moves:
        for op in move.ops:
            op.detach()
        insert_after(pipeline.stages[move.to].begin, *move.ops)
