"""Stages of warp pipelines in machine code: behind which slot each instruction must stand, and at which priority (audit rule A7)."""

from collections.abc import Iterable, Mapping, Sequence

from treadle.dialects.stages import WARP_PIPELINED
from treadle.dialects.sync import BarrierOp, SetPriorityOp
from treadle.ir.core import Block, Operation
from treadle.ir.dialects import builtin, scf
from treadle.targets.amd.assembly import Listing
from treadle.targets.amd.counters import Violation, kind_of
from treadle.targets.amd.flow import blocks
from treadle.targets.interface import SchedulePoint, StagePoint

State = tuple[int, int]
"""The line of the barrier that was met last, 0 for none; the priority."""


def stage_point(op: Operation, lines: Mapping[Operation, int]) -> StagePoint | None:
    """Which barriers an operation of a warp pipeline stands behind, and its priority; None for others."""
    place = op
    while (block := place.parent) is not None and not _is_pipelined(block):
        around = place.parent_op()
        if around is None:
            return None
        place = around
    loop = place.parent_op()
    if block is None or loop is None:
        return None
    ahead, behind = _parted(list(block.ops), place)
    entering = _before(loop)
    slot = _last(BarrierOp, ahead)
    found = [slot] if slot is not None else [*(o for o in entering if isinstance(o, BarrierOp)), _last(BarrierOp, behind)]
    setting = _last(SetPriorityOp, [*entering, *behind, *ahead])
    priority = setting.priority.value.data if isinstance(setting, SetPriorityOp) else 0
    return StagePoint(tuple(lines[o] for o in found if o is not None), priority)


def _is_pipelined(block: Block) -> bool:
    loop = block.parent_op()
    return isinstance(loop, scf.ForOp) and WARP_PIPELINED in loop.attributes


def _parted(ops: Sequence[Operation], place: Operation) -> tuple[Sequence[Operation], Sequence[Operation]]:
    at = ops.index(place)
    return ops[:at], ops[at:]


def _last(kind: type[Operation], ops: Sequence[Operation]) -> Operation | None:
    return next((op for op in reversed(ops) if isinstance(op, kind)), None)


def _before(loop: Operation) -> list[Operation]:
    """What lets the groups in: the synchronisation right ahead of the loop, or of the pipeline that they come from, and its last slot."""
    found: list[Operation] = []
    current = loop.prev_op
    while current is not None and (current.name.startswith("sync.") or (_joins(loop) and not isinstance(current, scf.ForOp))):
        if current.name.startswith("sync."):
            found.insert(0, current)
        current = current.prev_op
    if _joins(loop) and isinstance(current, scf.ForOp):
        slot = _last(BarrierOp, list(current.body.block.ops))
        return [*_before(current), *([] if slot is None else [slot]), *found]
    return found


def barriers_behind(listing: Listing) -> dict[int, frozenset[int]]:
    """Ahead of each instruction, the lines of the barriers of which one was met last, by some path; 0 for none."""
    return {at: frozenset(last for last, _ in states) for at, states in _states(listing).items()}


def _joins(loop: Operation) -> bool:
    """Whether the groups come to a loop from another pipeline as they are."""
    request = loop.attributes.get(WARP_PIPELINED)
    return isinstance(request, builtin.DictionaryAttr) and "joins" in request.data


def misplaced_stages(listing: Listing, points: Iterable[SchedulePoint]) -> list[Violation]:
    """A7: instructions that some path reaches behind another barrier than their stage's, or at another priority."""
    planned = {point.line: point.stage for point in points if point.stage is not None}
    if not planned:
        return []
    wrong: list[Violation] = []
    for at, states in _states(listing).items():
        one = listing.instructions[at]
        stage, kind = planned.get(one.source), kind_of(one)
        if stage is None or kind is None:
            continue  # arithmetic on addresses and numbers is where it is needed
        if any(last not in stage.behind for last, _ in states):
            wrong.append(Violation("A7", one.line, f"{listing.named(at)} stands in another stage than in the schedule"))
        elif kind != "barrier" and any(priority != stage.priority for _, priority in states):
            found = ", ".join(str(priority) for _, priority in sorted(states))
            wrong.append(Violation("A7", one.line, f"{listing.named(at)} at priority {found}, {stage.priority} in the schedule"))
    return wrong


def _states(listing: Listing) -> dict[int, set[State]]:
    """What may hold ahead of each instruction."""
    code, found = listing.instructions, blocks(listing)
    entering: list[set[State]] = [set() for _ in found]
    entering[0].add((0, 0))
    todo = [0]
    states: dict[int, set[State]] = {}
    while todo:
        block = found[number := todo.pop()]
        current = set(entering[number])
        for at in range(block.first, block.last + 1):
            states[at] = set(current)
            one = code[at]
            if one.mnemonic in ("s_barrier", "s_barrier_signal"):
                current = {(one.source, priority) for _, priority in current}
            elif one.mnemonic == "s_setprio":
                current = {(last, int(one.operands, 0)) for last, _ in current}
        for successor in block.successors:
            if not current <= entering[successor]:
                entering[successor] |= current
                todo.append(successor)
    return states
