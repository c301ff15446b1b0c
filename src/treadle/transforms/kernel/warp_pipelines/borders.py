"""What a loop with stages is made of: stages, and what stands at the borders between them. Reads and refuses (TR417), changes nothing."""

from collections.abc import Iterable, Mapping
from typing import NoReturn

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.stages import WARP_PIPELINE, EndStageOp, StageOp
from treadle.errors import WARP_PIPELINE_FORM, TreadleError
from treadle.ir.core import Attribute, Operation
from treadle.ir.dialects import builtin, scf
from treadle.ir.locations import location_of
from treadle.records import dataclass

GROUPS, GAP = 2, 1
"""Where a loop does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage with its operations. `priority`: None where none is named."""

    begin: StageOp
    end: EndStageOp
    ops: tuple[Operation, ...]
    label: str
    priority: int | None


@dataclass(frozen=True, slots=True)
class Border:
    """What stands behind a stage: waits and at most one barrier, in order. Behind the last stage: what is ahead of the first, too."""

    waits: tuple[sync.WaitOp, ...]
    barrier: sync.BarrierOp | None


@dataclass(frozen=True, slots=True)
class WarpPipeline:
    """A loop whose stages `groups` groups of warps run, each `gap` stages behind the one before. `borders[i]` is behind `stages[i]`.

    `ahead`: what of the last border stands ahead of the first stage.
    """

    loop: scf.ForOp
    stages: tuple[Stage, ...]
    borders: tuple[Border, ...]
    ahead: tuple[Operation, ...]
    groups: int
    gap: int

    @property
    def lag(self) -> int:
        """How many stages the last group is behind the first."""
        return (self.groups - 1) * self.gap

    def border_name(self, number: int) -> str:
        """A border in a message."""
        following = self.stages[(number + 1) % len(self.stages)]
        return f"between stages '{self.stages[number].label}' and '{following.label}'"


def refuse(op: Operation, problem: str, fix: str) -> NoReturn:
    """Raise TR417 at an operation."""
    raise TreadleError(WARP_PIPELINE_FORM, location_of(op), problem=problem, fix=fix)


def read_pipelines(kernel: tile.KernelOp) -> list[WarpPipeline]:
    """The loops of a kernel that have stages, all checked. Raises TR417 for the first that is none."""
    loops: dict[scf.ForOp, None] = {}
    for op in kernel.body.walk():
        if isinstance(op, StageOp | EndStageOp):
            loops[_loop_of(op)] = None
    for op in kernel.body.walk():
        if WARP_PIPELINE in op.attributes and op not in loops:
            refuse(op, "groups of warps for a loop that has no stages", "cut the loop into stages, or leave groups and gap out")
    if loops:
        for op in kernel.body.walk():
            if isinstance(op, pipe.RolesOp):
                refuse(op, "roles of warps in a kernel that has stages too", "let either roles or stages overlap copying and computing")
    return [_read(loop, kernel) for loop in loops]


def _loop_of(op: Operation) -> scf.ForOp:
    around = op.parent_op()
    if isinstance(around, scf.ForOp):
        return around
    refuse(op, "a stage in a branch", "let the loop's own body begin and end stages, and put the branch into a stage")


def _read(loop: scf.ForOp, kernel: tile.KernelOp) -> WarpPipeline:
    groups, gap = _request(loop, kernel)
    stages, between = parted(op for op in loop.body.block.ops if not isinstance(op, scf.YieldOp))
    if len(stages) < 2:
        refuse(loop, "a loop of one stage: the groups have nothing different to do at a time", "cut the loop into at least two stages")
    ahead, last = between[0], between[-1]
    parts = [*between[1:-1], [*last, *ahead]]
    _check_ends(last, ahead)
    names = [f"between stages '{stage.label}' and '{stages[(n + 1) % len(stages)].label}'" for n, stage in enumerate(stages)]
    borders = tuple(_border(ops, name) for ops, name in zip(parts, names, strict=True))
    kept = tuple(op for op in ahead if isinstance(op, sync.WaitOp | sync.BarrierOp))
    return WarpPipeline(loop, tuple(stages), borders, kept, groups, gap)


