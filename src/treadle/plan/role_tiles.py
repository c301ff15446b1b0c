"""Tiles of kernels whose copying and computing go to different warps: what there is to choose from (`role_clocks.py` chooses)."""

from collections.abc import Sequence
from math import inf

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.cache_requests import REQUEST_BYTES
from treadle.plan.mixed_widths import MixedWidths, mixed_widths, narrow_widths
from treadle.plan.part_merges import WORD_BYTES
from treadle.plan.rasters import raster
from treadle.plan.tile_config import ContractionShape
from treadle.records import dataclass, replace

ROLE_MARGIN_BYTES = 2048
"""Shared memory of role kernels that is kept for barriers and alignment."""
DEFERRED_BYTES = 256
"""Of results a thread may hold under the next tile's first steps: 64 registers beside the accumulators."""
DEFERRED_BYTES_BESIDE_READS = 224
"""The same where the epilogue reads other tiles: with 64 registers and 128 of accumulators they spill."""
CROWDED_RING = 4
"""Where threads copy what runtime sizes say, and workgroups take tiles in turn: each length of a tile's loop against the ring is a class of
the proof. 130 x ? x 77 in f16 takes 0.6 s to prove with 4 slots, 1.9 with 8, 3.1 with 13.
"""
DEEPEST_RING = 16
"""Slots of a ring: small ones take this many to keep as much in flight as large ones do."""
RUN_AHEAD_SLOTS = 4
"""Of a ring at least where a step's instructions run under the next step's, which keeps a slot longer."""
PAIR_RUN_AHEAD_SLOTS = 7
"""The same for two groups of one instruction's rows: of some 70 tilings narrow ones (deep rings) were 2 % faster, in clusters of 4 11 %."""
ELEMENTS_WITH_TWO_BUFFERS = 128 * 128
"""Of a group's tile: as many as the registers hold beside an epilogue."""
SHORTEST_RING = 3
"""Slots of a ring at least: with two, a slot is filled in no less than a step and a copy's way. Of eight products, six or more tilings of
each measured on an H200, none was fastest with two: 2 to 24 % behind others. What clusters merge leaves rings no room.
"""
SCALED_RING_BYTES, SCALED_STEPS = 128 << 10, 32
"""Of a ring at most where scales of blocks are read beside it in so many steps: copies in flight keep them waiting. Five slots of 40 KiB
took as long as four on an H200, three 0.985 of it with 56 to 128 steps, 0.992 with 32, but 1.03 with 12, which run ahead between tiles.
"""
ROOM_BEHIND_BYTES, ROOMY_RING = 7 << 10, 12
"""Of shared memory that rings of so many slots leave, with the margin, to workgroups of the launch behind, which wait there (a KiB each,
and their own). Of 24 products (H200) whose parts a launch merges, with twelve slots instead of thirteen, 19 took 0.92 to 0.99 of the time,
five as long. Three products of one launch, with rings of nine and eleven slots, gained nothing from one less (0.98 to 1.03).
"""
LONG_RING = 8
"""Slots of a ring that a short sum may have more of than steps: the next tiles' are copied ahead."""
PLANNED_EPILOGUE_SLOTS = 2
"""Boxes of what an epilogue reads that a tile keeps room for: one is read while the next is in flight."""


@dataclass(frozen=True, slots=True)
class RoleTile:
    """A persistent kernel of roles: `consumer_warpgroups` groups of `warps` with a tile of `m` x `n` each (neighbours along m),
    `num_stages` of `k` in the ring.

    `ping_pong`: sets of such groups that take tiles in turn, one's epilogue under another's main loop. `steps_in_flight`: groups of matrix
    instructions in flight while the next stage is waited for. `group_m`: rows of tiles walked together. `deferred_store`: a tile's results
    leave under the next one's main loop. `cluster`: workgroups with consecutive tiles that fetch what they share once, `cluster_n` of them
    neighbours along n and the others along m, which share one operand each (`cluster_extents`; 0: all share one).
    `tail_tile_n`: columns of further tiles that fill the last round (see `mixed_widths`), 0 for none.
    """

    m: int
    n: int
    k: int
    warps: int
    consumer_warpgroups: int
    num_stages: int
    ping_pong: int = 1
    steps_in_flight: int = 0
    group_m: int = 8
    deferred_store: bool = False
    cluster: int = 1
    tail_tile_n: int = 0
    cluster_n: int = 0

    @property
    def rows(self) -> int:
        """Rows of the tile that all consumer warpgroups of one set compute."""
        return self.m * self.consumer_warpgroups


