"""Whether a contraction had better read copies of its operands whose rows begin at whole lines of the cache. No IR.

Descriptors bring such rows in large boxes, while threads copy others piece by piece, and all of them for every tile of the other operand. A
copy reads and writes the operand once; the cache that all units share keeps a small one until the contraction reads it.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from treadle.machine.spec import TargetSpec
from treadle.plan.padded_copies import copy_seconds
from treadle.plan.rasters import KEPT_SHARE
from treadle.plan.small_m import SLACK
from treadle.plan.split_choices import SplitContraction
from treadle.plan.split_parts import fastest_seconds
from treadle.records import dataclass

CLEAR_GAIN: Final = 0.9
"""The copies and the contraction must be modelled to take at most so much of the time without copies."""

LEAST_SAVED_SECONDS: Final = 1.5e-6
"""And so much less: launches of small kernels vary by as much."""
MOST_COPIED_BYTES: Final = 2 << 30
"""Of all copies that one contraction reads: they take memory beside the operands."""

Pitches = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OperandCopy:
    """Bytes that the copy of an operand reads and writes. `type`: one kernel copies all operands of a type; empty: a kernel of its own."""

    read: int
    written: int
    type: str = ""


@dataclass(frozen=True, slots=True)
class RowPadding:
    """How far the rows of copies of A and of B are apart, in elements, 0 for no copy; modelled seconds with copies and without."""

    pitches: Pitches
    seconds: float
    seconds_as_is: float

    @property
    def is_clear(self) -> bool:
        """Whether the copies are worth it, whatever models are off by."""
        return self.seconds <= min(CLEAR_GAIN * self.seconds_as_is, self.seconds_as_is - LEAST_SAVED_SECONDS)


def copying_seconds(copies: Sequence[OperandCopy], spec: TargetSpec) -> float:
    """Modelled time of the kernels that copy, one a type. What the cache keeps until it is read takes no time to write: the model of
    the contraction has it read of the memory.
    """
    written = sum(copy.written for copy in copies)
    written = 0 if written <= KEPT_SHARE * spec.product.l2_bytes else written
    kernels = {copy.type or str(number) for number, copy in enumerate(copies)}
    return copy_seconds(sum(copy.read for copy in copies) + written, len(kernels), spec)


def row_padding(
    problems: Mapping[Pitches, SplitContraction], copies: Sequence[OperandCopy], spec: TargetSpec, *, splits: bool
) -> RowPadding | None:
    """The fastest choice of copies by the model; None where all would take too much memory. `problems`: the contraction with rows of A and
    of B that are so far apart, (0, 0) as they are. `copies`: of A and of B. `splits`: the contraction may be split into parts.
    """
    copying: list[tuple[float, Pitches]] = []
    for pitches in problems:
        made = [copy for copy, pitch in zip(copies, pitches, strict=True) if pitch]
        if made and sum(copy.written for copy in made) <= MOST_COPIED_BYTES:
            copying.append((copying_seconds(made, spec), pitches))
    if not copying:
        return None
    seconds, best = inf, (0, 0)
    for before, pitches in sorted(copying):
        time = before + fastest_seconds(problems[pitches], spec, splits=splits, enough=(seconds - before) * (1 + SLACK))
        seconds, best = min((seconds, best), (time, pitches))
    return RowPadding(best, seconds, fastest_seconds(problems[0, 0], spec, splits=splits))
