"""Modelled times of kernel forms on one scale, seconds from the launch to the end, so that forms can be held against each other.

The models of role kernels and of contractions with a small side are fitted to measured times (`role_tiles.py`, `small_m.py`). That of plain
tiles has the terms of role kernels, with copies and arithmetic of a workgroup one after another; it comes out at 280 us for 4096^3 in bf16
on an H200, where 247 were measured.
"""

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.role_clocks import role_cost
from treadle.plan.role_tiles import RoleProblem, RoleTile
from treadle.plan.small_m import copied_clocks, limited
from treadle.plan.tile_config import ContractionShape, ContractionTile, contraction_cost, resident_workgroups

BOTH = 2
"""How arithmetic and memory add up where a kernel is not planned by bytes in flight: as the sides of a right angle (see `limited`)."""


COPIED_AHEAD = 3
"""The same for role kernels, whose rings keep the memory busy meanwhile."""


def seconds(clocks: float, spec: TargetSpec) -> float:
    """Clocks of the machine as time."""
    return clocks / (spec.clock_mhz * 1e6)


def moving_seconds(memory_bytes: float, spec: TargetSpec) -> float:
    """Time of a kernel that does nothing but move so many bytes of global memory."""
    return seconds(spec.rates.streaming.fixed_clocks, spec) + memory_bytes / (spec.memory_gbps * 1e9)


def with_memory(clocks: float, memory_bytes: float, spec: TargetSpec) -> float:
    """Time of a kernel whose arithmetic takes so many clocks and that moves so many bytes of global memory."""
    return seconds(spec.rates.streaming.fixed_clocks + limited(clocks, copied_clocks(memory_bytes, spec), BOTH), spec)


def role_seconds(tile: RoleTile, problem: RoleProblem, memory_bytes: float, spec: TargetSpec) -> float:
    """Modelled time of a role kernel that reads and writes so many bytes of global memory."""
    clocks = limited(role_cost(tile, problem, spec), copied_clocks(memory_bytes, spec), COPIED_AHEAD)
    return seconds(spec.rates.streaming.fixed_clocks + clocks, spec)


def tile_seconds(
    tile: ContractionTile,
    row: MatrixInstruction | None,
    shape: ContractionShape,
    operand_bytes: int,
    memory_bytes: float,
    spec: TargetSpec,
    loaded_bytes: tuple[int, int] = (0, 0),
) -> float:
    """Modelled time of a kernel of plain tiles. `loaded_bytes`: what threads load of A and of B at a time, and store to shared memory; 0
    where they do not, or vectors are wide.
    """
    resident, rates = resident_workgroups(tile, shape, spec), spec.rates.roles
    loops = contraction_cost(tile, shape, spec) * shape.extents[2] / spec.macs_per_clock(row)
    fill = rates.fill_clocks * resident * shape.operand_rows(tile.m, tile.n) * tile.k * operand_bytes
    rounds = max(1, shape.tiles(tile.m, tile.n) / spec.compute_units)
    pieces = sum(extent * operand_bytes / width for extent, width in zip((tile.m, tile.n), loaded_bytes, strict=True) if width)
    loops += rounds * shape.extents[2] * 2 * spec.rates.general.piece_clocks * pieces / spec.subgroup_size
    return with_memory(loops + fill + rounds * (rates.tile_overhead + tile.m * tile.n * rates.epilogue_clocks), memory_bytes, spec)
