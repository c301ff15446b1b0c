"""Choosing tile sizes, warps and the matrix instruction of a kernel: pure functions over records.

Sizes are ints where they are static and None where only the runtime knows them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from treadle.machine.spec import MatrixInstruction, TargetSpec

_UNKNOWN_EXTENT = 4096
_HALVES = ("f16", "bf16")
_FP8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")


@dataclass(frozen=True, slots=True)
class ContractionShape:
    """Sizes of a contraction's merged axes: one main axis each of m, n, k, and the product of all others (`batch`).

    `sums`: so many contractions share the loop and the operand `shared`, each with a tile of sums of its own.
    """

    batch: int | None
    m: int | None
    n: int | None
    k: int | None
    sums: int = 1
    shared: Literal["a", "b"] = "a"

    def operand_rows(self, m: int, n: int) -> int:
        """Rows of k that a tile of `m` x `n` reads of all operands."""
        return m + self.sums * n if self.shared == "a" else self.sums * m + n


@dataclass(frozen=True, slots=True)
class ContractionTypes:
    """Types a contraction computes in: operands are converted to `a` and `b` on the way in, sums are in `accumulator`.

    `instruction` is a matrix instruction's name or "fma".
    """

    a: str
    b: str
    accumulator: str
    instruction: str


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


@dataclass(frozen=True, slots=True)
class RoleTile:
    """A persistent kernel of roles: `groups` computing groups with a tile of `m` x `n` each (neighbours along m), `slots` of `k` in the
    ring.
    """

    m: int
    n: int
    k: int
    warps: int
    groups: int
    slots: int


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
"""A thread's registers for sums where each step along k has sums of its own beside the running ones."""


def promotes(spec: TargetSpec, instruction: str, wanted: bool) -> bool:
    """Whether sums leave the matrix unit after each step along k: where that is `wanted` and the unit cuts them as they run."""
    return wanted and instruction != "fma" and spec.instruction(instruction).truncates


