"""Register layouts of a contraction's accumulator and operands over the workgroup's warp grid. Pure, no IR."""

from functools import lru_cache

from treadle.errors import InternalError
from treadle.layout import fragments
from treadle.layout.bits import log2_exact, odd_part
from treadle.layout.tile_layout import Bases, TileLayout
from treadle.machine import MatrixInstruction
from treadle.plan.layout_choice import Sides
from treadle.records import dataclass

MICRO_TILE = 4
"""Neighbouring rows and columns of a thread's accumulators where the vector units do the work: one 16-byte access of f32."""


@dataclass(frozen=True, slots=True)
class ContractLayouts:
    """Layouts for one `tile.contract`: accumulator (m, n), and A (m, k), B (k, n) as register tiles, None where they cannot be.

    Contractions of register tiles go `k_step` along k at a time, some instructions' k; `a` and `b` are of one step, or of all of k where
    the other operand is read from shared memory. `c` is the accumulator layout of a single instruction (None for multiply-adds).
    """

    accumulator: TileLayout
    a: TileLayout | None
    b: TileLayout | None
    k_step: int
    c: TileLayout | None = None


def _width(row: MatrixInstruction, per_group: int) -> int:
    """The widest form of an instruction of which a group's columns are a multiple."""
    if not row.n_step:
        return row.n
    width = next((w for w in range(min(per_group, row.n), 0, -1) if per_group % w == 0 and w % row.n_step == 0), 0)
    if width == 0:
        raise InternalError(f"{row.name} has no width that divides {per_group}")
    return width


@lru_cache(maxsize=256)
def matrix_layouts(row: MatrixInstruction, m: int, n: int, warps_m: int, warps_n: int, k: int = 0) -> ContractLayouts:
    """Layouts of an m x n tile computed with a matrix instruction by `warps_m` x `warps_n` warps (all warps of a group counted).

    `k`: the extent along k of operands in registers, 0 for the instruction's own. Of instructions that read registers alone it may be any
    multiple of theirs: operands are then packed as far as it goes.
    """
    groups = warps_m // row.warps
    if groups < 1 or n % warps_n:
        raise InternalError(f"{warps_m} x {warps_n} warps cannot issue {row.name} over {m} x {n}")
    grid, layouts = (groups, warps_n), row.layouts
    c = layouts.accumulator(_width(row, n // warps_n))
    together = packed_steps(row, k)
    step = together * row.k
    extent = k if k and row.reads_shared else step
    a = None if layouts.a is None else fragments.tile_fragment(fragments.packed(layouts.a(), 1, together), (m, extent), grid, (0, None))
    b = None if layouts.b is None else fragments.tile_fragment(fragments.packed(layouts.b(), 0, together), (extent, n), grid, (None, 1))
    return ContractLayouts(fragments.tile_fragment(c, (m, n), grid), a, b, step, c)


def packed_steps(row: MatrixInstruction, k: int) -> int:
    """How many of an instruction's steps along k are packed in operands that are `k` long; 0 for the instruction's own extent."""
    together = row.packed_steps
    while together > 1 and (not k or k % (together * row.k)):
        together //= 2
    return together


def _lane_grid(lanes: int, rows: int, columns: int) -> tuple[int, int]:
    """Lanes along m and n: as square as can be, at most one for each micro tile; what is left over stays with n, then m, then copies."""
    along_m = along_n = 1
    while along_m * along_n < lanes:
        if along_n <= along_m and along_n < columns:
            along_n *= 2
        elif along_m < rows:
            along_m *= 2
        elif along_n < columns:
            along_n *= 2
        else:
            break
    return along_m, along_n


@lru_cache(maxsize=256)
def multiply_add_layouts(m: int, n: int, warps_m: int, warps_n: int, lanes: int, k_step: int) -> ContractLayouts:
    """Layouts for multiply-adds of the vector units: every thread holds micro tiles of 4 x 4.

    Operand loads are then 16 bytes wide and shared by the lanes of a row or column. Threads in excess of the elements hold copies.
    """
    sides = Sides((m, n))

    def take(dim: int, count: int) -> list[tuple[int, ...]]:
        return sides.take(dim, log2_exact(count))

    # A tile too small for all threads gives up width of the micro tile first.
    micro = [MICRO_TILE, MICRO_TILE]
    threads = warps_m * warps_n * lanes
    for dim in (0, 1, 0, 1):
        if sides.left[0] // micro[0] * (sides.left[1] // micro[1]) < threads and micro[dim] > 1:
            micro[dim] //= 2
    register = [*take(1, micro[1]), *take(0, micro[0])]
    # The warp grid is asked for, but lanes come first in each dimension so that a warp covers neighbouring columns.
    grid_m, grid_n = _lane_grid(lanes, max(1, sides.left[0] // warps_m), max(1, sides.left[1] // warps_n))
    lane = sides.padded([*take(1, grid_n), *take(0, grid_m)], log2_exact(lanes))
    warp = (*sides.padded(take(0, warps_m), log2_exact(warps_m)), *sides.padded(take(1, warps_n), log2_exact(warps_n)))
    register += [*take(1, sides.left[1]), *take(0, sides.left[0])]
    accumulator = TileLayout(tuple(register), lane, warp, (odd_part(m), odd_part(n)))
    return ContractLayouts(accumulator, _operand(accumulator, 0, k_step), _operand(accumulator, 1, k_step), k_step)


def _operand(accumulator: TileLayout, dim: int, k_step: int) -> TileLayout:
    """The operand tile that goes with an accumulator: `dim` 0 is A (m, k), 1 is B (k, n). Every thread holds all of k."""

    def project(bases: Bases) -> Bases:
        return tuple((basis[0], 0) if dim == 0 else (0, basis[1]) for basis in bases)

    along_k = tuple((0, 1 << bit) if dim == 0 else (1 << bit, 0) for bit in range(log2_exact(k_step)))
    register = tuple(basis for basis in project(accumulator.register) if any(basis))
    repeat = (accumulator.repeat[0], 1) if dim == 0 else (1, accumulator.repeat[1])
    return TileLayout((*register, *along_k), project(accumulator.lane), project(accumulator.warp), repeat)
