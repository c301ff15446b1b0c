"""Modelled times of kernel forms on one scale, seconds from the launch to the end, so that forms can be held against each other.

The models of role kernels and of contractions with a small side are fitted to measured times (`role_tiles.py`, `small_m.py`). That of plain
tiles has the terms of role kernels, with copies and arithmetic of a workgroup one after another; it comes out at 280 us for 4096^3 in bf16
on an H200, where 247 were measured.
"""

from collections.abc import Sequence
from math import inf

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.result_stores import cut_row_clocks, stored_cut_clocks
from treadle.plan.role_clocks import COPIED_AHEAD
from treadle.plan.role_tiles import ResultShape
from treadle.plan.small_m import SLACK, copied_clocks, limited
from treadle.plan.tile_config import (
    ContractionShape,
    ContractionTile,
    TileProblem,
    contraction_cost,
    contraction_tile,
    narrow_tiles,
    resident_workgroups,
    tiles_for,
)
from treadle.records import dataclass, replace

GATHER_CLOCKS = 4
"""Of a compute unit for a warp's load of one piece a lane of an image: about 14 instructions of machine code, on four schedulers."""
BOTH = 2
"""How arithmetic and memory add up where a kernel is not planned by bytes in flight: as the sides of a right angle (see `limited`)."""


def seconds(clocks: float, spec: TargetSpec) -> float:
    """Clocks of the machine as time."""
    return clocks / (spec.clock_mhz * 1e6)


def moving_seconds(memory_bytes: float, spec: TargetSpec) -> float:
    """Time of a kernel that does nothing but move so many bytes of global memory."""
    return seconds(spec.rates.streaming.fixed_clocks, spec) + memory_bytes / (spec.memory_gbps * 1e9)


def with_memory(clocks: float, memory_bytes: float, spec: TargetSpec) -> float:
    """Time of a kernel whose arithmetic takes so many clocks and that moves so many bytes of global memory."""
    return seconds(spec.rates.streaming.fixed_clocks + limited(clocks, copied_clocks(memory_bytes, spec), BOTH), spec)


def bounded_seconds(clocks: float, memory_bytes: float, spec: TargetSpec) -> float:
    """Modelled time of a role kernel that takes so many clocks as far as the memory lets it, and moves so many bytes of global memory."""
    whole = limited(clocks, copied_clocks(memory_bytes, spec), COPIED_AHEAD)
    return seconds(spec.rates.streaming.fixed_clocks + whole, spec)


def bounding_clocks(time: float, memory_bytes: float, spec: TargetSpec) -> float:
    """Clocks that a role kernel takes at most which takes no longer than `time`, or a little more; minus infinity where none is as fast."""
    whole, copied = time * spec.clock_mhz * 1e6 - spec.rates.streaming.fixed_clocks, copied_clocks(memory_bytes, spec) * (1 - SLACK)
    return (whole**COPIED_AHEAD - copied**COPIED_AHEAD) ** (1 / COPIED_AHEAD) * (1 + SLACK) if whole >= copied else -inf


@dataclass(frozen=True, slots=True)
class Gathered:
    """What threads load of A and of B at a time, in bytes, of which one, `image`, is read at windows: its places are computed."""

    widths: tuple[int, int]
    image: int


