"""Where to cut a loop into the stages of a warp pipeline, for how many groups of warps, how far apart.

Pure. The loop is a row of pieces of work in their order, each on one unit of the machine (matrix, shared memory, global memory, vector)
for so many clocks of the whole workgroup. A stage is a run of pieces; each of G groups does a G-th of it. In a phase every group is in a
stage of its own, `gap` stages behind the group before: the phase lasts as long as the slowest of them by itself, whose pieces follow one
another, and as long as any unit takes for all of them. Then the groups meet. A stage waits for what is loaded until the memory has
answered, which is the less the more phases are between. The sum over the phases is what an iteration takes.
"""

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Literal

from treadle.records import dataclass

Unit = Literal["matrix", "shared", "global", "vector"]
UNITS: tuple[Unit, ...] = ("matrix", "shared", "global", "vector")
MOST_STAGES = 8
_MOST_CUTS = 10


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work on a unit, in clocks of the whole workgroup."""

    unit: Unit
    clocks: float


@dataclass(frozen=True, slots=True)
class Partition:
    """Stages that begin with the pieces `begins` (the first is 0), of `groups` groups `gap` stages apart; `clocks` an iteration."""

    begins: tuple[int, ...]
    groups: int
    gap: int
    clocks: float

    def demands(self, work: Sequence[Work]) -> list[dict[Unit, float]]:
        """What each stage asks of each unit."""
        return [_demand(work[first:last]) for first, last in pairwise((*self.begins, len(work)))]


def _demand(work: Sequence[Work]) -> dict[Unit, float]:
    found: dict[Unit, float] = {}
    for piece in work:
        found[piece.unit] = found.get(piece.unit, 0.0) + piece.clocks
    return found


@dataclass(frozen=True, slots=True)
class Waits:
    """Pieces (or stages) that load, each with the one that first uses what it loads; `clocks`: from the one to the other at least."""

    uses: tuple[tuple[int, int], ...] = ()
    clocks: float = 0.0

    def of_stages(self, begins: Sequence[int]) -> "Waits":
        """The same of the stages that begin with these pieces."""
        return Waits(tuple(sorted({(bisect(begins, load) - 1, bisect(begins, use) - 1) for load, use in self.uses})), self.clocks)


NO_WAITS = Waits()


def iteration_clocks(stages: Sequence[Mapping[Unit, float]], groups: int, gap: int, meeting: float, waits: Waits = NO_WAITS) -> float:
    """Clocks of an iteration of stages that ask so much of each unit. `meeting`: what it costs that the groups meet; `waits`: of stages,
    which are as long ahead of their uses as the phases between take.
    """
    count = len(stages)
    phases: list[float] = []
    for phase in range(count):
        running = [stages[(phase - group * gap) % count] for group in range(groups)]
        alone = max(sum(stage.values()) / groups for stage in running)
        phases.append(max(alone, *(sum(stage.get(unit, 0.0) for stage in running) / groups for unit in UNITS)) + meeting)
    total = 0.0
    for phase in range(count):
        longest = phases[phase]
        for group in range(groups):
            at = (phase - group * gap) % count
            for load in [load for load, use in waits.uses if use == at]:
                passed = sum(phases[(number + group * gap) % count] for number in range(load, at))
                alone = sum(stages[at].values()) / groups + max(0.0, waits.clocks - passed)
                longest = max(longest, alone + meeting)
        total += longest
    return total


def cuts(work: Sequence[Work]) -> list[int]:
    """Where a stage may begin: where the unit changes, and within rows on the matrix unit, at even distances where there are many."""
    if all(piece.unit != "matrix" for piece in work):
        return []
    changes = [n for n in range(1, len(work)) if work[n].unit != work[n - 1].unit]
    inside = [n for n in range(1, len(work)) if work[n].unit == work[n - 1].unit == "matrix"]
    room = max(0, _MOST_CUTS - len(changes))
    step = -(-len(inside) // room) if room and len(inside) > room else 1
    return sorted({*changes[:_MOST_CUTS], *(inside[step - 1 :: step] if room else [])})


def partitions(
    work: Sequence[Work], groups: Sequence[int], gaps: Sequence[int], meeting: float, waits: Waits = NO_WAITS
) -> list[Partition]:
    """All ways to cut the work, the fastest first; of equal ones that of fewer stages, and of groups closer together."""
    found = list(_partitions(work, groups, gaps, meeting, waits))
    return sorted(found, key=lambda each: (round(each.clocks, 3), len(each.begins), each.groups, each.gap, each.begins))


def _partitions(work: Sequence[Work], groups: Sequence[int], gaps: Sequence[int], meeting: float, waits: Waits) -> Iterator[Partition]:
    places = cuts(work)
    for count in range(1, min(MOST_STAGES - 1, len(places)) + 1):
        for chosen in combinations(places, count):
            begins = (0, *chosen)
            stages = [_demand(work[first:last]) for first, last in pairwise((*begins, len(work)))]
            of_stages = waits.of_stages(begins)
            for number in groups:
                for gap in gaps:
                    if (number - 1) * gap < len(stages):
                        yield Partition(begins, number, gap, iteration_clocks(stages, number, gap, meeting, of_stages))
