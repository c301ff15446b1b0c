"""Contractions with few rows (or columns): bound by reading the large operand once. Two forms of kernel, chosen by a model. No IR.

*Streaming*: every thread loads 16 bytes of the large operand at a time straight into registers, several loads ahead of their use, and
multiplies and adds in the vector units; lanes and warps that share a sum join them at the end. *Swapped*: the large operand takes the
side of the matrix instruction that is 64 wide, the few rows its narrow one, behind the ring of a role kernel.

Both are planned by bytes under way: a compute unit gets its share of the memory's bandwidth only while latency times bandwidth is requested
(Little's law), and only a grid that loads every unit alike keeps all of them busy to the end.
"""

from dataclasses import dataclass
from itertools import product

from treadle.machine.spec import MatrixInstruction, TargetSpec

MOST_ROWS = 64
"""Beyond it the small operand's traffic and arithmetic count, and ordinary tiles serve."""
MOST_STREAMED_ROWS = 8
LATENCY_CLOCKS = 1600
"""From a load's issue to its data under full traffic: 0.9 us on an H200, where 600 clocks are an idle memory's."""
_ALU_SHARE = 0.75
"""How much of the memory's time the vector units may take: they share issue slots with the loads and with index arithmetic."""
_FIXED_REGISTERS = 16
"""Addresses and counters."""
_MOST_REGISTERS = 200
_UNKNOWN = 4096
_WORKGROUP_CLOCKS = 600
"""A workgroup's start and end, which nothing of its own hides."""


@dataclass(frozen=True, slots=True)
class SmallShape:
    """A contraction whose one side is small: `few` rows there, `many` on the other side, `k` to sum over; None: only the runtime knows.

    `large_bytes`, `small_bytes`, `sum_bytes`: of an element of the large and the small operand and of a sum; `along_k`: the large
    operand's unit-stride axis is k; `vector`: its elements that may be loaded at once; `batch`: independent contractions; `roots`:
    contractions of one kernel that share the small operand.
    """

    few: int
    many: int | None
    k: int | None
    large_bytes: int
    small_bytes: int
    sum_bytes: int
    along_k: bool
    vector: int
    batch: int = 1
    roots: int = 1


@dataclass(frozen=True, slots=True)
class StreamTile:
    """A workgroup of a streaming kernel: its tile of `few` x `many` sums, `k` a step, `ahead` steps under way, `warps`."""

    few: int
    many: int
    k: int
    ahead: int
    warps: int


@dataclass(frozen=True, slots=True)
class SwappedTile:
    """A role kernel with swapped operands: `step` rows of the large operand a tile (the instruction computes on `rows`, the others are
    never read), `few` columns, `k` a slot, `slots` in the ring.
    """

    rows: int
    step: int
    few: int
    k: int
    slots: int
    warps: int