def _gathering(
    tile: ContractionTile, shape: ContractionShape, operand_bytes: int, gathered: Gathered, spec: TargetSpec
) -> tuple[float, int]:
    """Clocks of a compute unit for what the threads of a workgroup load and store to shared memory in all steps, and how many these are."""
    steps, clocks = -(-shape.extents[2] // tile.k), 0.0
    for number, (extent, width) in enumerate(zip((tile.m, tile.n), gathered.widths, strict=True)):
        pieces = extent * tile.k * operand_bytes / width / spec.subgroup_size
        clocks += pieces * (GATHER_CLOCKS if number == gathered.image else spec.rates.general.piece_clocks)
    return clocks * steps, steps


def _waiting(tile: ContractionTile, shape: ContractionShape, operand_bytes: int, gathered: Gathered, spec: TargetSpec) -> float:
    """Clocks of a kernel whose workgroups wait for their loads in every step, several on a compute unit at the same time."""
    resident, tiles = resident_workgroups(tile, shape, spec), shape.tiles(tile.m, tile.n)
    own, steps = _gathering(tile, shape, operand_bytes, gathered, spec)
    rounds, together = -(-tiles // (spec.compute_units * resident)), min(resident, -(-tiles // spec.compute_units))
    return rounds * (steps * spec.rates.streaming.latency_clocks + together * own)


def least_tile_clocks(problem: TileProblem, loaded_bytes: tuple[int, int]) -> float:
    """Clocks that a kernel of plain tiles takes at least for each k of a batch, whatever k and the number of batches are: those of units
    that are all busy. `loaded_bytes`: see `tile_seconds`.
    """
    row, spec, size, units = problem.instruction, problem.spec, problem.types.operand_bytes, problem.spec.compute_units
    batches = 12 * units  # whole rounds of one to four workgroups on a unit
    many, found = replace(problem.shape, batch=batches, k=1), inf
    for tile in tiles_for(replace(problem, shape=many)):
        clocks = contraction_cost(tile, many, spec, row, size, problem.loads) / spec.macs_per_clock(row) / batches
        found = min(found, clocks + many.tiles(tile.m, tile.n) / batches / units * _piece_clocks(tile, size, loaded_bytes, spec))
    return found


def _piece_clocks(tile: ContractionTile, operand_bytes: int, loaded_bytes: tuple[int, int], spec: TargetSpec) -> float:
    """Of what a workgroup's threads load and store to shared memory, for each k."""
    pieces = sum(extent * operand_bytes / width for extent, width in zip((tile.m, tile.n), loaded_bytes, strict=True) if width)
    return 2 * spec.rates.general.piece_clocks * pieces / spec.subgroup_size


def tile_seconds(
    tile: ContractionTile,
    row: MatrixInstruction | None,
    shape: ContractionShape,
    operand_bytes: int,
    memory_bytes: float,
    spec: TargetSpec,
    loaded_bytes: tuple[int, int] = (0, 0),
    gathered: Gathered | None = None,
    loads: int = 1,
    results: Sequence[ResultShape] = (),
) -> float:
    """Modelled time of a kernel of plain tiles. `loaded_bytes`: what threads load of A and of B at a time, and store to shared memory; 0
    where they do not, or vectors are wide. `gathered`: instead, of an image. `loads`: see `TileProblem`. `results`: of which it is told
    apart whether their rows begin inside sectors.
    """
    resident, rates = resident_workgroups(tile, shape, spec), spec.rates.roles
    loops = contraction_cost(tile, shape, spec, row, operand_bytes, loads) * shape.extents[2] / spec.macs_per_clock(row)
    fill = rates.fill_clocks * resident * shape.operand_rows(tile.m, tile.n) * tile.k * operand_bytes
    rounds = max(1, shape.tiles(tile.m, tile.n) / spec.compute_units)
    loops += rounds * shape.extents[2] * _piece_clocks(tile, operand_bytes, loaded_bytes, spec)
    if gathered is not None:
        working, _ = _gathering(tile, shape, operand_bytes, gathered, spec)
        loops = max(loops + rounds * working, _waiting(tile, shape, operand_bytes, gathered, spec))
    cut = sum(stored_cut_clocks(result, tile.n & -tile.n, spec) + cut_row_clocks(result, spec) for result in results)
    leaving = rates.epilogue_clocks + cut
    return with_memory(loops + fill + rounds * (rates.tile_overhead + tile.m * tile.n * leaving), memory_bytes, spec)


def best_tile(problem: TileProblem, memory_bytes: float, gathered: Gathered | None) -> ContractionTile:
    """The tile of a kernel of plain tiles: where an image is gathered, that of least modelled time."""
    if gathered is None:
        return contraction_tile(problem)
    row, shape, operand_bytes, spec = problem.instruction, problem.shape, problem.types.operand_bytes, problem.spec

    def time(tile: ContractionTile) -> float:
        return tile_seconds(tile, row, shape, operand_bytes, memory_bytes, spec, gathered=gathered, loads=problem.loads)

    return min(narrow_tiles(problem), key=time)
