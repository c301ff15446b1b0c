"""Choosing tile sizes, warps and the matrix instruction of a kernel: pure functions over records.

Sizes are ints where they are static and None where only the runtime knows them.
"""

from functools import lru_cache
from math import isqrt
from typing import Final, Literal, NamedTuple

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.pipeline_depth import RESIDENT, RING_SLOTS
from treadle.records import dataclass, replace

UNKNOWN_EXTENT = 4096
"""What an extent that only the runtime knows counts as."""
_BYTES: Final = {"tf32": 4, "f64": 8, "f32": 4, "i32": 4, "i64": 8, "f16": 2, "bf16": 2}
_HALVES = ("f16", "bf16")
_FP8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")


@dataclass(frozen=True, slots=True)
class ContractionShape:
    """Sizes of a contraction's merged axes: one main axis each of m, n, k, and the product of all others (`batch`).

    `root_count`: so many contractions share the loop and the operand `shared`, each with a tile of accumulators of its own. `groups_m`,
    `groups_n`: the sizes of groups that have rows, or columns, of their own, where tiles of a group follow those of the one before; m or n
    is the largest, and `batch` does not count the groups.
    """

    batch: int | None
    m: int | None
    n: int | None
    k: int | None
    root_count: int = 1
    shared: Literal["a", "b"] = "a"
    groups_m: tuple[int, ...] = ()
    groups_n: tuple[int, ...] = ()

    @property
    def extents(self) -> tuple[int, int, int]:
        """M, n and k, `UNKNOWN_EXTENT` where only the runtime knows."""
        return self.m or UNKNOWN_EXTENT, self.n or UNKNOWN_EXTENT, self.k or UNKNOWN_EXTENT

    @property
    def is_static(self) -> bool:
        """Whether m, n and k are known."""
        return None not in (self.m, self.n, self.k)

    def tiles(self, rows: int, columns: int) -> int:
        """How many tiles of so many rows and columns cover the results."""
        return (self.batch or 1) * self.tiles_along_m(rows) * self.tiles_along_n(columns)

    def tiles_along_m(self, rows: int) -> int:
        """How many tiles of so many rows follow one another along m."""
        return sum([-(-size // rows) for size in self.groups_m]) if self.groups_m else -(-(self.m or UNKNOWN_EXTENT) // rows)

    def tiles_along_n(self, columns: int) -> int:
        """How many tiles of so many columns follow one another along n."""
        return sum([-(-size // columns) for size in self.groups_n]) if self.groups_n else -(-(self.n or UNKNOWN_EXTENT) // columns)

    @property
    def exchanged(self) -> "ContractionShape":
        """That of the transposed result."""
        shared: Literal["a", "b"] = "b" if self.shared == "a" else "a"
        return ContractionShape(self.batch, self.n, self.m, self.k, self.root_count, shared, self.groups_n, self.groups_m)

    def operand_rows(self, m: int, n: int) -> int:
        """Rows of k that a tile of `m` x `n` reads of all operands."""
        return m + self.root_count * n if self.shared == "a" else self.root_count * m + n


@dataclass(frozen=True, slots=True)
class ContractionTypes:
    """Types a contraction computes in: operands are converted to `a` and `b` on the way in, accumulators are in `accumulator`.

    `instruction` is a matrix instruction's name or "fma".
    """

    a: str
    b: str
    accumulator: str
    instruction: str

    @property
    def operand_bytes(self) -> int:
        """Bytes of an element of A as it is multiplied."""
        return _BYTES.get(self.a, 1)


@dataclass(frozen=True, slots=True)
class ContractionTile:
    """Tile of one workgroup, its warps as a grid over m and n, and how many rows of tiles are walked together for cache reuse."""

    m: int
    n: int
    k: int
    warps_m: int
    warps_n: int
    group: int = 8

    @property
    def num_warps(self) -> int:
        """Warps of the workgroup."""
        return self.warps_m * self.warps_n

    def num_threads(self, spec: TargetSpec) -> int:
        """Threads of the workgroup."""
        return self.num_warps * spec.subgroup_size


@dataclass(frozen=True, slots=True)
class TileProblem:
    """What the tile of a contraction is chosen for where all warps do alike. `through_registers`: threads bring operands to shared memory,
    which takes registers too. `promoted`: accumulators are held twice. `beside`: a matrix is read besides the operands. `loads`: how many
    loads of an operand's rows, as they are aligned, stand for one of the widest.
    """

    types: ContractionTypes
    shape: ContractionShape
    spec: TargetSpec
    through_registers: bool = False
    promoted: bool = False
    beside: bool = False
    loads: int = 1

    @property
    def instruction(self) -> MatrixInstruction | None:
        """The matrix instruction, None where the vector units multiply."""
        return None if self.types.instruction == "fma" else self.spec.instruction(self.types.instruction)


class _TileFacts(NamedTuple):
    """Of a `TileProblem` what says which tiles there are, whatever the sizes."""

    types: ContractionTypes
    spec: TargetSpec
    through_registers: bool
    promoted: bool
    is_static: bool
    root_count: int

    @property
    def instruction(self) -> MatrixInstruction | None:
        """See `TileProblem`."""
        return None if self.types.instruction == "fma" else self.spec.instruction(self.types.instruction)


def next_power_of_two(value: int) -> int:
    """The smallest power of two that is not below `value` (1 for 0)."""
    return 1 << max(value - 1, 0).bit_length()


def contraction_types(spec: TargetSpec, lhs: str, rhs: str, result: str, casts: tuple[str, str], allow_tf32: bool) -> ContractionTypes:
    """The types and instruction for `result += cast(lhs) * cast(rhs)`.

    f16 and bf16 results accumulate in f32. f32 operands are exact unless `allow_tf32`. Where the machine has no instruction for fp8 they
    are
    widened to f16, which holds every fp8 value exactly.
    """
    accumulator = "f32" if result in _HALVES else "i32" if result in ("i8", "i16") else result
    if "arith.extui" in casts:
        return ContractionTypes(accumulator, accumulator, accumulator, "fma")
    candidates = [(lhs, rhs)]
    if (lhs, rhs) == ("f32", "f32") and allow_tf32:
        candidates.insert(0, ("tf32", "tf32"))
    if lhs in _FP8 and rhs in _FP8:
        candidates.append(("f16", "f16"))
    for a, b in candidates:
        if rows := spec.instructions_for(a, b, accumulator):
            return ContractionTypes(a, b, accumulator, rows[0].name)
    return ContractionTypes(accumulator, accumulator, accumulator, "fma")


PROMOTED_REGISTERS = 192
"""A thread's registers for accumulators where each step along k has accumulators of its own beside the running ones."""


def promotes(spec: TargetSpec, instruction: str, wanted: bool) -> bool:
    """Whether accumulators leave the matrix unit after each step along k: where that is `wanted` and the unit cuts them as they run."""
    return wanted and instruction != "fma" and spec.instruction(instruction).truncates


USUAL_THREADS = 256
"""Of a workgroup, where nothing asks for another number."""
FEW_WARPS = 4
"""Of a workgroup with a small tile of matrix instructions."""


def most_threads(spec: TargetSpec) -> int:
    """Threads of the machine's largest workgroup."""
    return min(spec.max_threads_per_workgroup, spec.max_warps_per_workgroup * spec.subgroup_size)


def usual_threads(spec: TargetSpec) -> int:
    """Threads of a workgroup: as many as usual, or all that the machine lets meet."""
    return min(USUAL_THREADS, most_threads(spec))


def _warp_grid(warps: int) -> tuple[int, int]:
    """A power of two of warps along m and n, as square as can be, the longer side along m."""
    along_m = 1 << warps.bit_length() // 2
    return along_m, warps // along_m


def _tiles(asked: _TileFacts) -> tuple[ContractionTile, ...]:
    """Tiles worth considering for one contraction, large first."""
    spec, row, operand_bytes = asked.spec, asked.instruction, asked.types.operand_bytes
    warps = usual_threads(spec) // spec.subgroup_size
    if row is None:
        half = max(warps // 2, 1)
        k = max(64 // operand_bytes, 4)
        return (
            ContractionTile(128, 128, k, half, warps // half),
            ContractionTile(64, 64, k, half, warps // half),
            ContractionTile(32, 32, k, min(2, warps), half // 2 or 1),
        )
    if row.reads_shared:
        # No operand takes registers: the warps that issue an instruction together hold 128 x 128 accumulators and leave room for three
        # workgroups on a unit, whose copies hide behind each other's arithmetic: 557 TFLOP/s on an H200 at 4096^3 bf16, against 337 for 128
        # x 256 with one workgroup on a unit.
        m, together, k = row.m, row.warps, spec.slot_row_bytes // operand_bytes
        large = (ContractionTile(2 * m, 128, k, 2 * together, 1),)
        if not asked.through_registers and not asked.promoted:
            large = (ContractionTile(2 * m, 128, k, together, 1), ContractionTile(m, 256, k, together, 1))
        return (*large, *(ContractionTile(m, n, k, together, 1) for n in (128, 64, 32)))
    k = max(2 * row.k, 64 // operand_bytes)
    spacious = ContractionTile(256, 256, k, *_warp_grid(2 * warps))
    registers = spec.max_registers_per_thread * spacious.num_threads(spec)
    few = _warp_grid(min(FEW_WARPS, warps))
    tiles = (
        # half the traffic of 128 x 128, and more matrix instructions for each other instruction
        *((spacious,) if 4 * spacious.m * spacious.n <= registers and not asked.promoted else ()),
        # Of a warp's operands each multiplies more where few warps share the tile; bounds that the runtime knows would take the registers.
        *((ContractionTile(128, 128, k, *few),) if not asked.promoted and asked.is_static else ()),
        ContractionTile(128, 128, k, *_warp_grid(warps)),
        ContractionTile(64, 64, k, *few),
        ContractionTile(32, 32, k, *few),
    )
    return tuple(_with_ring(tile, row, spec, operand_bytes) for tile in tiles)


def _with_ring(tile: ContractionTile, instruction: MatrixInstruction, spec: TargetSpec, operand_bytes: int) -> ContractionTile:
    """The tile with the extent along k of which shared memory holds a ring of `RING_SLOTS` slots for each workgroup on a unit, where the
    machine has copies that fill it.
    """
    if not spec.copies_fill_slots:
        return tile
    resident = 1 if tile.num_threads(spec) > USUAL_THREADS else RESIDENT
    row_bytes, k = (tile.m + tile.n) * operand_bytes, tile.k
    while k > instruction.k and RING_SLOTS * k * row_bytes * resident > spec.shared_bytes_per_unit:
        k //= 2
    return replace(tile, k=k)


def tiles_for(problem: TileProblem) -> tuple[ContractionTile, ...]:
    """Tiles worth considering, large first: those whose accumulators take at most half of a thread's registers, or the last.

    Where the accumulators of several contractions together would need more than the most that one tile does, tiles are halved along n,
    as far as each warp keeps a whole instruction.
    """
    static, roots = problem.shape.is_static, problem.shape.root_count
    return _tiles_for(_TileFacts(problem.types, problem.spec, problem.through_registers, problem.promoted, static, roots))


@lru_cache(maxsize=256)
def _tiles_for(asked: _TileFacts) -> tuple[ContractionTile, ...]:
    spec, row, tiles = asked.spec, asked.instruction, _tiles(asked)
    if row is None or not row.reads_shared:
        most = spec.max_registers_per_thread // 2
        tiles = tuple(tile for tile in tiles if tile.m * tile.n <= most * tile.num_threads(spec)) or tiles[-1:]
    narrowest = row.n if row is not None and not row.reads_shared else 32
    each = max(tile.m * tile.n // tile.num_warps for tile in tiles)
    # Where warps hold operands too, many of them on one tile would leave a compute unit no other workgroup.
    most = max(tile.m * tile.n for tile in tiles) if row is not None and not row.reads_shared else each * max(t.num_warps for t in tiles)
    found: list[ContractionTile] = []
    for tile in tiles:
        n, held = tile.n, tile.m * asked.root_count
        limit = min(each * tile.num_warps, most)
        while held * n > limit and n > narrowest * tile.warps_n:
            n //= 2
        if held * n <= limit:
            found.append(replace(tile, n=n))
    return tuple(dict.fromkeys(found))


def resident_workgroups(tile: ContractionTile, shape: ContractionShape, spec: TargetSpec) -> int:
    """How many workgroups share a compute unit, as far as registers say; at most 4."""
    threads = tile.num_warps * spec.subgroup_size
    registers = tile.m * tile.n * shape.root_count // threads + 40
    return max(1, min(4, spec.registers_per_unit // (threads * registers)))


CACHE_BYTES = 64
"""That a compute unit's cache gives in a clock, of what copies ask for."""
TRAFFIC_SHARE = 0.5
"""Of operand traffic under arithmetic, what shows beside it where copies fill slots by themselves: meetings, and other workgroups'."""


def contraction_cost(
    tile: ContractionTile,
    shape: ContractionShape,
    spec: TargetSpec,
    row: MatrixInstruction | None = None,
    operand_bytes: int = 2,
    loads: int = 1,
) -> float:
    """Relative time: rounds of workgroups over the compute units, each as long as its arithmetic and what of its operands' traffic does not
    hide under it. `row`: its matrix instruction, for machines whose copies fill slots while that works; `loads`: see `TileProblem`.
    """
    # Small tiles share a compute unit, so that one's copies hide behind another's arithmetic.
    resident = resident_workgroups(tile, shape, spec)
    together = 1 if spec.pipelines_contractions else resident  # loops that overlap by themselves need no other workgroup
    rounds = -(-shape.tiles(tile.m, tile.n) // (spec.compute_units * together)) * together
    arithmetic = tile.m * tile.n * shape.root_count
    rows = shape.operand_rows(tile.m, tile.n)
    if row is not None and spec.copies_fill_slots:
        traffic = rows * operand_bytes * loads / CACHE_BYTES * spec.macs_per_clock(row)
        return rounds * (max(arithmetic, traffic) + TRAFFIC_SHARE * traffic)
    narrow = loads if row is not None and not row.reads_shared else 1
    return rounds * (arithmetic + spec.rates.general.element_macs * rows * narrow)


FMA_BESIDE = 30
"""Registers of a contraction without matrix instructions beside accumulators and operands: addresses and counters."""
FMA_UNKNOWN = 14
"""More where the runtime knows how far n or k go: bounds and strides."""
FMA_MATRIX = 16
"""More where a matrix is read beside the operands: its elements in flight."""


def fma_registers(tile: ContractionTile, problem: TileProblem) -> int:
    """Registers that a thread needs where accumulators are in the vector units, by what tools gave for tiles of 128 x 128: accumulators, a
    step's operands for them twice (read ahead), and the rest.
    """
    types, shape, spec = problem.types, problem.shape, problem.spec
    words = 2 if types.accumulator in ("f64", "i64") else 1
    threads = tile.num_threads(spec)
    accumulators = tile.m * tile.n * shape.root_count // threads
    operands = 4 * isqrt(accumulators) + shape.operand_rows(tile.m, tile.n) * tile.k // threads
    more = FMA_UNKNOWN * (shape.n is None or shape.k is None) + FMA_MATRIX * problem.beside
    return words * (accumulators + operands) + FMA_BESIDE + more + spec.wide_integer_registers * (types.accumulator == "i64")


def tile_refusal(tile: ContractionTile, row: MatrixInstruction) -> str:
    """Why the warps of a tile cannot hold it with a matrix instruction, "" where they can."""
    if not tile.warps_m or tile.warps_m % row.warps:
        return f"{tile.warps_m} warps along m are no multiple of the {row.warps} that issue {row.name} together"
    units = (row.m * tile.warps_m // row.warps, (row.n_step or row.n) * tile.warps_n, row.k)
    for name, extent, unit in zip("mnk", (tile.m, tile.n, tile.k), units, strict=True):
        if extent < 1 or extent % unit:
            return f"extent along {name} is {extent}, no multiple of the {unit} of {tile.warps_m} x {tile.warps_n} warps with {row.name}"
    return ""


def is_whole(tile: ContractionTile, shape: ContractionShape) -> bool:
    """Whether no tile sticks out: bounds of a large one's loads would take the registers that it needs."""
    sides = ((shape.groups_m or (shape.m,), tile.m), (shape.groups_n or (shape.n,), tile.n), ((shape.k,), tile.k))
    return all(size is not None and size % extent == 0 for sizes, extent in sides for size in sizes)


def candidate_tiles(problem: TileProblem) -> tuple[ContractionTile, ...]:
    """The tiles that are considered, large first."""
    row, spec, found = problem.instruction, problem.spec, tiles_for(problem)
    if row is not None:
        usual = (t for t in found if t.num_threads(spec) <= USUAL_THREADS or row.reads_shared or is_whole(t, problem.shape))
        return tuple(usual)
    return tuple(tile for tile in found if fma_registers(tile, problem) <= spec.fma_registers) or found[-1:]


def narrow_tiles(problem: TileProblem) -> tuple[ContractionTile, ...]:
    """The candidates no wider than n, all where there are none."""
    candidates, n = candidate_tiles(problem), problem.shape.n
    return tuple(tile for tile in candidates if n is not None and tile.n <= next_power_of_two(n)) or candidates


def tile_cost(tile: ContractionTile, problem: TileProblem) -> float:
    """`contraction_cost` of one candidate for a problem."""
    return contraction_cost(tile, problem.shape, problem.spec, problem.instruction, problem.types.operand_bytes, problem.loads)


def contraction_tile(problem: TileProblem) -> ContractionTile:
    """The candidate of least modelled cost, among those no wider than n where there are such."""
    return min(narrow_tiles(problem), key=lambda tile: tile_cost(tile, problem))