def parted(ops: Iterable[Operation]) -> tuple[list[Stage], list[list[Operation]]]:
    """The stages among operations of one block, and what stands ahead of, between and behind them: one list more."""
    stages: list[Stage] = []
    between: list[list[Operation]] = [[]]
    begin: StageOp | None = None
    inside: list[Operation] = []
    for op in ops:
        if isinstance(op, StageOp):
            if begin is not None:
                refuse(op, f"a stage within stage '{_label(begin, len(stages))}'", "end the one before the other begins")
            begin, inside = op, []
        elif isinstance(op, EndStageOp):
            if begin is None:
                refuse(op, "the end of a stage that has not begun", "begin it with pipe.stage")
            priority = None if begin.priority is None else begin.priority.value.data
            stages.append(Stage(begin, op, tuple(inside), _label(begin, len(stages)), priority))
            begin = None
            between.append([])
        elif begin is not None:
            _check_inside(op, _label(begin, len(stages)))
            inside.append(op)
        else:
            between[-1].append(op)
    if begin is not None:
        refuse(begin, f"stage '{_label(begin, len(stages))}' has no end in its block", "end it with pipe.end_stage")
    return stages, between


def _label(begin: StageOp, number: int) -> str:
    return str(number) if begin.label is None else begin.label.data


def _request(loop: scf.ForOp, kernel: tile.KernelOp) -> tuple[int, int]:
    """Groups and gap that a loop asks for. The warps of the kernel make that many groups."""
    asked = loop.attributes.get(WARP_PIPELINE)
    entries: Mapping[str, Attribute] = asked.data if isinstance(asked, builtin.DictionaryAttr) else {}
    found = {"groups": GROUPS, "gap": GAP}
    for name, value in entries.items():
        if name not in found or not isinstance(value, builtin.IntegerAttr):
            refuse(loop, f"{WARP_PIPELINE} with {name} = {value}", "write {groups = 2 : i64, gap = 1 : i64}")
        found[name] = value.value.data
    groups, gap = found["groups"], found["gap"]
    warps = kernel.num_warps.value.data
    if groups < 2:
        refuse(loop, f"{groups} group of warps: nobody computes while it copies", "use at least two groups, or leave the stages out")
    if gap < 1:
        refuse(loop, f"a gap of {gap} stages: all groups would run the same stage", "let groups be at least one stage apart")
    if warps % groups:
        counts = [groups * count for count in (warps // groups, warps // groups + 1) if count]
        fix = f"launch it with num_warps = {' or '.join(map(str, counts))}"
        refuse(loop, f"{warps} warp{'s' * (warps > 1)} cannot be dealt to {groups} groups", fix)
    return groups, gap


def _check_inside(op: Operation, label: str) -> None:
    for inner in op.walk():
        if inner.name.startswith("sync.") and not isinstance(inner, sync.CommitOp | sync.FenceOp | sync.SchedFenceOp):
            fix = "put it between two stages: end the stage before it and begin another one behind it"
            refuse(inner, f"{inner.name} inside of stage '{label}'", fix)
        if isinstance(inner, StageOp):
            refuse(inner, f"a loop with stages inside of stage '{label}'", "let the outer or the inner loop have stages")


def _check_ends(last: list[Operation], ahead: list[Operation]) -> None:
    """The border ahead of the first stage and that behind the last one are the same."""
    barriers = [next((op for op in part if isinstance(op, sync.BarrierOp)), None) for part in (ahead, last)]
    if barriers[0] is not None and barriers[1] is not None:
        text = "a barrier ahead of the first stage and one behind the last, which are the same border"
        refuse(barriers[1], text, "leave one of them out")


def _border(ops: list[Operation], name: str) -> Border:
    waits: list[sync.WaitOp] = []
    barrier: sync.BarrierOp | None = None
    for op in ops:
        match op:
            case sync.WaitOp():
                waits.append(op)
            case sync.BarrierOp() if op.groups is not None:
                refuse(op, f"a conditional barrier {name}", "leave the groups out: they are let in one after the other ahead of the loop")
            case sync.BarrierOp():
                if barrier is not None:
                    fix = "leave one of them out, or put an empty stage between them, for which all groups pause"
                    refuse(op, f"a second barrier {name}", fix)
                barrier = op
            case sync.SchedFenceOp():
                pass
            case _ if is_plain(op):
                pass
            case _:
                refuse(op, f"{op.name} {name}", "put it into a stage; between stages stand waits, barriers and arithmetic alone")
    return Border(tuple(waits), barrier)


def is_plain(op: Operation) -> bool:
    """Whether an operation computes registers from registers alone."""
    return all(not _touches(inner) for inner in op.walk())


def _touches(op: Operation) -> bool:
    return op.name.startswith("sync.") or (isinstance(op, HasEffects) and bool(op.effects()))