def _power_at_least(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def unit_bytes_per_clock(spec: TargetSpec) -> float:
    """One compute unit's part of the memory's bandwidth."""
    return spec.memory_gbps * 1e3 / spec.clock_mhz / spec.compute_units


# --- streaming


def streamed_share(shape: SmallShape, rows: int, spec: TargetSpec) -> float:
    """Time of the vector units over the memory's: for each element of the large operand `few` multiply-adds, its conversion, and its part
    of the small operand's, which `rows` rows share.
    """
    convert = 0 if shape.large_bytes == shape.sum_bytes else 1
    each = shape.few + convert + (convert * shape.few) / (rows * shape.roots)
    return each / spec.fma_per_unit_per_clock / (shape.large_bytes / unit_bytes_per_clock(spec))


def stream_refusal(shape: SmallShape, spec: TargetSpec) -> str | None:
    """Why a contraction is not streamed, None where it is."""
    if shape.few > MOST_STREAMED_ROWS:
        return f"{shape.few} rows are more than {MOST_STREAMED_ROWS}"
    if (share := streamed_share(shape, 2, spec)) > _ALU_SHARE:
        return f"the vector units would take {share:.2f} of the time that the memory takes"
    return None


def _spread(shape: SmallShape, spec: TargetSpec) -> int:
    """Lanes of a warp along the large operand's unit-stride axis: whole lines at least, the rest of the warp takes other rows."""
    length = (shape.k if shape.along_k else shape.many) or _UNKNOWN
    line = max(1, 128 // (shape.large_bytes * shape.vector))
    if not shape.along_k:
        return min(spec.subgroup_size, line)
    return min(spec.subgroup_size, max(line, _power_at_least(-(-length // shape.vector))))


def _stream_candidates(shape: SmallShape, spec: TargetSpec) -> list[StreamTile]:
    lanes, wide = spec.subgroup_size, _spread(shape, spec)
    many, k = shape.many or _UNKNOWN, shape.k or _UNKNOWN
    found: list[StreamTile] = []
    for warps, across, held, ahead in product((4, 8, 16), (1, 2, 4, 8, 16), (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)):
        if across > warps or warps * lanes > spec.max_threads_per_workgroup:
            continue
        if shape.along_k:
            side, step = held * (warps // across) * (lanes // wide), shape.vector * wide * across
        else:
            side, step = shape.vector * wide * (warps // across), held * (lanes // wide) * across
        is_power = step & step - 1 == 0
        if is_power and ahead * step < 2 * max(k, step // across) and side <= _power_at_least(many):
            found.append(StreamTile(shape.few, side, step, ahead, warps))
    return found


def stream_registers(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> int:
    """Registers a thread needs: its sums, the large operand's elements under way twice (a step's loads are issued when the elements before
    them are converted, not when they are used up), the small operand's for all steps of an iteration.
    """
    elements = max(1, tile.many * tile.k // (tile.warps * spec.subgroup_size))
    widened = shape.sum_bytes if shape.large_bytes < shape.sum_bytes else 0
    small = tile.few * (shape.vector if shape.along_k else max(1, elements // shape.vector))
    sums = shape.roots * elements * tile.few * shape.sum_bytes
    large = shape.roots * tile.ahead * elements * (shape.large_bytes + widened)
    return (sums + large + small * (tile.ahead * shape.small_bytes + widened)) // 4 + _FIXED_REGISTERS


def stream_clocks(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> float:
    """Modelled clocks: each unit's workgroups in turns of as many as are resident, each turn at the rate of its bytes under way."""
    many, k = shape.many or _UNKNOWN, shape.k or _UNKNOWN
    threads = tile.warps * spec.subgroup_size
    registers = -(-stream_registers(tile, shape, spec) // 8) * 8
    resident = min(spec.registers_per_unit // (threads * registers), spec.max_threads_per_unit // threads)
    if registers > min(spec.max_registers_per_thread, _MOST_REGISTERS) or not resident:
        return float("inf")
    left = -(-shape.batch * -(-many // tile.many) // spec.compute_units)
    steps = -(-k // tile.k)
    row_bytes = shape.roots * shape.large_bytes
    work = tile.many * k * row_bytes
    under_way = min(tile.ahead, steps) * tile.many * tile.k * row_bytes
    idle = (-(-steps // tile.ahead) * tile.ahead) / steps
    share = streamed_share(shape, max(1, tile.many * tile.k // (threads * shape.vector)), spec) * idle
    clocks = 0.0
    while left > 0:
        now = min(left, resident)
        rate = min(unit_bytes_per_clock(spec) / max(1.0, share / _ALU_SHARE), now * under_way / LATENCY_CLOCKS)
        clocks += now * work / rate + LATENCY_CLOCKS + _WORKGROUP_CLOCKS
        left -= now
    return clocks


def stream_tiles(shape: SmallShape, spec: TargetSpec) -> list[StreamTile]:
    """The candidates, least modelled time first; of equals the one with fewer registers first."""
    found = _stream_candidates(shape, spec)
    return sorted(found, key=lambda t: (stream_clocks(t, shape, spec), stream_registers(t, shape, spec), t.warps))


# --- swapped


_L2_BYTES_PER_CLOCK = 46
"""What one compute unit gets out of the L2 cache when all ask (DeepGEMM's model of Hopper)."""
_SLOT_CLOCKS = 150
"""A slot's hand-over: waits, the matrix instructions' latency, arrivals."""
_TILE_CLOCKS = 4000
"""Beginning and end of a role kernel: barriers, the first copies' latency, the last results. Tiles between overlap."""
_ROW_GRAIN = 8
"""Rows of a swizzle's period."""
_MOST_SLOTS = 24


def swapped_clocks(step: int, few: int, shape: SmallShape, spec: TargetSpec) -> float:
    """Modelled clocks of a swapped kernel with tiles of `step` rows: rounds of tiles, a slot the slowest of memory, cache, hand-over."""
    many, k = shape.many or _UNKNOWN, shape.k or _UNKNOWN
    rounds = -(-shape.batch * -(-many // step) // spec.compute_units)
    peak = unit_bytes_per_clock(spec)
    slots = -(-k * shape.large_bytes // 128)
    slot = max(shape.roots * step * 128 / peak, (shape.roots * step + few) * 128 / _L2_BYTES_PER_CLOCK, _SLOT_CLOCKS)
    return rounds * slots * slot + _TILE_CLOCKS


def row_steps(row: MatrixInstruction, many: int | None) -> tuple[int, ...]:
    """Rows of the large operand that a tile may take: all the instruction has, or fewer where that divides their number."""
    smaller: tuple[int, ...] = () if many is None else tuple(s for s in range(_ROW_GRAIN, row.m, _ROW_GRAIN) if many % s == 0)
    return (row.m, *reversed(smaller))


def swapped_tile(row: MatrixInstruction, shape: SmallShape, spec: TargetSpec, step: int = 0) -> SwappedTile | None:
    """The tile of least modelled time, with a ring that keeps twice the memory's latency under way; None where no ring fits.

    Tiles of fewer rows than the instruction has leave it partly idle: it is not what bounds the kernel, and every unit gets its tile.
    """
    grain = max(row.n_step, _ROW_GRAIN)
    few = -(-shape.few // grain) * grain
    if shape.few > MOST_ROWS or few > row.n:
        return None
    k = 128 // shape.large_bytes
    best = step or min(row_steps(row, shape.many), key=lambda s: swapped_clocks(s, few, shape, spec))
    peak = unit_bytes_per_clock(spec)
    wanted = -(-int(2 * LATENCY_CLOCKS * peak) // (shape.roots * best * 128))
    steps = _MOST_SLOTS if shape.k is None else -(-shape.k // k)
    staging = shape.roots * row.m * few * max(shape.sum_bytes, 4)
    room = (spec.shared_bytes_per_workgroup - 2048 - staging) // ((shape.roots * row.m + few) * 128)
    slots = min(room, max(wanted, 4), max(steps, 2), _MOST_SLOTS)
    return SwappedTile(row.m, best, few, k, slots, row.warps) if slots >= 2 else None
