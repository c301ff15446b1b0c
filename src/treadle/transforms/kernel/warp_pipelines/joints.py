"""Warp pipelines that follow one another: whether the groups go on from one to the next as they are, or meet in between.

They go on where every two accesses of the two that conflict keep their order across the border, as within a loop (`plan/leap_frog.py`), and
a slot that flushes lies between them. A slot of stages that are passed once is made to flush for that; one of a loop is not: it would cost
every iteration, and meeting costs once. Decides, changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_motion import LoopMotion
from treadle.analysis.slot_values import SlotValues, Trip, is_inside
from treadle.analysis.slots import UNKNOWN, Atom, Congruence, Linear, atom, exactly
from treadle.analysis.stage_meetings import StageAccess, lead, stage_accesses
from treadle.dialects import tile
from treadle.ir.dialects import scf
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import num_warps
from treadle.transforms.kernel.warp_pipelines.borders import WarpPipeline, is_plain
from treadle.transforms.kernel.warp_pipelines.orders import SlotPlan, described
from treadle.transforms.kernel.warp_pipelines.rehoming import Homes


@dataclass(frozen=True, slots=True)
class Planned:
    """A pipeline with what its slots do. `flushes`: which of them flush. `trips`: how often the stages are passed, where that is known."""

    pipeline: WarpPipeline
    homes: Homes
    plan: SlotPlan
    flushes: tuple[bool, ...]
    trips: int | None

    def flushing(self, slot: int, reason: str) -> "Planned":
        """With one more slot that flushes."""
        flushes = tuple(does or number == slot for number, does in enumerate(self.flushes))
        return replace(self, plan=replace(self.plan, flushing={**self.plan.flushing, slot: reason}), flushes=flushes)


@dataclass(frozen=True, slots=True)
class Parting:
    """Whether the groups go on to a pipeline (`joins`), or why they meet ahead of it; `reason` "" where there is nothing to tell."""

    joins: bool
    reason: str = ""


def follows(one: WarpPipeline, other: WarpPipeline) -> bool:
    """Whether nothing but arithmetic stands between one loop and another."""
    current = one.loop.next_op
    while current is not None and current is not other.loop and is_plain(current) and not isinstance(current, scf.ForOp):
        current = current.next_op
    return current is other.loop


def _joined(chain: Sequence[Planned], kernel: tile.KernelOp) -> tuple[list[Planned], Parting]:
    """Pipelines of which all but the last are passed without meeting, with the slots that flush if the last one is, too."""
    found = list(chain)
    last, behind = found[-2].pipeline, found[-1].pipeline
    if not follows(last, behind):
        return found, Parting(joins=False)
    if (last.groups, last.gap) != (behind.groups, behind.gap):
        return found, Parting(joins=False, reason="they are others, or other stages apart")
    if any(_has_queues(each) for each in found):
        return found, Parting(joins=False, reason="copies are waited for there")
    values = SlotValues()
    for number in range(len(found) - 1):
        for first, second, path, distance in _crossings(found, number, values):
            lag = lead(first, second, num_warps(kernel), last.groups)
            window = [] if lag is None else path[: max(0, min(distance - lag * last.gap, distance + 1))]
            if lag is None or any(found[n].flushes[slot] for n, slot in window):
                continue
            text = f"{described(first, found[number].pipeline)} comes before {described(second, behind)}"
            free = [(n, slot) for n, slot in window if found[n].trips == 1]
            if not free:
                why = "and no slot between them flushes" if window else "which groups that are apart would reach at the same time"
                return list(chain), Parting(joins=False, reason=f"{text}, {why}")
            n, slot = free[-1]
            found[n] = found[n].flushing(slot, text)
    return found, Parting(joins=True)


def _has_queues(each: Planned) -> bool:
    waits = each.plan.waits or any(wait for border in each.pipeline.borders for wait in border.waits if wait.pending.value.data)
    return bool(waits) or any(isinstance(op, tile.CopyOp) for outer in each.pipeline.loop.body.block.ops for op in outer.walk())


Crossing = tuple[StageAccess, StageAccess, list[tuple[int, int]], int]
"""Two accesses that meet, the slots from the first's on (of which pipeline, which one), and how many are between them in the program."""


def _crossings(chain: Sequence[Planned], number: int, values: SlotValues) -> Iterator[Crossing]:
    """Those of one pipeline of a chain and the last."""
    one, behind, final = chain[number], chain[-1], len(chain) - 1
    before, after = (stage_accesses(each.pipeline.loop, each.homes.stages, values) for each in (one, behind))
    own, theirs = ([(n, slot) for slot in range(len(chain[n].flushes))] for n in (number, final))
    skipped = [(n, slot) for n in range(number + 1, final) for _ in range(chain[n].trips or 0) for slot in range(len(chain[n].flushes))]
    for first, second in product(before, after):
        if not (first.access.is_write or second.access.is_write):
            continue
        for left, done in product(_numbers(first, second, one), _numbers(first, second, behind)):
            if _from_behind(first, one.pipeline.loop, left, values).conflicts(_in_iteration(second, behind.pipeline.loop, done, values)):
                ahead = [*own[first.stage :], *own * left, *skipped]
                yield first, second, [*ahead, *theirs * (done + 1)], len(ahead) + done * len(theirs) + second.stage


def _numbers(first: StageAccess, second: StageAccess, of: Planned) -> range:
    """Iterations of a loop, from the border on, that are looked at: slots come round in as many."""
    enough = 1 + max((*first.access.slot_extents, *second.access.slot_extents), default=1)
    return range(enough if of.trips is None else min(enough, of.trips))


def _from_behind(found: StageAccess, loop: scf.ForOp, left: int, values: SlotValues) -> SharedAccess:
    """An access of the iteration that `left` others follow, as it looks from behind the loop."""
    motion, access = LoopMotion(loop, values), found.access
    for _ in range(left + 1):
        access = access.moved(lambda _, slot: motion.around(slot))
    return access.moved(lambda _, slot: motion.leave(slot))


def _in_iteration(found: StageAccess, loop: scf.ForOp, number: int, values: SlotValues) -> SharedAccess:
    """An access of iteration `number`, as it looks from ahead of the loop."""

    def seen(a: Atom) -> Congruence:
        if a == Trip(loop):
            return exactly(Linear(number))
        return UNKNOWN if is_inside(a, loop) else exactly(atom(a))

    return found.access.moved(lambda _, slot: slot.substitute(seen))


def join(planned: Sequence[Planned], kernel: tile.KernelOp) -> tuple[list[Planned], list[Parting]]:
    """The pipelines of a kernel with what their slots do, and for each how its groups come to it from the one before."""
    done: list[Planned] = []
    chain: list[Planned] = []
    partings: list[Parting] = []
    for each in planned:
        found, parting = _joined([*chain, each], kernel) if chain else ([each], Parting(joins=False))
        if not parting.joins:
            done += chain
        chain = found if parting.joins else [each]
        partings.append(parting)
    return [*done, *chain], partings
