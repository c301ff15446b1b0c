"""Modelled clocks of a role kernel, those of one compute unit, by what bounds a step along k. No IR.

Four things do: the matrix instructions; the copy engine, row by row of the boxes; the cache that all units share, which serves the fewer
rows the more units ask; and one consumer warpgroup alone, which waits for each step's instructions before it releases a slot. Rows that
begin inside a cache line are more requests. Between tiles consumers write results while the ring goes on filling.

Rows beyond an array's end take their turn at the cache beside the others, all units' together: 24 of 96 tiles of 64 x 96 with 64 such rows
each made a kernel's steps 1.6 times as long. Rows that threads copy are bound by the threads, longer where they are shifted into place.
Threads that store rows of odd length leave sectors of the cache partly written at both ends of what a warp stores at once, which are 16
neighbours in tiles of 208 columns, in tiles of 192 up to 64.

Consecutive workgroups go to pairs of units, and what a pair asks for at about the same time the cache serves once: 120 tiles of 64 x 192
were 1.6 times as fast on an H100 where pairs shared the 192 rows as where they shared the 64. Rows that begin inside sectors it serves as
often as they are asked for: of 416 such tilings without clusters, on an H200, times do not follow what pairs have in common.
"""

from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from treadle.machine.rates import RoleRates
from treadle.machine.spec import TargetSpec
from treadle.plan.cache_requests import REQUEST_BYTES, SECTOR_BYTES, request_factor
from treadle.plan.mixed_widths import CLEAR_FACTOR, timed_columns
from treadle.plan.part_merges import PAIR, cluster_clocks, clustered_units, last_clocks, turns_clocks
from treadle.plan.rasters import fetched_by_pairs, read_again
from treadle.plan.result_stores import cut_row_clocks, stored_cut_clocks
from treadle.plan.role_clusters import clustered_clocks, fetched_share, held_behind
from treadle.plan.role_forms import role_tiles, waited_boxes
from treadle.plan.role_tiles import (
    ELEMENTS_WITH_TWO_BUFFERS,
    OperandRows,
    ResultShape,
    RoleProblem,
    RoleTile,
    cluster_extents,
    mixed_tiles,
    tile_count,
)
from treadle.plan.small_m import copied_clocks, limited

TWO_UNDER_WAY = 4
"""Slots of a ring of which threads keep two in flight at least."""
COPIED_AHEAD = 3
"""How arithmetic and memory add up: rings keep the memory busy meanwhile (see `limited`)."""
FEW_TILES = 2
"""Along a side, whose rows all units, or every other one, ask for at about the same time."""
LATER_ROUNDS = 1.03
"""What clusters of four must be modelled to gain where they take a second round: of two products that were modelled to gain 1 and 2 % one
lost 8 %, the other 6 to 10 on an H200, while one that was to gain 12 % took 0.8 of the time.
"""
NEAR = 6
"""How two limits of a step add up where they are near one another (see `limited`)."""


class Copies(NamedTuple):
    """Clocks of a step's copies: of the unit's copy engine, of the shared cache when all units ask, beside these of rows beyond the arrays'
    ends for each unit at work, of the producer's threads.
    """

    engine: float
    cache: float
    beyond: float
    threads: float


def joined(a: Copies, b: Copies, stage: float) -> Copies:
    """Those of both operands. `stage`: clocks of the engine beside."""
    return Copies(stage + a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])


