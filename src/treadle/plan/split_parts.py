"""Into how many parts a contraction is split that leaves most of the machine idle: modelled times of the whole and of its parts. No IR.

Parts are computed by workgroups of their own into a workspace and merged by a second launch, by the last workgroup of each tile, or within
a cluster. A contraction's time is that of the fastest kernel form (`form_times.py`, `small_m.py`) on a batch of shorter contractions. Other
reductions are in `reduction_parts.py`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from treadle.machine.spec import TargetSpec
from treadle.plan.form_times import bounded_seconds, bounding_clocks, seconds
from treadle.plan.part_merges import PAIR, WORD_BYTES, cluster_clocks, clustered_units, last_clocks, traffic_clocks
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.role_clocks import merge_clocks
from treadle.plan.role_search import RoleSearch
from treadle.plan.role_tiles import (
    RoleTile,
)
from treadle.plan.small_m import (
    SLACK,
)
from treadle.plan.split_choices import (
    Choice,
    RoleCosts,
    SplitContraction,
    are_alike,
    choices_of_one_tile,
    least_seconds,
    moved_bytes,
    role_costs,
    split_tile_counts,
)
from treadle.plan.tile_config import ContractionShape
from treadle.records import dataclass, replace

CLEAR_GAIN: Final = 0.8
"""The parts must be modelled to take at most so much of the whole's time: models are not better than that."""
CLEAR_GAIN_OF_ROLES: Final = 0.95
"""The same where hardware copies bring the operands of a matrix instruction: those models are."""
CLEAR_GAIN_OF_PIECES: Final = 0.93
"""The same where the vector units multiply what the threads' copies bring. 14 products of seeds 1 and 2 took 0.88 of the whole's time in as
many parts as are chosen (measured before the last tiles were added), four of them 1.01 to 1.12 of it.
"""
LEAST_SAVED_SECONDS: Final = 3e-6
LEAST_SAVED_OF_ROLES: Final = 0.5e-6
LEAST_SAVED_OF_PIECES: Final = 2e-6
MOST_WORKSPACE_BYTES: Final = 256 << 20
"""Of all partial results together."""
MOST_ROUNDS: Final = 4
"""Of tiles of 128 x 128 for each compute unit: where there are more, the last one is a fifth of the time at most."""
MERGES: Final = ("kernel", "last", "cluster")
"""Who may merge parts: a second launch, the last workgroup of each tile, or the workgroups of a cluster. Of equal times the first."""
USUAL_ROWS: Final = (64, 128)
USUAL_COLUMNS: Final = (96, 128, 160, 192, 256)
"""Of tiles that numbers of parts are chosen by: so many that each compute unit has one."""


@dataclass(frozen=True, slots=True)
class Parts:
    """So many parts, each of whole `step`s of what is reduced but the last; modelled seconds of the whole and of parts and merge. `merge`:
    who merges them (see `MERGES`).
    """

    count: int
    step: int
    whole_seconds: float
    seconds: float
    merge: str = "kernel"