@dataclass(frozen=True, slots=True)
class ResultShape:
    """A whole tile that a kernel writes, or `is_read` beside its operands: bytes of an element, and whether descriptor copies carry it.
    `pitch_bytes`: what rows are apart by multiples of, a power of two up to a cache line's bytes. `along_m`: its rows lie along the
    instruction's rows.
    """

    element_bytes: int
    in_bulk: bool
    is_read: bool = False
    pitch_bytes: int = 128
    along_m: bool = False

    @property
    def may_stay(self) -> bool:
        """Whether it passes through shared memory is known only when layouts are."""
        return self.is_read and not self.in_bulk


@dataclass(frozen=True, slots=True)
class OperandRows:
    """How an operand lies in memory: whether its rows are contiguous along k, and what they are apart by multiples of (see
    `ResultShape.pitch_bytes`).
    """

    along_k: bool = True
    pitch_bytes: int = 128


def width_step(rows: OperandRows, k: int | None, row: MatrixInstruction, operand_bytes: int, spec: TargetSpec) -> int:
    """What widths of tiles must be a multiple of. Rows that lie along n are copied and read in whole rows of a swizzle, or in halves
    of them where there are many steps.
    """
    if rows.along_k:
        return row.n_step
    whole = spec.slot_row_bytes // operand_bytes
    return whole // 2 if k is not None and k >= STEPS_OF_HALF_ROWS * whole else whole