def tiles_for(
    instruction: MatrixInstruction | None,
    spec: TargetSpec,
    operand_bytes: int,
    *,
    through_registers: bool = False,
    promoted: bool = False,
) -> tuple[ContractionTile, ...]:
    """Tiles worth considering, large first. `through_registers`: threads bring operands to shared memory, which takes registers too.
    `promoted`: sums are held twice.
    """
    if instruction is None:
        warps = 256 // spec.subgroup_size
        half = max(warps // 2, 1)
        k = max(64 // operand_bytes, 4)
        return (
            ContractionTile(128, 128, k, half, warps // half),
            ContractionTile(64, 64, k, half, warps // half),
            ContractionTile(32, 32, k, 2, half // 2 or 1),
        )
    if instruction.operands == "shared":
        # One group of warps holds 128 x 128 sums and leaves room for three workgroups on a unit, whose copies hide behind each other's
        # arithmetic: 557 TFLOP/s on an H200 at 4096^3 bf16, against 337 for 128 x 256 with one workgroup on a unit.
        k = 128 // operand_bytes
        large = (ContractionTile(128, 128, k, 8, 1),)
        if not through_registers and not promoted:
            large = (ContractionTile(128, 128, k, 4, 1), ContractionTile(64, 256, k, 4, 1))
        return (
            *large,
            ContractionTile(64, 128, k, 4, 1),
            ContractionTile(64, 64, k, 4, 1),
            ContractionTile(64, 32, k, 4, 1),
        )
    k = max(2 * instruction.k, 64 // operand_bytes)
    return (
        ContractionTile(128, 128, k, 2, 2) if spec.subgroup_size == 64 else ContractionTile(128, 128, k, 4, 2),
        ContractionTile(64, 64, k, 2, 2),
        ContractionTile(32, 32, k, 2, 2),
    )


def narrowed(tiles: tuple[ContractionTile, ...], sums: int) -> tuple[ContractionTile, ...]:
    """The tiles for `sums` contractions at once: where their sums together would need more registers than the most that one tile does, the
    tile is halved along n.
    """
    most = max(tile.m * tile.n // tile.num_warps for tile in tiles)
    found: list[ContractionTile] = []
    for tile in tiles:
        n = tile.n
        while tile.m * n * sums > most * tile.num_warps and n > 32 * tile.warps_n:
            n //= 2
        if tile.m * n * sums <= most * tile.num_warps:
            found.append(replace(tile, n=n))
    return tuple(dict.fromkeys(found))


def contraction_cost(tile: ContractionTile, shape: ContractionShape, spec: TargetSpec) -> float:
    """Relative time: rounds of workgroups over the compute units, each as long as its larger of arithmetic and operand traffic."""
    m, n = shape.m or _UNKNOWN_EXTENT, shape.n or _UNKNOWN_EXTENT
    tiles = (shape.batch or 1) * -(-m // tile.m) * -(-n // tile.n)
    # Small tiles share a compute unit, so that one's copies hide behind another's arithmetic.
    threads = tile.num_warps * spec.subgroup_size
    registers = tile.m * tile.n * shape.sums // threads + 40
    resident = max(1, min(4, spec.registers_per_unit // (threads * registers)))
    rounds = -(-tiles // (spec.compute_units * resident)) * resident
    arithmetic = tile.m * tile.n * shape.sums
    traffic = 48 * shape.operand_rows(tile.m, tile.n)
    return rounds * (arithmetic + traffic)


def contraction_tile(
    types: ContractionTypes,
    shape: ContractionShape,
    spec: TargetSpec,
    operand_bytes: int,
    *,
    through_registers: bool = False,
    promoted: bool = False,
) -> ContractionTile:
    """The candidate of least modelled cost."""
    instruction = None if types.instruction == "fma" else spec.instruction(types.instruction)
    candidates = narrowed(tiles_for(instruction, spec, operand_bytes, through_registers=through_registers, promoted=promoted), shape.sums)
    best = min(candidates, key=lambda tile: contraction_cost(tile, shape, spec))
    narrow = [t for t in candidates if shape.n is not None and t.n <= next_power_of_two(shape.n)]
    if narrow and best not in narrow:
        best = min(narrow, key=lambda tile: contraction_cost(tile, shape, spec))
    return best


_L2_BYTES_PER_CLOCK = 46
"""What one compute unit gets out of the L2 cache when all ask (DeepGEMM's model of Hopper: 6,150 bytes a clock for 132 units)."""
ROLE_MARGIN_BYTES = 2048
"""Shared memory of role kernels that is kept for barriers and alignment."""
_TILE_OVERHEAD = 1500
"""Clocks of a tile outside its loop that nothing hides: filling the ring, the first wait, the last stores."""


@dataclass(frozen=True, slots=True)
class ResultShape:
    """A whole tile that a kernel writes (or reads beside its operands): bytes of an element, and whether descriptor copies carry it.

    `may_stay`: it is read, so whether it passes through shared memory is known only when layouts are.
    """

    element_bytes: int
    in_bulk: bool
    may_stay: bool = False

    def boxes(self, n: int) -> int:
        """Boxes of 128 bytes a row that `n` columns leave in; 0 where they go through the threads."""
        box = 128 // self.element_bytes
        return n // box if self.in_bulk and not n % box else 0


def box_buffers(boxes: int) -> int:
    """Buffers that boxes take in turn: one is filled while the one before leaves.

    A divisor of their number, so that the turn goes on where the next tile begins: else its first box could meet the last one's buffer.
    """
    return next((n for n in range(2, boxes + 1) if boxes % n == 0), 1)


def staging_bytes(results: Sequence[ResultShape], m: int, n: int) -> int:
    """Shared memory a group needs to bring tiles of all these out: buffers that the boxes of one element size take in turn, or the whole
    tile on its way to the threads.
    """
    total = 0
    for size in {result.element_bytes for result in results}:
        own = [result for result in results if result.element_bytes == size]
        boxes = sum(result.boxes(n) for result in own)
        total += box_buffers(boxes) * m * 128 if boxes else 0
        total += sum(m * n * size for result in own if not result.boxes(n))
    return total


MOST_COLUMNS = 256
"""Columns of sums that a group of warps holds: 128 registers a thread of 64 rows."""


def role_tiles(
    row: MatrixInstruction,
    spec: TargetSpec,
    operand_bytes: int,
    results: tuple[ResultShape, ...],
    shape: ContractionShape = ContractionShape(None, None, None, None),
    *,
    promoted: bool = False,
) -> tuple[RoleTile, ...]:
    """Tiles of role kernels that fit shared memory, with as deep a ring as does (at most 8 slots, made fewer where tiles read need
    room). `shape` says how many contractions there are at once. `promoted`: sums are held twice.
    """
    k = 128 // operand_bytes
    found: list[RoleTile] = []
    for groups in (2, 1):
        for n in (256, 192, 128, 64) if shape.sums == 1 else (128, 64, 32):
            if n * shape.sums > MOST_COLUMNS:
                continue
            if promoted and 2 * row.m * n * shape.sums // (row.warps * spec.subgroup_size) > PROMOTED_REGISTERS:
                continue
            staging = groups * staging_bytes([r for r in results if not r.may_stay], row.m, n)
            at_most = groups * staging_bytes(results, row.m, n)
            slot = shape.operand_rows(groups * row.m, n) * k * operand_bytes
            room = spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES
            slots = min(8, (room - staging) // slot)
            if (room - at_most) // slot >= 2 and n % max(row.n_step, 8) == 0:
                found.append(RoleTile(row.m, n, k, row.warps, groups, slots))
    return tuple(found)


def role_cost(tile: RoleTile, shape: ContractionShape, spec: TargetSpec, operand_bytes: int) -> float:
    """Modelled clocks: rounds of tiles over the compute units, each the larger of matrix and cache time along k, plus a fixed part."""
    m, n, k = (s or _UNKNOWN_EXTENT for s in (shape.m, shape.n, shape.k))
    rows = tile.m * tile.groups
    tiles = (shape.batch or 1) * -(-m // rows) * -(-n // tile.n)
    rounds = -(-tiles // spec.compute_units)
    # 2048 multiply-adds of 16-bit operands a clock, more of narrower ones.
    matrix = rows * tile.n * shape.sums * tile.k * operand_bytes / 2 / 2048
    cache = shape.operand_rows(rows, tile.n) * tile.k * operand_bytes / _L2_BYTES_PER_CLOCK
    return rounds * (-(-k // tile.k) * max(matrix, cache) + _TILE_OVERHEAD)


def role_tile(
    row: MatrixInstruction,
    shape: ContractionShape,
    spec: TargetSpec,
    operand_bytes: int,
    results: tuple[ResultShape, ...],
    *,
    promoted: bool = False,
) -> RoleTile | None:
    """The candidate of least modelled cost; None where none fits."""
    candidates = role_tiles(row, spec, operand_bytes, results, shape, promoted=promoted)
    return min(candidates, key=lambda tile: role_cost(tile, shape, spec, operand_bytes), default=None)


@dataclass(frozen=True, slots=True)
class AxisShape:
    """One axis for the pointwise and reduction tilings: extent, role, and how many bytes are read and written along it as unit-stride
    axis.
    """

    size: int | None
    is_reduction: bool
    unit_stride_reads: int
    unit_stride_writes: int


def pointwise_tile(axes: tuple[AxisShape, ...], element_bytes: int, spec: TargetSpec) -> tuple[tuple[int, ...], int]:
    """Tile extents (1: one at a time) and warps for an all-parallel kernel.

    The unit-stride axes of reads and writes are tiled; where they differ (transposes) both get a side long enough for whole memory sectors.
    """
    heaviest = max((a.unit_stride_reads + a.unit_stride_writes for a in axes), default=0)
    # Small side inputs (a row's maximum, a bias) must not turn a streaming kernel into a transposing one.
    unit = [i for i, a in enumerate(axes) if 8 * (a.unit_stride_reads + a.unit_stride_writes) > heaviest]
    tile = [1] * len(axes)
    elements = 2048 * 4 // max(element_bytes, 2)
    if not axes:
        return (), 1
    main = max(range(len(axes)), key=lambda i: (axes[i].unit_stride_writes * 2 + axes[i].unit_stride_reads, i))
    others = [i for i in unit if i != main]
    if others:
        second = max(others, key=lambda i: axes[i].unit_stride_reads + axes[i].unit_stride_writes)
        for i in (main, second):
            tile[i] = min(64, next_power_of_two(axes[i].size or 64))
    else:
        tile[main] = min(elements, next_power_of_two(axes[main].size or elements))
        # Short rows: take several of them.
        for i in reversed(range(main)):
            room = elements // prod(tile)
            if room > 1:
                tile[i] = min(room, next_power_of_two(axes[i].size or room))
                break
    threads = max(spec.subgroup_size, min(256, prod(tile) // 4))
    return tuple(tile), max(1, threads // spec.subgroup_size)


def reduction_tile(axes: tuple[AxisShape, ...], spec: TargetSpec, separable: bool) -> tuple[tuple[int, ...], int]:
    """Tile extents and warps for a reduction that is no contraction.

    `separable`: partial results can be combined. Otherwise the reduced axes are walked one element at a time.
    """
    tile = [1] * len(axes)
    parallel = [i for i, a in enumerate(axes) if not a.is_reduction]
    reduced = [i for i, a in enumerate(axes) if a.is_reduction]

    def traffic(i: int) -> tuple[int, int]:
        return (axes[i].unit_stride_reads, i)

    main = max(range(len(axes)), key=traffic)
    if not separable:
        if parallel:
            inner = max(parallel, key=traffic)
            tile[inner] = min(256, next_power_of_two(axes[inner].size or 256))
        return tuple(tile), max(1, min(256, prod(tile)) // spec.subgroup_size)
    if axes[main].is_reduction:
        work = 4096
        tile[main] = min(2048, next_power_of_two(axes[main].size or 2048))
        if parallel:
            inner = max(parallel, key=traffic)
            rows = prod(a.size or _UNKNOWN_EXTENT for a in axes if not a.is_reduction)
            wanted = max(1, min(work // tile[main], -(-rows // spec.compute_units)))
            tile[inner] = min(next_power_of_two(wanted), next_power_of_two(axes[inner].size or wanted))
    else:
        tile[main] = min(64, next_power_of_two(axes[main].size or 64))
        if reduced:
            inner = max(reduced, key=traffic)
            tile[inner] = min(64, next_power_of_two(axes[inner].size or 64))
    threads = max(spec.subgroup_size, min(256, prod(tile) // 4))
    return tuple(tile), max(1, threads // spec.subgroup_size)
