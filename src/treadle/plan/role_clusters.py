"""Clusters of workgroups of role kernels that fetch what they share once: which are worth a look. No IR."""

from functools import lru_cache
from math import inf

from treadle.machine.rates import RoleRates
from treadle.machine.spec import TargetSpec
from treadle.plan.cache_requests import REQUEST_BYTES
from treadle.plan.part_merges import PAIR, clustered_units
from treadle.plan.rasters import UNEVEN_RASTERS, raster
from treadle.plan.role_tiles import RoleProblem, RoleTile, tile_count
from treadle.records import replace

BOTH_EXTENTS = ((PAIR, PAIR), (2 * PAIR, PAIR), (PAIR, 2 * PAIR))
"""Workgroups along m and n of clusters that fetch both operands once."""
ROUNDS_OF_QUADS = 2
"""Of clusters of four that share one operand."""
SWIZZLED_ROWS = 8
"""Rows of a swizzle's period."""


def _has_parts(extent: int, along_k: bool, count: int) -> bool:
    """Whether `count` workgroups can fetch a part each of an operand's buffer: whole periods of its rows, or rows along k of its spans."""
    return extent >= SWIZZLED_ROWS * count if along_k else True


def fetched_share(extent: int, along_k: bool, count: int) -> float:
    """Which share of an operand's rows each of `count` workgroups fetches: its part, and what is left over of whole periods."""
    periods = extent // SWIZZLED_ROWS
    if not along_k or periods % count == 0:
        return 1 / count
    return (periods // count + periods % count) / periods


def _cut_sides(problem: RoleProblem) -> tuple[bool, bool]:
    """Whether rows of A, and of B, that descriptors copy begin inside requests of the cache."""
    (a, b), (of_a, of_b) = problem.operands, problem.piece_bytes
    return a.pitch_bytes % REQUEST_BYTES != 0 and not of_a, b.pitch_bytes % REQUEST_BYTES != 0 and not of_b


def shares_operands(problem: RoleProblem) -> bool:
    """Whether clusters that fetch an operand once are worth a look: rows begin inside requests, and neighbours along m or n have nothing
    to wait for but one another.
    """
    return problem.has_like_tiles and any(_cut_sides(problem))


def may_cluster(problem: RoleProblem) -> bool:
    """The same where workgroups that are neighbours are of one part."""
    return not (problem.in_cluster or problem.in_turn) and shares_operands(problem)


def most_parts(which: int, extent: int, problem: RoleProblem) -> int:
    """How many workgroups of a cluster may fetch a part each of a tile's rows of A (0) or of B (1) where that is worth a look, else 1."""
    if not _cut_sides(problem)[which]:
        return 1
    along_k = problem.operands[which].along_k
    return next((count for count in (2 * PAIR, PAIR) if _has_parts(extent, along_k, count)), 1)


def both_parts(which: int, extent: int, problem: RoleProblem) -> int:
    """The same where clusters fetch both operands once: rows of one of them begin inside requests."""
    if problem.piece_bytes[which]:
        return 1
    along_k = problem.operands[which].along_k
    return next((count for count in (2 * PAIR, PAIR) if _has_parts(extent, along_k, count)), 1)


@lru_cache(maxsize=1024)
def both_extents(of_a: int, of_b: int, neighbours_m: int, neighbours_n: int) -> tuple[tuple[int, int], ...]:
    """Workgroups along m and n of clusters that fetch both operands once, of which so many at most fetch a part of A's and of B's tile."""
    if of_a == 1 or of_b == 1 or neighbours_m == 1 or neighbours_n == 1:
        return ()
    along_m, along_n = min(of_b, neighbours_m), min(of_a, neighbours_n)
    return tuple((m, n) for m, n in BOTH_EXTENTS if m <= along_m and n <= along_n)


def most_neighbours(size: int, extent: int) -> int:
    """How many neighbours along a side can always be clusters that share what they read of the other operand (see `cluster_extents`)."""
    count = -(-size // extent)
    return 1 if count == 1 else next((most for most in (2 * PAIR, PAIR) if count % most == 0 or size % extent), 1)


def shared_parts(which: int, part: int, size: int, extent: int, problem: RoleProblem) -> tuple[int, int, int]:
    """Of tiles of such an extent along a side, in groups of `part`: `most_parts`, `both_parts` and `most_neighbours`."""
    return most_parts(which, part, problem), both_parts(which, part, problem), most_neighbours(size, extent)


@lru_cache(maxsize=1024)
def cluster_kinds(of_a: int, of_b: int, both_a: int, both_b: int, next_m: int, next_n: int) -> tuple[tuple[int, int], ...]:
    """Workgroups along m and n of clusters that are worth a look, where so many at most may fetch a part of A's and of B's tile (`of_a`,
    `of_b`; `both_a`, `both_b` where they fetch both), and so many may be neighbours.
    """
    counts = (PAIR, 2 * PAIR)
    along_n, along_m = ([count for count in counts if count <= most] for most in (min(of_a, next_n), min(of_b, next_m)))
    return (*((1, count) for count in along_n), *((count, 1) for count in along_m), *both_extents(both_a, both_b, next_m, next_n))


@lru_cache(maxsize=1024)
def _clustered(tile: RoleTile, count: int, group_m: int, along_n: int) -> RoleTile:
    return replace(tile, cluster=count, cluster_n=along_n, group_m=group_m, deferred_store=False)


def in_cluster(tile: RoleTile, along_m: int, along_n: int, problem: RoleProblem, spec: TargetSpec) -> RoleTile:
    """The tile for clusters of so many workgroups along m and n."""
    if along_m == 1:
        return _clustered(tile, along_n, raster(tile, problem.shape, spec, UNEVEN_RASTERS), 0)
    walked = -(-tile.group_m // along_m) * along_m
    return _clustered(tile, along_m * along_n, walked, along_n if along_n > 1 else 0)


def clustered_clocks(count: int, rates: RoleRates) -> float:
    """Clocks of a kernel that has clusters of `count` workgroups beside those of their steps."""
    return rates.clustered_clocks if count == PAIR else rates.larger_clusters_clocks


def held_behind(tile: RoleTile, in_flight: int) -> int:
    """Slots of a cluster's rings that are not filled again while the next one is read, for instructions of them are in flight: those of one
    consumer warpgroup alone. Of 255 products' tiles on an H200, what was chosen took 3.2 % longer than the fastest with it, 3.5 % without
    (14 and 17 % in one of twenty); for two sets in ping-pong it made choices worse.
    """
    return in_flight if tile.consumer_warpgroups * tile.ping_pong == 1 else 0


def most_tiles(tile: RoleTile, spec: TargetSpec) -> float:
    """How many tiles clusters such as a tile's may have where they are worth a look: any of pairs; of larger ones that share both operands
    so many as begin at once, else twice as many.
    """
    return inf if tile.cluster == PAIR else clustered_units(tile.cluster, spec) * (1 if tile.cluster_n else ROUNDS_OF_QUADS)


def in_clusters(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """The tile for clusters that fetch an operand once of which rows begin inside requests of the cache: others gain nothing. With it the
    other operand too, where that one has parts. Of more than two workgroups only where there are few enough (see `most_tiles`).
    """
    shape, sides = problem.shape, ((0, tile.m), (1, tile.n))
    if not may_cluster(problem) or shape.m is None or shape.n is None:
        return ()
    parts = [most(which, extent, problem) for most in (most_parts, both_parts) for which, extent in sides]
    kinds = cluster_kinds(*parts, most_neighbours(shape.m, tile.rows), most_neighbours(shape.n, tile.n))
    found = (in_cluster(tile, along_m, along_n, problem, spec) for along_m, along_n in kinds)
    return tuple([each for each in found if tile_count(each, shape) <= most_tiles(each, spec)])
