"""Which accesses to shared memory of a loop's stages meet, how many iterations apart, and of which groups of warps.

Level: tile and schedule. Slots are compared as congruences in the number of the iteration (`analysis/slots.py`); whose warps touch which
elements is read off the layouts of register tiles. What is not known meets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from treadle.analysis.shared_accesses import SharedAccess, shared_accesses
from treadle.analysis.slot_motion import LoopMotion
from treadle.analysis.slot_values import SlotValues
from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StageAccess:
    """An access of stage number `stage`, at place `position` of the loop's body. `repeats`: in a loop of the stage's own."""

    op: Operation
    access: SharedAccess
    stage: int
    position: int
    repeats: Operation | None
    layout: TileLayout | None


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two accesses that conflict, the second `iterations` later; the largest (doer's - other's) number of groups that meet there."""

    first: StageAccess
    second: StageAccess
    iterations: int
    lead: int

    def distance(self, stages: int) -> int:
        """How many stages apart they are."""
        return self.iterations * stages + self.second.stage - self.first.stage


def stage_accesses(loop: scf.ForOp, stages: Sequence[Sequence[Operation]], values: SlotValues) -> list[StageAccess]:
    """The accesses to shared memory of the operations of each stage, nested ones too, in order."""
    found: list[StageAccess] = []
    for number, ops in enumerate(stages):
        for op in (inner for outer in ops for inner in outer.walk()):
            repeats = _loop_inside(op, loop)
            for access in shared_accesses(op, values):
                known = replace(access, slots=(), slot_extents=()) if repeats is not None else access
                found.append(StageAccess(op, known, number, len(found), repeats, _layout(op)))
    return found


def _loop_inside(op: Operation, loop: scf.ForOp) -> Operation | None:
    """The outermost loop within `loop` that an operation stands in."""
    found, parent = None, op.parent_op()
    while parent is not None and parent is not loop:
        found = parent if isinstance(parent, scf.ForOp) else found
        parent = parent.parent_op()
    return found


def _layout(op: Operation) -> TileLayout | None:
    """The layout of the register tile of a local access."""
    match op:
        case tile.LocalLoadOp():
            return tile.layout_of(op.result)
        case tile.LocalStoreOp():
            return tile.layout_of(op.value)
        case _:
            return None


def meetings(loop: scf.ForOp, found: Sequence[StageAccess], values: SlotValues, warps: int, groups: int) -> Iterator[Meeting]:
    """For each two accesses that meet, the fewest iterations apart that they do, in each order. A warp that meets itself does not."""
    motion, trips = LoopMotion(loop, values), values.trips(loop).constant
    for first in found:
        for second in found:
            if first.access.is_write or second.access.is_write:
                iterations = _apart(first, second, motion, trips)
                if iterations is not None and (ahead := lead(first, second, warps, groups)) is not None:
                    yield Meeting(first, second, iterations, ahead)


def _apart(first: StageAccess, second: StageAccess, motion: LoopMotion, trips: int | None) -> int | None:
    """After how few of a loop's iterations the second access meets the first; None where it never does."""
    is_behind = first.position < second.position or (first.repeats is not None and first.repeats is second.repeats)
    earlier = first.access
    enough = 2 + max((*earlier.slot_extents, *second.access.slot_extents), default=1)
    for iterations in range(enough if trips is None else min(enough, trips)):
        if (iterations or is_behind) and earlier.conflicts(second.access):
            return iterations
        earlier = earlier.moved(lambda _, slot: motion.around(slot))
    return None


def lead(first: StageAccess, second: StageAccess, warps: int, groups: int) -> int | None:
    """How many groups at most the first access's lies behind the second's where two warps meet; None where each warp meets itself alone."""
    one, other = (_masks(each, warps) for each in (first, second))
    same_buffer = first.access.alloc is second.access.alloc and len(first.access.slot_extents) == len(second.access.slot_extents)
    if one is None or other is None or not same_buffer:
        return groups - 1
    each = warps // groups
    for ahead in range(groups - 1, -groups, -1):
        for group in range(max(0, ahead), min(groups, groups + ahead)):
            mine, theirs = range(group * each, (group + 1) * each), range((group - ahead) * each, (group - ahead + 1) * each)
            if any(a != b and (one[a] & other[b]).any() for a in mine for b in theirs):
                return ahead
    return None


def _masks(found: StageAccess, warps: int) -> "Mask | None":
    """For each warp the elements of a slot that it touches; None where that is not known."""
    if found.layout is None or found.layout.num_warps != warps:
        return None
    access = found.access
    layout = tile.shared_layout_of(access.alloc.results[0])
    shape = layout.shape[len(access.slot_extents) if access.slot_extents else len(layout.shape) - len(access.offsets) :]
    return _touched(found.layout, tuple(shape), access.offsets, access.is_write)


@lru_cache(maxsize=256)
def _touched(layout: TileLayout, shape: tuple[int, ...], offsets: tuple[int, ...], storing: bool) -> "Mask":
    import numpy as np

    found = np.zeros((layout.num_warps, *shape), np.bool_)
    places = layout.coordinate_array()
    for warp in range(layout.num_warps):
        if storing and warp & layout.replicated_warp_bits():
            continue  # the first of equal warps stores
        at = places[warp].reshape(-1, layout.rank) + np.array(offsets)
        found[(warp, *at.T)] = True
    return found
