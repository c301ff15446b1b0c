"""Tiles of a kernel that splits f32 operands into narrower parts itself: candidates, a model of their time, the best. No IR.

A producer copies both operands as they are. A is split in the registers of the warps that multiply it, B by a role of its own, from one
ring of shared memory into another. What a step costs is the larger of the matrix instructions, which read each part of B once for every
product and every 64 rows, and of all that passes through shared memory (docs/precision.md, "Inside the kernel").
"""

from collections.abc import Iterator

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.f32_split import Split
from treadle.plan.form_times import with_memory
from treadle.plan.role_tiles import ROLE_MARGIN_BYTES
from treadle.plan.tile_config import ContractionShape
from treadle.records import dataclass

OPERAND_BYTES = 4
"""Of an element of f32."""
DEEPEST_RING = 6
SHARED_BYTES_PER_CLOCK = 128
WIDEST = 128
"""Columns of a tile: two sets of accumulators and the parts of A leave no registers for more."""
STEP_OVERHEAD = 1.15
"""Clocks of a step for one of its matrix instructions: what the two groups' splitting and adding do not hide. An estimate."""


def part_slots(parts: int) -> int:
    """Slots of the ring that B's parts go through: one is written while the other is multiplied. Several parts of half the bytes have one
    more, which takes up that steps differ (18 products on an H200: 0.93 to 1.01 of the time); what is rounded in one part needs the
    memory for the ring of copies.
    """
    return 3 if parts > 1 else 2


@dataclass(frozen=True, slots=True)
class SplitTile:
    """`groups` groups of `warps` warps with a tile of `m` x `n` each, neighbours along m; `num_stages` slots of `k` of both operands.
    `is_swapped`: the problem's A and B are exchanged, so that its B goes through registers.
    """

    m: int
    n: int
    k: int
    warps: int
    groups: int
    num_stages: int
    is_swapped: bool

    @property
    def rows(self) -> int:
        """Rows of the tile of all groups."""
        return self.m * self.groups


@dataclass(frozen=True, slots=True)
class SplitProblem:
    """What a tile is chosen for. `row`: the instruction that multiplies parts. `along_k`: whether the unit-stride axis of A, of B, is k.
    `piece_bytes`: of A and of B, what threads copy at a time, 0 where descriptor copies do. `result_bytes`: of an element of the result.
    """

    split: Split
    row: MatrixInstruction
    shape: ContractionShape
    along_k: tuple[bool, bool]
    piece_bytes: tuple[int, int] = (0, 0)
    result_bytes: int = 4


def split_tiles(problem: SplitProblem, spec: TargetSpec) -> Iterator[SplitTile]:
    """Tiles that registers and shared memory hold."""
    row, k = problem.row, spec.slot_row_bytes // OPERAND_BYTES
    room = spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES
    for is_swapped in (False, True):
        # A tile of B that lies along its columns is copied, and its parts are read, in whole rows of a swizzle.
        step = 2 * row.n_step if problem.along_k[0 if is_swapped else 1] else k
        for n in range(WIDEST, step - 1, -step):
            rows = 2 * row.m
            parts = part_slots(problem.split.parts) * problem.split.parts * problem.split.bytes * n * k
            staging = rows * min(n, k) * problem.result_bytes * 2
            slots = min(DEEPEST_RING, (room - parts - staging) // ((rows + n) * k * OPERAND_BYTES))
            if slots >= 2:
                yield SplitTile(row.m, n, k, row.warps, 2, slots, is_swapped)


def step_clocks(tile: SplitTile, problem: SplitProblem, spec: TargetSpec) -> float:
    """Clocks of a compute unit for a step along k of all groups."""
    split, products = problem.split, len(problem.split.products)
    matrix = tile.rows * tile.n * tile.k * products / spec.macs_per_clock(problem.row)
    read = products * tile.groups * tile.n * tile.k * split.bytes  # of B's parts, by matrix instructions
    split_bytes = tile.n * tile.k * (OPERAND_BYTES + split.parts * split.bytes)
    # Fragments of A are loaded two lanes to a bank.
    shared = (read + split_bytes + (3 * tile.rows + tile.n) * tile.k * OPERAND_BYTES) / SHARED_BYTES_PER_CLOCK
    extents = (tile.n, tile.rows) if tile.is_swapped else (tile.rows, tile.n)
    row_bytes = tile.k * OPERAND_BYTES / spec.subgroup_size
    pieces = sum(extent * row_bytes / width for extent, width in zip(extents, problem.piece_bytes, strict=True) if width)
    copying = (tile.rows + tile.n) * tile.k * OPERAND_BYTES / spec.rates.roles.l2_bytes_per_clock
    copied = spec.rates.roles.producer_factor * spec.rates.general.piece_clocks * pieces
    return max(STEP_OVERHEAD * matrix, shared, copied, copying)


def split_clocks(tile: SplitTile, problem: SplitProblem, spec: TargetSpec) -> float:
    """Modelled clocks of the kernel's loops and epilogues, each workgroup with one tile."""
    rates = spec.rates.roles
    tiles = problem.shape.tiles(tile.n, tile.rows) if tile.is_swapped else problem.shape.tiles(tile.rows, tile.n)
    rounds = -(-tiles // spec.compute_units)
    fill = rates.fill_clocks * (tile.rows + tile.n) * tile.k * OPERAND_BYTES
    leaving = rates.tile_overhead + tile.rows * tile.n * rates.epilogue_clocks
    return rounds * (fill + -(-problem.shape.extents[2] // tile.k) * step_clocks(tile, problem, spec) + leaving)


def split_tile_seconds(tile: SplitTile, problem: SplitProblem, memory_bytes: float, spec: TargetSpec) -> float:
    """Modelled time from launch to end of a kernel that moves so many bytes of global memory."""
    return with_memory(split_clocks(tile, problem, spec), memory_bytes, spec)


def best_split_tile(problem: SplitProblem, spec: TargetSpec) -> SplitTile | None:
    """The tile of least modelled time, of equals the first; None where none fits."""
    return min(split_tiles(problem, spec), key=lambda tile: split_clocks(tile, problem, spec), default=None)