def box_widths(columns: int, element_bytes: int, rows: Sequence[int]) -> tuple[int, ...] | None:
    """The boxes that rows of `columns` elements leave in, widest first; None where they are no whole boxes. `rows`: of boxes, in bytes,
    widest first.
    """
    found: list[int] = []
    left = columns * element_bytes
    for width in rows:
        found += [width // element_bytes] * (left // width)
        left %= width
    return None if left else tuple(found)


def box_buffers(boxes: int, elements: int) -> int:
    """Buffers that boxes of a tile of so many elements take in turn: one is filled while the one before leaves; large tiles have one, for
    their rings need the room.
    """
    return min(1 if elements > ELEMENTS_WITH_TWO_BUFFERS else 2, boxes)


def staging_bytes(results: Sequence[ResultShape], m: int, n: int, box_rows: Sequence[int], ping_pong: int = 1) -> int:
    """Shared memory a group needs to bring tiles of all these out, or in: buffers that boxes of one shape take in turn, or the whole tile
    on its way to the threads. What is read comes in the boxes of the result; in ping-pong all of a tile's, which the sets share.
    """
    counts: dict[tuple[int, int, bool], int] = {}
    total = 0
    written = next((result for result in results if not result.is_read), None)
    for result in results:
        size, boxed = result.element_bytes, written if result.is_read and written is not None else result
        widths = box_widths(n, boxed.element_bytes, box_rows) if result.in_bulk and boxed.in_bulk else None
        if widths is None:
            total += m * n * size
        for width in widths or ():
            counts[size, width, result.is_read] = counts.get((size, width, result.is_read), 0) + 1
    for (size, width, is_read), count in counts.items():
        slots = (
            -(-count // ping_pong)
            if is_read and ping_pong > 1
            else min(PLANNED_EPILOGUE_SLOTS, count)
            if is_read
            else box_buffers(count, m * n)
        )
        total += slots * m * width * size
    return total


@dataclass(frozen=True, slots=True)
class RoleProblem:
    """What a tile is chosen for. `results`: tiles beside the operands. `n_step`: what widths must be a multiple of.

    `promoted`: accumulators are held twice; `scaled`: and scales of blocks multiply a step's first. `is_plain`: accumulators leave as they
    are, but for a cast; `is_light`: what is computed of them needs few registers, some columns at a time. `may_be_deferred`:
    nothing but boxes leaves, and the steps are known.
    `piece_bytes`: of A and of B, what the threads of the producer copy at a time; 0 where descriptors do it. `is_crowded`: bounds and
    addresses that only the runtime knows take registers while threads copy, which leaves consumers fewer.
    `takes_turns`: workgroups may compute several tiles. `operands`: how A and B lie in memory. `parts`: so many parts of each tile are
    merged in the kernel, by the last workgroup, `in_cluster`, or `in_turn`; they are in the shape's batch. `has_like_tiles`:
    all tiles of a part have as many steps, as those of groups of several sizes have not. `overlaps`: whether the last tiles along m, and
    along n, may begin so much earlier that they end with the result.
    """

    row: MatrixInstruction
    shape: ContractionShape
    operand_bytes: int
    results: tuple[ResultShape, ...]
    n_step: int = 8
    promoted: bool = False
    scaled: bool = False
    is_plain: bool = True
    is_light: bool = False
    may_be_deferred: bool = False
    piece_bytes: tuple[int, int] = (0, 0)
    is_crowded: bool = False
    takes_turns: bool = True
    operands: tuple[OperandRows, OperandRows] = (OperandRows(), OperandRows())
    parts: int = 1
    in_cluster: bool = False
    in_turn: bool = False
    has_like_tiles: bool = True
    overlaps: tuple[bool, bool] = (False, False)


STEPS_OF_HALF_ROWS = 16
"""Of 31 products (H200) whose best tile of an odd multiple of 32 columns was modelled at most 6 % slower than the best other one, it took
0.95 of the other's time in 13 with as many steps, 1.01 in 18 with fewer.
"""
EXCHANGED_ROUNDS = 4
"""Rounds of tiles of 128 x 128 up to which operands may be exchanged: in more, results that leave by descriptor copies under the next
tile's loop are worth more than what rounding the rows of tiles up to 64 wastes.
"""


def may_be_exchanged(shape: ContractionShape, operands: Sequence[OperandRows], spec: TargetSpec) -> bool:
    """Whether it is worth a look to exchange the operands: the result is small, or rows of one of them are slower to copy."""
    return shape.tiles(128, 128) <= EXCHANGED_ROUNDS * spec.compute_units or any(rows.pitch_bytes % REQUEST_BYTES for rows in operands)


def exchanged_problem(problem: RoleProblem, n_step: int) -> RoleProblem:
    """The problem of the transposed result, which the threads store. `n_step`: of the operand that is B then."""
    shape = problem.shape
    stored = tuple(replace(result, in_bulk=False, along_m=True) for result in problem.results)
    return replace(
        problem,
        shape=shape.exchanged,
        results=stored,
        n_step=n_step,
        may_be_deferred=False,
        piece_bytes=problem.piece_bytes[::-1],
        operands=problem.operands[::-1],
        overlaps=problem.overlaps[::-1],
    )


MANY_GROUPS = 3
"""Groups of consumers that leave each fewer registers than it may hold accumulators."""


def with_narrower(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """The tile with narrower ones beside it that fill the last round."""
    if not tile.deferred_store or problem.shape.batch != 1:
        return ()
    narrower = (replace(tile, tail_tile_n=narrow) for narrow in narrow_widths(tile.n, problem.row.n_step))
    return tuple([each for each in narrower if mixed_tiles(each, problem, spec) is not None])


def steps_in_flight(form: RoleTile, slots: int, problem: RoleProblem) -> int:
    """Groups of matrix instructions in flight while the next slot is waited for, with so many. One group alone waits for each step's
    instructions with nobody else's to run meanwhile, two of narrow tiles with little, and clusters wait for all of theirs; they have a slot
    more in use.
    """
    consumers = form.consumer_warpgroups * form.ping_pong
    least = RUN_AHEAD_SLOTS if consumers == 1 else PAIR_RUN_AHEAD_SLOTS if consumers == 2 and form.m == problem.row.m else inf
    return 1 if slots >= least and not problem.promoted else form.steps_in_flight


def ringed(form: RoleTile, problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """A form with as deep a ring as fits shared memory (at most 16 slots, made fewer where tiles read need room); None where it does not
    fit.
    """
    shape, room = problem.shape, spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES
    box_rows = spec.bulk_tensor.box_bytes if spec.bulk_tensor is not None else ()
    sure = [result for result in problem.results if not result.may_stay]
    steps, consumers = -(-shape.extents[2] // form.k), form.consumer_warpgroups * form.ping_pong
    staging = consumers * staging_bytes(sure, form.m, form.n, box_rows, form.ping_pong)
    at_most = staging
    if len(sure) < len(problem.results):
        at_most = consumers * staging_bytes(problem.results, form.m, form.n, box_rows, form.ping_pong)
    if problem.in_cluster:
        staging, at_most = (held + form.rows * form.n * WORD_BYTES for held in (staging, at_most))
    slot = shape.operand_rows(form.rows, form.n) * form.k * problem.operand_bytes
    deepest = CROWDED_RING if problem.is_crowded and problem.takes_turns else max(LONG_RING, min(DEEPEST_RING, steps))
    if problem.scaled and steps >= SCALED_STEPS:
        deepest = min(deepest, max(SHORTEST_RING, SCALED_RING_BYTES // slot))
    roomy = (room - ROOM_BEHIND_BYTES - staging) // slot if spec.overlapping_launches else 0
    slots = min(deepest, roomy if roomy >= ROOMY_RING else (room - staging) // slot)
    if (room - at_most) // slot < 2 or slots < (2 if problem.in_cluster else SHORTEST_RING):
        return None
    in_flight = steps_in_flight(form, slots, problem)
    deferred, group_m = defers_stores(form, problem, spec), raster(form, shape, spec, operand_bytes=problem.operand_bytes)
    sizes, groups = (form.m, form.n, form.k, form.warps), (form.consumer_warpgroups, slots, form.ping_pong)
    return RoleTile(*sizes, *groups, in_flight, group_m, deferred)


def holds_boxes(columns: int, tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> bool:
    """Whether every box that a wide tile's results leave in fits `columns`: it is moved there to end with a narrow tile."""
    box_rows = spec.bulk_tensor.box_bytes if spec.bulk_tensor is not None else ()
    widths = [box_widths(tile.n, result.element_bytes, box_rows) for result in problem.results if not result.is_read]
    return all(boxes is not None and boxes[0] <= columns for boxes in widths)


def mixed_tiles(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> MixedWidths | None:
    """Where the tile's two widths lie; None where stores are not deferred, boxes do not fit the narrow width, rounds are full, or the
    narrow width does not fill them.
    """
    shape = problem.shape
    if not tile.tail_tile_n or not tile.deferred_store or tile.cluster > 1:
        return None
    if shape.batch != 1 or shape.root_count > 1 or shape.m is None or shape.n is None or shape.groups_m or shape.groups_n:
        return None
    if not holds_boxes(tile.tail_tile_n, tile, problem, spec):
        return None
    return mixed_widths(-(-shape.m // tile.rows), shape.n, tile.n, tile.tail_tile_n, spec.compute_units, spec.rates.roles)


def may_defer(tile: RoleTile, problem: RoleProblem) -> bool:
    """Whether registers may hold a tile's results under the next one's steps."""
    if tile.ping_pong > 1 or tile.m > problem.row.m or problem.promoted or not problem.may_be_deferred:
        return False
    # A group alone would wait for each step's instructions meanwhile.
    return 1 < tile.consumer_warpgroups < MANY_GROUPS


def defers_stores(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> bool:
    """Whether a tile's results had better leave under the next one's steps: they fit the registers, and workgroups have several tiles."""
    if not may_defer(tile, problem):
        return False
    box_rows = spec.bulk_tensor.box_bytes if spec.bulk_tensor is not None else ()
    written = [result for result in problem.results if not result.is_read]
    held = sum(result.element_bytes for result in written) * tile.m * tile.n // (tile.warps * spec.subgroup_size)
    most = DEFERRED_BYTES if len(written) == len(problem.results) else DEFERRED_BYTES_BESIDE_READS
    fits = held <= most and all(box_widths(tile.n, result.element_bytes, box_rows) for result in written)
    return fits and problem.shape.tiles(tile.rows, tile.n) > spec.compute_units


def cluster_extents(tile: RoleTile, shape: ContractionShape) -> tuple[int, int]:
    """How many workgroups of a cluster are neighbours along m, which share B's columns, and along n, which share A's rows; 1 and 1 where
    there are no clusters. Of those that share one operand all are neighbours along m where whole clusters of rows are walked together, else
    along n. Where tiles are no whole clusters, further ones that lie beyond the result make them such; stores are cut off there only where
    the result's end cuts tiles, too.
    """
    if tile.cluster == 1 or shape.m is None or shape.n is None or not tile.rows:
        return 1, 1
    count_m, count_n = -(-shape.m // tile.rows), -(-shape.n // tile.n)
    along_n = tile.cluster_n
    if not along_n:
        along_n = tile.cluster if count_n > 1 and (tile.group_m % tile.cluster or count_m == 1) else 1
    along_m = tile.cluster // along_n
    is_whole_m = along_m == 1 or (count_m > 1 and tile.group_m % along_m == 0 and (count_m % along_m == 0 or shape.m % tile.rows))
    is_whole_n = along_n == 1 or (count_n > 1 and (count_n % along_n == 0 or shape.n % tile.n))
    return (along_m, along_n) if along_m * along_n == tile.cluster and is_whole_m and is_whole_n else (1, 1)


def tile_count(tile: RoleTile, shape: ContractionShape) -> int:
    """How many tiles cover the results, in whole clusters."""
    of_m, of_n = cluster_extents(tile, shape)
    return shape.tiles(tile.rows * of_m, tile.n * of_n) * of_m * of_n


ROLE_KNOBS = ("num_stages", "consumer_warpgroups", "ping_pong", "steps_in_flight", "deferred_store", "cluster", "cluster_n")
"""Fields of `RoleTile` that overrides and configurations have too, by the same names."""
