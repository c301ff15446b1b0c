"""Modelled clocks of a role kernel, those of one compute unit, by what bounds a step along k. No IR.

Four things do: the matrix instructions; the copy engine, row by row of the boxes; the cache that all units share, which serves the fewer
rows the more units ask; and one consumer warpgroup alone, which waits for each step's instructions before it releases a slot. Rows that
begin inside a cache line are two requests. Between tiles consumers write results while the ring goes on filling.
"""

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from treadle.machine.rates import RoleRates
from treadle.machine.spec import TargetSpec
from treadle.plan.mixed_widths import timed_columns
from treadle.plan.part_merges import cluster_clocks, last_clocks
from treadle.plan.role_tiles import (
    ELEMENTS_WITH_TWO_BUFFERS,
    REQUEST_BYTES,
    OperandRows,
    ResultShape,
    RoleProblem,
    RoleTile,
    mixed_tiles,
    role_tiles,
)
from treadle.plan.small_m import limited

NEAR = 6
"""How two limits of a step add up where they are near one another (see `limited`)."""
SECTOR_BYTES = 32
"""Of a cache line, what is read at once."""


class _Copies(NamedTuple):
    """Clocks of a step's copies: of the unit's copy engine, of the shared cache when all units ask, of rows beyond the arrays' ends for
    each unit at work, of the producer's threads.
    """

    engine: float
    cache: float
    beyond: float
    threads: float


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits."""
    return min(role_tiles(problem, spec), key=lambda tile: role_cost(tile, problem, spec), default=None)


def role_cost(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> float:
    """Modelled clocks of the kernel, without its launch and the memory's limit."""
    rates, units = spec.rates.roles, spec.compute_units
    mixed = mixed_tiles(tile, problem, spec)
    model = _Model(tile, problem, spec, tile.n if mixed is None else gcd(tile.n, mixed.narrow))
    clocks = tile.k * problem.operand_bytes * problem.shape.operand_rows(tile.rows, tile.n) * rates.fill_clocks
    clocks += rates.deferred_clocks if tile.deferred_store else 0
    clocks += merge_clocks(tile, problem.parts, spec, in_cluster=problem.in_cluster) if problem.parts > 1 else 0
    if mixed is not None:
        # Narrow tiles are copied as if they were wide: they overlap their neighbours.
        wide, rounds = -(-mixed.first_narrow // units), -(-mixed.tiles // units)
        part = timed_columns(mixed.narrow, rates) / timed_columns(mixed.wide, rates)
        return clocks + wide * model.turn(units) + (rounds - wide - 1) * model.turn(units, part) + model.last(units, part)
    full, left = divmod(problem.shape.tiles(tile.rows, tile.n), units)
    return clocks + ((full - 1) * model.turn(units) + model.last(units) if left == 0 else full * model.turn(units) + model.last(left))


def merge_clocks(tile: RoleTile, parts: int, spec: TargetSpec, *, in_cluster: bool) -> float:
    """Modelled clocks in which a tile's parts are merged: each group merges its own rows, a cluster's share what their unit reads."""
    return cluster_clocks(tile.rows * tile.n, spec) if in_cluster else last_clocks(parts, tile.m * tile.n, spec)


class _Model:
    """What the clocks of a kernel's rounds of tiles are made of. `columns`: what tiles are apart by multiples of along n."""

    def __init__(self, tile: RoleTile, problem: RoleProblem, spec: TargetSpec, columns: int) -> None:
        rates = spec.rates.roles
        self.tile, self.rates, self.units = tile, rates, spec.compute_units
        self.steps = -(-problem.shape.extents[2] // tile.k)
        self.copies = _step_copies(tile, problem, spec, columns)
        self.matrix = _matrix_clocks(tile, problem, spec)
        self.chain = _consumer_clocks(tile, self.matrix, rates)
        brought = [result for result in problem.results if result.is_read and result.in_bulk]
        elements = tile.rows * tile.n
        written = [result for result in problem.results if not (result.is_read and result.in_bulk)] or [ResultShape(0, True)]
        self.leaving = elements * sum(_element_clocks(result, rates) for result in written)
        self.computing = elements * (problem.heavy * 2 / tile.consumer_warpgroups * max(1, len(written)))
        self.computing += elements * rates.read_share * len(brought) * rates.epilogue_clocks
        self.brought = elements * sum(result.element_bytes for result in brought) / spec.line_bytes * rates.cache_row_clocks

    def _step(self, active: int, part: float) -> tuple[float, float]:
        """Clocks of a step's arithmetic and of its copies, with so many units at work. Clocks follow power: arithmetic slows down."""
        cache = max(self.copies.cache * active / self.units, self.copies.beyond * active)
        busy = min(1.0, self.matrix / max(self.matrix, self.copies.engine, cache, self.copies.threads))
        arithmetic = self.chain * part * (1 + self.rates.power_factor * busy * active / self.units)
        return arithmetic, limited(limited(self.copies.engine, cache, NEAR), self.copies.threads, NEAR)

    def turn(self, active: int, part: float = 1.0) -> float:
        """Clocks of a tile that another one follows: copies go on while results leave. `part`: of the columns."""
        arithmetic, copies = self._step(active, part)
        copying, rates = self.steps * copies + self.brought, self.rates
        if self.tile.ping_pong > 1:
            between = rates.ping_pong_overhead + rates.ping_pong_share * self.leaving
            loop = limited(self.steps * arithmetic + between, copying, NEAR)
            # An epilogue may take as long as the others' loops.
            return max(loop, (loop + self.computing + 2 * self.leaving) / self.tile.ping_pong)
        between = rates.deferred_overhead if self.tile.deferred_store else rates.tile_overhead + self.leaving
        return limited(self.steps * arithmetic + between + self.computing, copying, NEAR)

    def last(self, active: int, part: float = 1.0) -> float:
        """Clocks of a unit's last tile, whose results nothing hides."""
        ends = self.rates.tile_overhead + self.computing + self.leaving
        if self.tile.ping_pong > 1:
            return self.turn(active, part) + ends
        arithmetic, copies = self._step(active, part)
        return limited(self.steps * arithmetic, self.steps * copies + self.brought, NEAR) + ends


def _matrix_clocks(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> float:
    """Clocks of a step's matrix instructions: narrow ones read A from shared memory for few products."""
    row, size = problem.row, problem.operand_bytes
    products = row.m * tile.n * row.k / spec.macs_per_clock(row)
    reading = (row.m + tile.n) * row.k * size / (spec.banks.count * spec.banks.bytes)
    is_tall = tile.ping_pong == 1 and tile.m * tile.n > ELEMENTS_WITH_TWO_BUFFERS
    factor = spec.rates.roles.tall_factor if is_tall else 1
    return factor * (tile.rows // row.m) * problem.shape.root_count * (tile.k // row.k) * limited(products, reading, NEAR)


def _consumer_clocks(tile: RoleTile, matrix: float, rates: RoleRates) -> float:
    """Clocks in which consumers are through with a step's instructions: that much at least where they wait for them."""
    if tile.ping_pong > 1:
        return matrix
    if tile.consumer_warpgroups == 1 and not tile.steps_in_flight:
        return matrix + rates.wait_clocks
    return limited(matrix, rates.step_clocks, NEAR)


def _element_clocks(result: ResultShape, rates: RoleRates) -> float:
    """Clocks of an element of a result on its way out."""
    if not result.in_bulk:
        return rates.epilogue_clocks + rates.stored_clocks
    return rates.epilogue_clocks + (rates.cut_store_clocks if result.pitch_bytes % SECTOR_BYTES else 0)


def _sides(tile: RoleTile, problem: RoleProblem, columns: int) -> Iterator[tuple[float, int, OperandRows, int, int]]:
    """Of A and of B: how many tiles of it a workgroup copies, rows or columns of one, how its rows lie, bytes of a piece that threads copy
    (0: descriptors do), and the columns by which tiles are apart.
    """
    shape = problem.shape
    m, n, _ = shape.extents
    of_a, of_b = (1, shape.root_count) if shape.shared == "a" else (shape.root_count, 1)
    yield of_a, tile.rows, problem.operands[0], problem.piece_bytes[0], tile.rows if m > tile.rows else 0
    # Workgroups of a cluster fetch a part of B each.
    together = 1 if problem.piece_bytes[1] else tile.cluster
    yield of_b / together, tile.n, problem.operands[1], problem.piece_bytes[1], columns if n > tile.n else 0


def _step_copies(tile: RoleTile, problem: RoleProblem, spec: TargetSpec, columns: int) -> _Copies:
    rates, size, queue = spec.rates.roles, problem.operand_bytes, spec.queue_for("copy_in")
    span = spec.slot_row_bytes // size
    engine, cache, beyond, threads = rates.stage_clocks, 0.0, 0.0, 0.0
    rounds = problem.row.a_type == "tf32"
    for (count, extent, rows, piece, apart), total in zip(_sides(tile, problem, columns), problem.shape.extents[:2], strict=True):
        boxes = extent * (tile.k // span) if rows.along_k else -(-extent // span) * tile.k
        if piece:
            across = 1 if rows.along_k else rates.held_across_factor
            # What goes through registers is waited for.
            is_held = rounds or (queue is not None and piece not in queue.piece_bytes)
            threads += count * boxes * rates.copied_row_clocks * (rates.rounded_factor if rounds else 1) * (across if is_held else 1)
            threads += rates.held_clocks if is_held else 0
            continue
        factor = _requests(rows.pitch_bytes if rows.along_k else gcd(rows.pitch_bytes, apart * size), rates)
        engine += count * boxes * rates.row_clocks * factor
        cache += count * boxes * rates.cache_row_clocks * factor
        # The last tiles along a side have such rows, one of so many.
        left = -total % extent
        missing = left * (tile.k // span) if rows.along_k else left // span * tile.k
        beyond += count * missing * extent / (total + left) * rates.beyond_clocks
    return _Copies(engine, cache, beyond, threads)


def _requests(apart_bytes: int, rates: RoleRates) -> float:
    """How many times as long rows take that begin anywhere at multiples of so many bytes as rows that are whole requests."""
    crossing = 1 - gcd(apart_bytes, REQUEST_BYTES) / REQUEST_BYTES
    return 1 + crossing * (rates.cut_sector_factor if apart_bytes % SECTOR_BYTES else rates.cut_request_factor)