@lru_cache(maxsize=256)
def merge_seconds(count: int, results: int, partial_bytes: int, spec: TargetSpec) -> float:
    """A launch behind another one, its turns of loads one after the other, and what it reads, from the cache where that holds it."""
    axes = (AxisShape(count, True, 0, 0), AxisShape(results, False, count * results * partial_bytes, results * partial_bytes))
    (along, _), _ = reduction_tile(axes, spec, separable=True)
    return _merging(-(-count // along), count * results * partial_bytes, spec)


def _merging(turns: int, held: int, spec: TargetSpec) -> float:
    waiting, faster = seconds(turns * spec.rates.streaming.latency_clocks, spec), 2 if held <= spec.product.l2_bytes // 2 else 1
    rates = spec.rates.general
    launch = rates.overlapped_seconds if spec.overlapping_launches else rates.launch_seconds
    return launch + waiting + held / (spec.memory_gbps * 1e9 * faster)


def part_counts(workgroups: int, steps: int, least: int, each: int, spec: TargetSpec) -> list[int]:
    """Numbers of parts worth a look, of `least` steps at least: those that give the machine a few whole rounds of workgroups, and powers of
    two. `each`: bytes of one part's results.
    """
    wanted = {max(1, units * spec.compute_units // max(1, workgroups)) for units in (1, 2, 3, 4, 6, 8)}
    wanted |= {1 << power for power in range(1, 11)}
    most = min(steps // least, MOST_WORKSPACE_BYTES // max(1, each))
    # As many parts as give the same longest one, and no more.
    return sorted({-(-steps // -(-steps // count)) for count in wanted if 2 <= count <= most})


def _usual_tiles(shape: ContractionShape) -> set[int]:
    """How many of the usual tiles cover the result."""
    return {shape.tiles(rows, columns) for rows in USUAL_ROWS for columns in USUAL_COLUMNS}


def _one_round(workgroups: int, steps: int, least: int, each: int, spec: TargetSpec) -> list[int]:
    """The number of parts, as in `_counts`, that gives each compute unit one workgroup, as far as it can."""
    count = min(spec.compute_units // workgroups, steps // least, MOST_WORKSPACE_BYTES // max(1, each))
    return [-(-steps // -(-steps // count))] if count > 1 else []


def cluster_counts(spec: TargetSpec) -> tuple[int, ...]:
    """How many parts of a tile the workgroups of a cluster may merge: powers of two, which divide its rows."""
    return tuple(1 << power for power in range(1, spec.max_cluster.bit_length()))


def _most_tiles_in_clusters(problem: SplitContraction, part: ContractionShape, count: int, spec: TargetSpec) -> int:
    """Tiles whose `count` parts clusters merge that begin at one time; 0 where clusters cannot merge them, or had better not."""
    may_cluster = count in cluster_counts(spec) and problem.partial_bytes == WORD_BYTES
    is_short = count <= PAIR or count * (part.k or 0) <= spec.rates.arrivals.longest_together
    return clustered_units(count, spec) if may_cluster and is_short else 0


def merge_times(
    problem: SplitContraction,
    part: ContractionShape,
    count: int,
    costs: RoleCosts,
    spec: TargetSpec,
    enough: float,
    merges: Sequence[str] = MERGES,
) -> dict[str, float]:
    """The times of `count` parts, of which `part` is all in one batch, and of their merge, by who of `merges` merges. What is sure to take
    longer than `enough`, or than another of them, may be missing, or longer than it is.
    """
    moved, held = moved_bytes(problem, part), count * problem.results * problem.partial_bytes
    most = _most_tiles_in_clusters(problem, part, count, spec)
    traffic, merging = seconds(traffic_clocks(held, spec), spec), merge_seconds(count, problem.results, problem.partial_bytes, spec)
    # What it takes beside the kernel of the parts, and what merging takes at least.
    beside = {"last": traffic, "cluster": 0.0, "kernel": merging}
    apart = {
        "last": traffic + seconds(last_clocks(count, 0, spec), spec),
        "cluster": seconds(cluster_clocks(0, spec), spec) if most else inf,
        "kernel": merging,
    }
    apart = {who: least for who, least in apart.items() if who in merges}
    others = choices_of_one_tile(problem, part, spec, enough - min(apart.values()), costs.least_of_tiles(part, moved))
    by_cluster = [each.clustered + seconds(cluster_clocks(each.elements, spec), spec) for each in others if each.tiles <= most]
    found = {
        "kernel": min([each.seconds for each in others], default=inf) + merging,
        "last": min([_last_seconds(count, each, spec) for each in others], default=inf) + traffic,
        "cluster": min(by_cluster, default=inf),
    }
    found = {who: found[who] for who in merges}
    for model in costs.of(part, alike=are_alike(problem, part)):
        least = model.least()
        for who in apart:  # those first that are the fastest most of the time: what they take is enough for the others
            left, kept = min(enough, min(found.values()) * (1 + SLACK)), moved - held if who == "cluster" else moved
            if least <= bounding_clocks(left - apart[who], kept, spec):
                clocks = bounding_clocks(left - beside[who], kept, spec)
                found[who] = min(found[who], _role_seconds(model, who, count, most, clocks, kept) + beside[who])
    return {who: time for who, time in found.items() if time < inf}


def _role_seconds(model: RoleSearch, who: str, count: int, most: int, enough: float, moved: int) -> float:
    """The time of parts in a role kernel, with their merge where that is done in it; infinite where no tile takes so few clocks, or fits.
    `most`: tiles of parts that clusters merge.
    """
    spec = model.spec
    if who == "kernel":
        best = model.best(enough=enough)
        return inf if best is None else bounded_seconds(model.cost(best), moved, spec)
    # What a cluster exchanges leaves its rings less of the shared memory.
    merged = model.of(replace(model.problem, parts=count, in_cluster=who == "cluster"))
    # With the merge's clocks under the memory's limit, too, a kernel takes less yet.
    if (tile := merged.best(_part_tiles(merged, most if who == "cluster" else None), enough)) is None:
        return inf
    merging = merge_clocks(tile, count, spec, in_cluster=who == "cluster")
    return bounded_seconds(merged.cost(tile) - merging, moved, spec) + seconds(merging, spec)


def _part_tiles(model: RoleSearch, most: int | None = None) -> Callable[[RoleTile], bool]:
    """Which tiles have parts that are merged in their kernel: those of workgroups that take one each, at most so many of them."""
    shape = model.problem.shape
    return lambda tile: tile.ping_pong == 1 and (most is None or shape.tiles(tile.rows, tile.n) <= most)


def _last_seconds(count: int, choice: Choice, spec: TargetSpec) -> float:
    return choice.seconds + seconds(last_clocks(count, choice.elements, spec), spec)


def split_contraction(problem: SplitContraction, spec: TargetSpec, *, whole_stages: bool = False) -> Parts | None:
    """The parts that are modelled to be clearly faster than the whole; None where none are, or sizes are not known. `whole_stages`: they
    are multiples of a stage, as those of a length that only the runtime knows, which are all of one length.
    """
    shape = problem.shape
    if any(size is None or size < 1 for size in (shape.batch, shape.m, shape.n, shape.k)):
        return None
    return _split_of(problem, spec, whole_stages).parts()


def fastest_seconds(problem: SplitContraction, spec: TargetSpec, *, splits: bool = True, enough: float = inf) -> float:
    """Modelled time of a contraction of known sizes in its fastest form, in parts where it may be split and these are clearly faster;
    infinite where it is sure to be more than `enough`.
    """
    if enough < least_seconds(problem, spec) * (1 - SLACK):
        return inf
    return _split_of(problem, spec, False).seconds(splits, enough)


@lru_cache(maxsize=32)
def _split_of(problem: SplitContraction, spec: TargetSpec, whole_stages: bool) -> "_Split":
    """What is known of a contraction: row padding asks about it, and then the split."""
    return _Split(problem, spec, whole_stages)


class _Split:
    """A contraction of known sizes as a whole and in parts, of whole stages where these are asked for."""

    def __init__(self, problem: SplitContraction, spec: TargetSpec, whole_stages: bool) -> None:
        self._problem, self._spec, self._each = problem, spec, problem.results * problem.partial_bytes
        self._small = problem.shape.tiles(64, 64)
        self._step = problem.stage(spec) if whole_stages else problem.step(spec)
        self._costs = role_costs(replace(problem, shape=replace(problem.shape, k=None)), spec)
        self._found: tuple[float, Parts | None] | None = None
        self._fewest: dict[bool, list[RoleSearch]] = {}
        self._merging: dict[int, tuple[int, bool, float, float, float]] = {}
        self._parts = {count: self._part(count) for count in self._counts()}

    def parts(self) -> Parts | None:
        """The parts that are clearly faster than the whole."""
        return self._decided(inf)[1] if self._parts else None

    def seconds(self, splits: bool, enough: float) -> float:
        """Of the parts, where it may have them, or the whole; infinite where that is sure to be more than `enough`."""
        whole, parts = self._decided(enough) if splits and self._parts else (self._costs.whole_seconds(self._problem, enough), None)
        return whole if parts is None else parts.seconds

    def _counts(self) -> set[int]:
        """Numbers of parts that are looked at."""
        problem, shape, spec, step = self._problem, self._problem.shape, self._spec, self._step
        tiles, small = (shape.tiles(side, side) for side in (128, 64))
        if tiles >= MOST_ROUNDS * spec.compute_units:
            return set()
        steps, least = -(-(shape.k or 1) // step), problem.shortest(spec) // step
        found = {
            count
            for workgroups in {tiles, small, *split_tile_counts(problem, shape, spec)}
            for count in part_counts(workgroups, steps, least, self._each, spec)
        }
        found |= {count for count in cluster_counts(spec) if count <= steps // least}
        return found | {count for workgroups in _usual_tiles(shape) for count in _one_round(workgroups, steps, least, self._each, spec)}

    def _part(self, count: int) -> ContractionShape:
        """So many parts, all in one batch."""
        shape, steps = self._problem.shape, -(-(self._problem.shape.k or 1) // self._step)
        return replace(shape, batch=(shape.batch or 1) * count, k=-(-steps // count) * self._step)

    def _decided(self, enough: float) -> tuple[float, Parts | None]:
        """The whole's time and the parts that are clearly faster. Where both are sure to take longer than `enough`: infinity and None."""
        if self._found is not None:
            return self._found
        whole, (gain, saved) = self._costs.whole_seconds(self._problem, enough), _least_gain(self._problem, self._spec)
        best = self._best(whole, min(enough, gain * whole * (1 + SLACK), (whole - saved) * (1 + SLACK)))
        if best is not None and whole == inf:
            whole = self._costs.whole_seconds(self._problem)
            best = replace(best, whole_seconds=whole)
        found = whole, best if best is not None and is_clear(best, gain, saved) else None
        if best is not None or whole < inf:
            self._found = found
        return found

    def _best(self, whole: float, enough: float) -> Parts | None:
        """The fastest parts; None where all are sure to take longer than `enough`. The most promising first, by less and less that they
        take at least: the sooner a good one is known, the more is left out of the others.
        """
        best: Parts | None = None
        left = [self._promise(count, is_sharp=False) for count in self._parts]
        heapify(left)
        while left:
            _, _, count, is_sharp, least = heappop(left)
            if least > enough:
                continue
            if not is_sharp:
                heappush(left, self._promise(count, is_sharp=True))
                continue
            times = merge_times(self._problem, self._parts[count], count, self._costs, self._spec, enough)
            merge = min(times, key=lambda name: times[name], default="")
            if merge and times[merge] <= enough and (best is None or (times[merge], count) < (best.seconds, best.count)):
                best = Parts(count, self._step, whole, times[merge], merge)
                enough = min(enough, best.seconds * (1 + SLACK))
        return best

    def _promise(self, count: int, *, is_sharp: bool) -> tuple[float, int, int, bool, float]:
        """What parts and their merge take at least in role kernels, 0 where there are none; how far they are from one small tile for each
        unit; how many they are; what they take at least in any form. `is_sharp`: not by a guess that costs nothing.
        """
        spec, part, (moved, alike, merging, together, others) = self._spec, self._parts[count], self._least_merging(count)
        models = self._costs.of(part, alike=alike) if is_sharp else self._models(alike)
        clocks = min([model.least() if is_sharp else model.floor(part.batch or 1, part.k or 1) for model in models], default=inf)
        of_roles = bounded_seconds(clocks, moved, spec) + merging
        in_cluster = bounded_seconds(clocks, moved - count * self._each, spec) + together if together < inf else inf
        distance, least = abs(count * self._small - spec.compute_units), min(of_roles, in_cluster, others + min(merging, together))
        return of_roles if models else 0.0, distance, count, is_sharp, least

    def _least_merging(self, count: int) -> tuple[int, bool, float, float, float]:
        """Bytes that parts move, and whether they are alike; what merging takes at least, and in a cluster; what forms but roles do."""
        if (found := self._merging.get(count)) is None:
            problem, spec, part, held = self._problem, self._spec, self._parts[count], count * self._each
            merging = min(_merging(1, held, spec), seconds(traffic_clocks(held, spec) + last_clocks(count, 0, spec), spec))
            together = seconds(cluster_clocks(0, spec), spec) if count in cluster_counts(spec) else inf
            alike, others = are_alike(problem, part), self._costs.least_of_one_tile(part)
            found = self._merging[count] = moved_bytes(problem, part), alike, merging, together, others
        return found

    def _models(self, alike: bool) -> list[RoleSearch]:
        """Of all forms that parts may have, which the fewest have."""
        if alike not in self._fewest:
            fewest = min(count for count, part in self._parts.items() if are_alike(self._problem, part) is alike)
            self._fewest[alike] = self._costs.of(self._parts[fewest], alike=alike)
        return self._fewest[alike]


def _least_gain(problem: SplitContraction, spec: TargetSpec) -> tuple[float, float]:
    """The share of the whole's time that parts may take at most, and the seconds that they save at least."""
    if problem.multiplies_pieces(spec):
        return CLEAR_GAIN_OF_PIECES, LEAST_SAVED_OF_PIECES
    has_roles = problem.types.instruction != "fma" and problem.piece_bytes(spec) is not None
    return (CLEAR_GAIN_OF_ROLES, LEAST_SAVED_OF_ROLES) if has_roles else (CLEAR_GAIN, LEAST_SAVED_SECONDS)


def is_clear(parts: Parts, gain: float, saved: float) -> bool:
    """Whether parts take at most the share `gain` of the whole's time, and so many seconds less."""
    return parts.seconds <= gain * parts.whole_seconds and parts.whole_seconds - parts.seconds >= saved