def role_cost(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> float:
    """Modelled clocks of the kernel, without its launch and the memory's limit."""
    return RoleModel(problem, spec).cost(tile)


def merge_clocks(tile: RoleTile, parts: int, spec: TargetSpec, *, in_cluster: bool, in_turn: bool = False) -> float:
    """Modelled clocks in which a tile's parts are merged: each group merges its own rows, a cluster's share what their unit reads."""
    if in_cluster:
        return cluster_clocks(tile.rows * tile.n, spec)
    return (turns_clocks if in_turn else last_clocks)(parts, tile.m * tile.n, spec)


class _Side(NamedTuple):
    """Of A or of B: its extent along m or n, and that of each of its groups, how many tiles of it a workgroup copies, how its rows lie,
    bytes of a piece that threads copy (0: descriptors do), whether its last tiles may begin earlier.
    """

    extent: int
    groups: tuple[int, ...]
    tiles: int
    rows: OperandRows
    piece: int
    overlaps: bool


class Kept:
    """What is kept of a side for all problems that have such a one: parts of a contraction, exchanged operands, other results. `copies`: of
    steps; `extents`: of tiles (see `RoleSearch`).
    """

    def __init__(self) -> None:
        self.copies: dict[tuple[int, int, int, int, int], Copies] = {}
        self.extents: dict[tuple[int, int, bool], Any] = {}


@lru_cache(maxsize=16)
def _kept(side: _Side, operand_bytes: int, rounds: bool, common: float, spec: TargetSpec) -> Kept:
    return Kept()


@lru_cache(maxsize=16)
def _kept_matrix(row: str, operand_bytes: int, roots: int, spec: TargetSpec) -> dict[tuple[int, int, int, bool], float]:
    """The same for clocks of matrix instructions."""
    return {}


class RoleModel:
    """Modelled clocks of a problem's tiles. What a step costs is worked out once for tiles that have it in common, and for problems that
    differ in their batches and in k alone (see `RoleSearch.of`). `modelled`: how many tiles were, `steps`: how many different steps.
    """

    # Without a dictionary of their own, attributes are read in half of the time where many models share what they hold.
    __slots__ = (
        *("_costs", "_cut", "_leaving", "_matrix", "brought", "common", "k", "kept", "meets", "problem", "queue", "rates"),
        *("reading", "sides", "spec", "threads_store", "units", "written"),
    )

    def __init__(self, problem: RoleProblem, spec: TargetSpec) -> None:
        rates, shape = spec.rates.roles, problem.shape
        self.problem, self.spec, self.rates, self.units = problem, spec, rates, spec.compute_units
        of_a, of_b = (1, shape.root_count) if shape.shared == "a" else (shape.root_count, 1)
        (m, n, self.k), (of_m, of_n) = shape.extents, problem.operands
        m, n = sum(shape.groups_m) or m, sum(shape.groups_n) or n
        of_pieces = problem.piece_bytes
        ends = problem.overlaps
        self.sides = (
            _Side(m, shape.groups_m, of_a, of_m, of_pieces[0], ends[0]),
            _Side(n, shape.groups_n, of_b, of_n, of_pieces[1], ends[1]),
        )
        self.queue = spec.queue_for("copy_in")
        self.meets = problem.piece_bytes == (0, 0) and not any(rows.pitch_bytes % SECTOR_BYTES for rows in problem.operands)
        brought = [result for result in problem.results if result.is_read and result.in_bulk]
        written = [result for result in problem.results if not (result.is_read and result.in_bulk)] or [ResultShape(0, True)]
        self.written = written
        self.threads_store = any(not result.in_bulk and not result.is_read for result in written)
        self.reading = rates.read_share * len(brought) * rates.epilogue_clocks
        self.brought = sum(result.element_bytes for result in brought) / spec.line_bytes * rates.cache_row_clocks
        rounds = problem.row.a_type == "tf32"
        # Parts, and what else is in a batch, have rows of their own.
        self.common = rates.common_share if (shape.batch or 1) == 1 else 0.0
        self.kept = [_kept(side, problem.operand_bytes, rounds, self.common, spec) for side in self.sides]
        self._matrix = _kept_matrix(problem.row.name, problem.operand_bytes, shape.root_count, spec)
        self._leaving: dict[tuple[int, int], float] = {}
        self._cut: dict[int, float] = {}
        self._costs: dict[RoleTile, float] = {}

    @property
    def steps(self) -> int:
        """How many steps of tiles were modelled, of all problems that share them."""
        return sum(len(kept.copies) for kept in self.kept)

    @property
    def modelled(self) -> int:
        """How many tiles were modelled."""
        return len(self._costs)

    def costs(self) -> dict[RoleTile, float]:
        """The problem's tiles with their clocks."""
        return {tile: self.cost(tile) for tile in role_tiles(self.problem, self.spec)}

    def cost(self, tile: RoleTile) -> float:
        """Modelled clocks of the kernel, without its launch and the memory's limit."""
        if (found := self._costs.get(tile)) is None:
            found = self._costs[tile] = self._cost(tile)
        return found

    def _cost(self, tile: RoleTile) -> float:
        problem, rates, units, shape = self.problem, self.rates, self.units, self.problem.shape
        mixed = mixed_tiles(tile, problem, self.spec) if tile.tail_tile_n else None
        columns, steps = tile.n if mixed is None else gcd(tile.n, mixed.narrow), -(-self.k // tile.k)
        copies = self.copies(tile, columns)
        model = _TileModel(self, tile, copies._replace(cache=copies.cache * self.asked_of_cache(tile)))
        clocks = tile.k * problem.operand_bytes * shape.operand_rows(tile.rows, tile.n) * rates.fill_clocks
        clocks += rates.deferred_clocks if tile.deferred_store else 0
        if tile.cluster > 1:
            clocks += clustered_clocks(tile.cluster, rates)
            units = clustered_units(tile.cluster, self.spec)
        if problem.parts > 1:
            clocks += self.merging(tile)
        if mixed is not None:
            # Narrow tiles are copied as if they were wide: they overlap their neighbours.
            wide, rounds = -(-mixed.first_narrow // units), -(-mixed.tiles // units)
            part = timed_columns(mixed.narrow, rates) / timed_columns(mixed.wide, rates)
            turns = clocks + wide * model.turn(steps, units) + (rounds - wide - 1) * model.turn(steps, units, part)
            return CLEAR_FACTOR * (turns + model.last(steps, units, part))
        full, left = divmod(tile_count(tile, shape), units)
        if left == 0:
            full, left = full - 1, units
        if not full:
            return clocks + model.last(steps, left)
        turn = model.turn(steps, units) if problem.takes_turns else model.last(steps, units) + rates.start_clocks
        clocks += model.last(steps, left) + full * turn
        if tile.cluster > PAIR:
            clocks *= LATER_ROUNDS
        again = read_again(tile, shape, problem.operand_bytes, self.spec)
        return limited(clocks, copied_clocks(again, self.spec), COPIED_AHEAD) if again else clocks

    def merging(self, tile: RoleTile) -> float:
        """Clocks in which a tile's parts are merged."""
        problem = self.problem
        return merge_clocks(tile, problem.parts, self.spec, in_cluster=problem.in_cluster, in_turn=problem.in_turn)

    def asked_of_cache(self, tile: RoleTile) -> float:
        """How many times what a tile's rows take of the cache on average they do, by what pairs of units ask for together: the less the
        more steps they take.
        """
        if not self.meets or tile.cluster > 1:
            return 1.0
        # A cluster's parts of a tile have nothing in common.
        steps = -(-self.k // tile.k) * -(-tile_count(tile, self.problem.shape) // self.units)
        apart = self.rates.apart_share * steps / (steps + self.rates.apart_steps)
        return self.rates.own_share + apart + (1.0 if self.problem.in_cluster else fetched_by_pairs(tile, self.problem.shape))

    def leaving(self, tile: RoleTile) -> float:
        """Clocks of an element of a tile's results on its way out."""
        key = (tile.m, tile.n & -tile.n)
        if (found := self._leaving.get(key)) is None:
            found = self._leaving[key] = sum([_element_clocks(result, tile, self.spec) for result in self.written])
        return found

    def cut_stores(self, tile: RoleTile) -> float:
        """Clocks of the cache for an element of results that descriptor copies write to rows that are cut."""
        apart = tile.n & -tile.n
        if (found := self._cut.get(apart)) is None:
            found = self._cut[apart] = sum([cut_row_clocks(result, self.spec, apart) for result in self.written if result.in_bulk])
        return found

    def copies(self, tile: RoleTile, columns: int) -> Copies:
        """Those of a step of a tile. `columns`: what tiles are apart by multiples of along n."""
        return self.copies_of(tile, columns, *cluster_extents(tile, self.problem.shape))

    def copies_of(self, tile: RoleTile, columns: int, along_m: int, along_n: int) -> Copies:
        """The same for clusters of so many workgroups along m and n."""
        # Workgroups of a cluster fetch a part each of what they share, but for what threads copy; tiles of a side are whole clusters.
        of_a, of_b = (1 if side.piece else count for side, count in zip(self.sides, (along_n, along_m), strict=True))
        a = self.side_copies(0, tile.rows, tile.k, of_a, tile.rows, along_m)
        b = self.side_copies(1, tile.n, tile.k, of_b, columns, along_n)
        return joined(a, b, self.rates.stage_clocks + self.meeting(along_m, along_n))

    def meeting(self, along_m: int, along_n: int) -> float:
        """Clocks of a step of clusters of so many workgroups along m and n, whose slots each other fill."""
        cluster = along_m * along_n
        together = self.rates.together_clocks if cluster > 1 else 0
        return together + (self.rates.both_clocks * cluster if along_m > 1 and along_n > 1 else 0)

    def side_copies(self, which: int, extent: int, k: int, together: int, apart: int, whole: int) -> Copies:
        """Those of a step's rows of A (0) or of B (1), see `_step_copies`."""
        key, kept = (extent, k, together, apart, whole), self.kept[which].copies
        if (found := kept.get(key)) is None:
            found = kept[key] = _step_copies(self, self.sides[which], *key)
        return found

    def matrix(self, tile: RoleTile) -> float:
        """Clocks of a step's matrix instructions."""
        is_tall = tile.ping_pong == 1 and tile.m * tile.n > ELEMENTS_WITH_TWO_BUFFERS
        key = (tile.rows, tile.n, tile.k, is_tall)
        if (found := self._matrix.get(key)) is None:
            found = self._matrix[key] = _matrix_clocks(tile, self.problem, self.spec, is_tall=is_tall)
        return found


class _TileModel:
    """What the clocks of a tile's rounds are made of. `copies`: those of a step."""

    def __init__(self, model: RoleModel, tile: RoleTile, copies: Copies) -> None:
        elements = tile.rows * tile.n
        self.tile, self.rates, self.units = tile, model.rates, model.units
        self.copies = copies
        self.matrix = model.matrix(tile)
        self.chain = _consumer_clocks(tile, self.matrix, model.rates) + promoting_clocks(tile, model)
        self.leaving, self.brought = elements * model.leaving(tile), elements * model.brought
        # Threads' copies and threads' stores take turns at the units that load and store, descriptors' at the cache where rows are cut.
        self.beside = self.leaving if model.threads_store and self.copies.threads else elements * model.cut_stores(tile)
        self.computing = elements * model.reading + waited_boxes(tile, model.problem, model.spec) * model.rates.box_clocks
        self.between = self.rates.deferred_overhead if tile.deferred_store else self.rates.tile_overhead + self.leaving

    def _step(self, active: int, part: float) -> tuple[float, float]:
        """Clocks of a step's arithmetic and of its copies, with so many units at work. Clocks follow power: arithmetic slows down."""
        engine, cache, beyond, threads = self.copies
        matrix, stages = self.matrix, self.tile.num_stages
        busy = matrix / max(matrix, engine, cache * active / self.units + beyond * active, threads)
        arithmetic = self.chain * part * (1 + self.rates.power_factor * busy * active / self.units)
        copies = limited(engine, cache * active / self.units + beyond * active, NEAR)
        ring, filled = self.rates.ring_clocks, stages - 1
        if self.tile.cluster > 1:
            ring, filled = self.rates.clustered_ring_clocks, filled - held_behind(self.tile, self.tile.steps_in_flight)
        copies = limited(copies, (ring + copies) / max(1, filled), NEAR)
        if not threads:
            return arithmetic, copies
        # Half of the ring is in flight: the wait for one slot alone is hidden by no other.
        threads += self.rates.held_ring_clocks if stages < TWO_UNDER_WAY else 0
        return arithmetic, limited(copies, threads, NEAR)

    def turn(self, steps: int, active: int, part: float = 1.0) -> float:
        """Clocks of a tile that another one follows: copies go on while results leave. `part`: of the columns."""
        arithmetic, copies = self._step(active, part)
        copying, rates = steps * copies + self.brought + self.beside, self.rates
        if self.tile.ping_pong > 1:
            between = rates.ping_pong_overhead + rates.ping_pong_share * self.leaving
            loop = limited(steps * arithmetic + between, copying, NEAR)
            # An epilogue may take as long as the others' loops.
            return max(loop, (loop + self.computing + 2 * self.leaving) / self.tile.ping_pong)
        work = steps * arithmetic
        if self.tile.deferred_store:
            # Results that take longer to leave than the next tile's steps are waited for.
            work = limited(work, self.leaving, COPIED_AHEAD)
        return limited(work + self.between + self.computing, copying, NEAR)

    def last(self, steps: int, active: int, part: float = 1.0) -> float:
        """Clocks of a unit's last tile, whose results nothing hides."""
        ends = self.rates.tile_overhead + self.computing + self.leaving
        if self.tile.ping_pong > 1:
            return self.turn(steps, active, part) + ends
        arithmetic, copies = self._step(active, part)
        return limited(steps * arithmetic, steps * copies + self.brought, NEAR) + ends


def _matrix_clocks(tile: RoleTile, problem: RoleProblem, spec: TargetSpec, *, is_tall: bool) -> float:
    """Clocks of a step's matrix instructions: narrow ones read A from shared memory for few products."""
    row, size = problem.row, problem.operand_bytes
    products = row.m * timed_columns(tile.n, spec.rates.roles) * row.k / spec.macs_per_clock(row)
    reading = (row.m + tile.n) * row.k * size / (spec.banks.count * spec.banks.bytes)
    factor = spec.rates.roles.tall_factor if is_tall else 1
    return factor * (tile.rows // row.m) * problem.shape.root_count * (tile.k // row.k) * limited(products, reading, NEAR)


def _consumer_clocks(tile: RoleTile, matrix: float, rates: RoleRates) -> float:
    """Clocks in which consumers are through with a step's instructions: that much at least where they wait for them."""
    if tile.ping_pong > 1:
        return matrix
    if tile.consumer_warpgroups == 1 and not tile.steps_in_flight:
        return matrix + rates.wait_clocks
    return limited(matrix, rates.step_clocks, NEAR)


def least_chain(form: RoleTile, matrix: float, rates: RoleRates) -> float:
    """The same of a form's tiles, at least: one group alone may wait, or have instructions that run on."""
    chain = _consumer_clocks(form, matrix, rates)
    may_wait = form.ping_pong == 1 and form.consumer_warpgroups == 1 and not form.steps_in_flight
    return min(chain, limited(matrix, rates.step_clocks, NEAR)) if may_wait else chain


def promoting_clocks(tile: RoleTile, model: RoleModel) -> float:
    """Clocks of a step in which sums are added to those in registers and no group's instructions run. Where they are scaled first, those of
    a third group always do; others take as long whatever the groups (8192^3 in 8-bit floats: three took 2 % more, on an H200).
    """
    if not model.problem.promoted:
        return 0.0
    others = tile.consumer_warpgroups * tile.ping_pong - 1
    return model.rates.promoting_clocks * (max(0.0, 1 - others / 2) if model.problem.scaled else 1.0)


def _element_clocks(result: ResultShape, tile: RoleTile, spec: TargetSpec) -> float:
    """Clocks of an element of a result on its way out."""
    rates = spec.rates.roles
    if result.in_bulk:
        return rates.epilogue_clocks + cut_row_clocks(result, spec, tile.n & -tile.n)
    return rates.epilogue_clocks + rates.stored_clocks + stored_cut_clocks(result, tile.m if result.along_m else tile.n & -tile.n, spec)


def _step_copies(model: RoleModel, side: _Side, extent: int, k: int, together: int, apart: int, whole: int) -> Copies:
    """Clocks of a step's rows of one operand, of which `together` workgroups fetch a part each. `apart`: what tiles are apart by. `whole`:
    there are tiles of a multiple of so many.
    """
    rates, size, queue, rows, total = model.rates, model.problem.operand_bytes, model.queue, side.rows, side.extent
    span = model.spec.slot_row_bytes // size
    width = gcd(extent, span)  # columns of rows along m or n: halves of a swizzle's rows take as long as whole ones
    boxes = extent * (k // span) if rows.along_k else extent // width * k
    if side.piece:
        rounds = model.problem.row.a_type == "tf32"
        # What goes through registers is waited for, and asked of the cache two steps ahead.
        is_held = rounds or (queue is not None and side.piece not in queue.piece_bytes)
        copied = side.tiles * boxes * (rates.rounded_factor if rounds else 1) * (rates.held_factor if is_held else 1)
        threads = copied * rates.copied_row_clocks + (rates.held_clocks if is_held else 0)
        return Copies(0, copied * rates.copied_cache_clocks, 0, threads)
    factor = request_factor(rows.pitch_bytes if rows.along_k else gcd(rows.pitch_bytes, (apart if total > extent else 0) * size), rates)
    # The last tiles along a side have rows beyond the array's end, unless they begin earlier.
    left = 0 if side.overlaps and total >= extent else -total % (extent * whole)
    missing = left * (k // span) if rows.along_k else left // width * k
    beyond = missing * extent / (total + left) * rates.beyond_clocks
    count = side.tiles * fetched_share(extent, rows.along_k, together)
    of_cache = rates.cache_row_clocks
    if rows.pitch_bytes % REQUEST_BYTES:
        of_cache *= 1 + model.common * min(1.0, FEW_TILES / -(-total // extent)) ** 2
    return Copies(count * boxes * rates.row_clocks * factor, count * boxes * of_cache * factor, count * beyond, 0)
