"""Contractions with few rows (or columns): bound by reading the large operand once. Two forms of kernel, chosen by a model. No IR.

*Streaming*: every thread loads 16 bytes of the large operand at a time straight into registers, several loads ahead of their use, and
multiplies and adds in the vector units; lanes and warps that share a sum join them at the end. *Swapped*: the large operand takes the
side of the matrix instruction that is 64 wide, the few rows its narrow one, behind the ring of a role kernel.

Streaming kernels are planned by bytes in flight: a compute unit gets its share of the memory's bandwidth only while latency times bandwidth
is requested (Little's law). Copies of whole boxes keep far more in flight: there a box's time in the copy engine counts, and how evenly the
tiles load the units. Constants are the product's (`StreamingRates`, `SwappedRates`).
"""

from functools import lru_cache
from itertools import product
from math import inf
from typing import Final, NamedTuple

from treadle.machine.rates import SwappedRates
from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.cache_requests import request_factor
from treadle.plan.tile_config import UNKNOWN_EXTENT, next_power_of_two
from treadle.records import dataclass, replace

MOST_ROWS = 64
"""Beyond it the small operand's traffic and arithmetic count, and ordinary tiles serve."""
MOST_STREAMED_ROWS = 8
SLACK: Final = 1e-9
"""Of modelled times, by which a bound that is computed another way may be beyond them."""
MERGING_REGISTERS = 16
"""Of a thread, more where the workgroups of a tile merge its parts: where they are, and who is there."""


@dataclass(frozen=True, slots=True)
class SmallShape:
    """A contraction whose one side is small: `few` rows there, `many` on the other side, `k` to sum over; None: only the runtime knows.

    `large_bytes`, `small_bytes`, `accumulator_bytes`: of an element of the large and the small operand and of a sum; `along_k`: the large
    operand's unit-stride axis is k; `vector`: its elements that may be loaded at once; `batch`: independent contractions; `roots`:
    contractions of one kernel that share the small operand. `small_along_k`: the small operand's unit-stride axis is k, too.
    `pitch_bytes`: what rows of the large and of the small operand are apart by multiples of, powers of two up to a cache line's bytes.
    `result_bytes`: of an element of the results together, 0 where none is written; `takes_turns`: a workgroup may compute several tiles;
    `merges`: the workgroups of a tile merge its parts.
    """

    few: int
    many: int | None
    k: int | None
    large_bytes: int
    small_bytes: int
    accumulator_bytes: int
    along_k: bool
    vector: int
    batch: int = 1
    roots: int = 1
    small_along_k: bool = True
    pitch_bytes: tuple[int, int] = (128, 128)
    result_bytes: int = 4
    takes_turns: bool = True
    merges: bool = False


@dataclass(frozen=True, slots=True)
class StreamTile:
    """A workgroup of a streaming kernel: its tile of `few` x `many` accumulators, `k` a step, `ahead` steps in flight, `warps`."""

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


def limited(one: float, other: float, sharpness: float) -> float:
    """Clocks of work with two limits: the larger, and more where both are near."""
    return (one**sharpness + other**sharpness) ** (1 / sharpness)


def reading_clocks(large_bytes: float, spec: TargetSpec) -> float:
    """Clocks that reading the large operand takes at least, in either form."""
    most = max(spec.rates.streaming.peak_share, spec.rates.swapped.peak_share)
    return spec.rates.streaming.fixed_clocks + large_bytes / (spec.product.unit_bytes_per_clock * spec.compute_units * most)


# --- streaming


def streamed_share(shape: SmallShape, rows: int, spec: TargetSpec) -> float:
    """Time of the vector units over the memory's: for each element of the large operand `few` multiply-adds, its conversion, and its part
    of the small operand's, which `rows` rows share; where loads are narrower than the machine's widest, the more of them.
    """
    convert = 0 if shape.large_bytes == shape.accumulator_bytes else 1
    shared = shape.few / (rows * shape.roots)
    widest = max(1, spec.max_vector_bytes // shape.large_bytes)
    narrow = spec.rates.streaming.load_macs * (1 / min(shape.vector, widest) - 1 / widest) * (1 + shared)
    each = shape.few + convert + convert * shared + narrow
    return each / spec.fma_per_unit_per_clock / (shape.large_bytes / spec.product.unit_bytes_per_clock)


def stream_refusal(shape: SmallShape) -> str | None:
    """Why a contraction is not streamed, None where it is."""
    return f"{shape.few} rows are more than {MOST_STREAMED_ROWS}" if shape.few > MOST_STREAMED_ROWS else None


def _spread(shape: SmallShape, spec: TargetSpec) -> int:
    """Lanes of a warp along the large operand's unit-stride axis: whole lines at least (or all of a shorter row), the rest of the warp
    takes other rows.
    """
    length = (shape.k if shape.along_k else shape.many) or UNKNOWN_EXTENT
    line = max(1, spec.line_bytes // (shape.large_bytes * shape.vector))
    whole = next_power_of_two(-(-length // shape.vector))
    return min(spec.subgroup_size, max(line, whole) if shape.along_k else min(line, whole))


class _Streamed(NamedTuple):
    """A tile and what holds of it for sums of any length and in any number: registers of a thread, workgroups that share a unit (0: they
    do not fit), the time of the vector units over the memory's. `unit`: what k is at least half of, in steps.
    """

    tile: StreamTile
    unit: int
    registers: int
    resident: int
    share: float


@lru_cache(maxsize=64)
def _stream_candidates(shape: SmallShape, wide: int, spec: TargetSpec) -> tuple[_Streamed, ...]:
    """The tiles for `wide` lanes along the unit-stride axis, whatever k and the batch are."""
    lanes, many = spec.subgroup_size, shape.many or UNKNOWN_EXTENT
    found: list[_Streamed] = []
    for warps, across, held, ahead in product((4, 8, 16), (1, 2, 4, 8, 16), (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)):
        if across > warps or warps * lanes > spec.max_threads_per_workgroup:
            continue
        if shape.along_k:
            side, step = held * (warps // across) * (lanes // wide), shape.vector * wide * across
        else:
            side, step = shape.vector * wide * (warps // across), held * (lanes // wide) * across
        is_power = step & step - 1 == 0
        # Warps that have the same sums bring them through shared memory.
        sums = across * shape.roots * shape.few * side * shape.accumulator_bytes if across > 1 else 0
        if is_power and side <= next_power_of_two(many) and sums <= spec.shared_bytes_per_workgroup:
            tile = StreamTile(shape.few, side, step, ahead, warps)
            found.append(_Streamed(tile, step // across, *_held(tile, shape, spec)))
    return tuple(found)


def _held(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> tuple[int, int, float]:
    needed, threads = stream_registers(tile, shape, spec), tile.warps * spec.subgroup_size
    registers = -(-needed // 8) * 8
    fits = registers <= min(spec.max_registers_per_thread, spec.rates.streaming.max_registers)
    resident = min(spec.registers_per_unit // (threads * registers), spec.max_threads_per_unit // threads) if fits else 0
    return needed, resident, streamed_share(shape, max(1, tile.many * tile.k // (threads * shape.vector)), spec)


def stream_registers(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> int:
    """Registers a thread needs: its accumulators, the large operand's elements in flight twice (a step's loads are issued when the elements
    before them are converted, not when they are used up), the small operand's for all steps of an iteration.
    """
    elements = max(1, tile.many * tile.k // (tile.warps * spec.subgroup_size))
    widened = shape.accumulator_bytes if shape.large_bytes < shape.accumulator_bytes else 0
    small = tile.few * (shape.vector if shape.along_k else max(1, elements // shape.vector))
    accumulators = shape.roots * elements * tile.few * shape.accumulator_bytes
    large = shape.roots * tile.ahead * elements * (shape.large_bytes + widened)
    rates = spec.rates.streaming
    found = (accumulators + large + small * (tile.ahead * shape.small_bytes + widened)) // 4 + rates.fixed_registers
    found += MERGING_REGISTERS * shape.merges
    return found + rates.crowded_more if found > rates.crowded_registers else found


def held_refusal(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> str | None:
    """Why no thread can hold what it adds up: its accumulators, and a step's operands as they are loaded, are as many registers as the
    vector units have of a thread. The others would go to memory and back in each step, in code that is unrolled over all of them and takes
    LLVM minutes. None where registers hold them. The small operand counts where it is widened: else its rows are read one after the other.
    """
    elements = max(1, tile.many * tile.k // (tile.warps * spec.subgroup_size))
    accumulators = shape.roots * elements * tile.few * shape.accumulator_bytes // 4
    small = tile.few * (shape.vector if shape.along_k else max(1, elements // shape.vector)) * shape.small_bytes // 4
    waiting = small if shape.small_bytes < shape.accumulator_bytes else 0
    operands, most = shape.roots * elements * shape.large_bytes // 4 + waiting, spec.fma_registers
    if accumulators + operands < most:
        return None
    return f"{tile.few} rows take {accumulators} registers of accumulators and {operands} of operands, the vector units have {most}"


SEVERAL = 1.16
"""How much longer than modelled kernels take whose small operand has several rows: 39 of 8 shapes with two and three (seeds 1 and 2,
H200) that were near the fastest of theirs; with five and more the four-warp ones took no longer, but there swapped operands are faster.
"""


def stream_resident(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> int:
    """How many workgroups share a unit, as far as registers say; 0 where a thread's do not fit."""
    return _held(tile, shape, spec)[1]


def stream_clocks(tile: StreamTile, shape: SmallShape, spec: TargetSpec) -> float:
    """Modelled clocks: each unit's workgroups in turns of as many as are resident, each turn bound by the memory or by
    the latency of its bytes in flight.
    """
    _, resident, share = _held(tile, shape, spec)
    return _Streams(shape, spec).clocks(tile, resident, share)


class _Streams:
    """Clocks of a contraction's tiles, and what they have in common."""

    def __init__(self, shape: SmallShape, spec: TargetSpec) -> None:
        self.many, self.k, self.rates = shape.many or UNKNOWN_EXTENT, shape.k or UNKNOWN_EXTENT, spec.rates.streaming
        self.batch, self.row_bytes, self.units = shape.batch, shape.roots * shape.large_bytes, spec.compute_units
        self.peak = spec.product.unit_bytes_per_clock * self.rates.peak_share
        self.several = SEVERAL if shape.few > 1 else 1.0

    def clocks(self, tile: StreamTile, resident: int, share: float, enough: float = inf) -> float:
        """Of a tile (see `_Streamed`); infinitely many where they are sure to be more than `enough`."""
        if not resident:
            return inf
        rates, k = self.rates, self.k
        left = -(-self.batch * -(-self.many // tile.many) // self.units)
        turns, last = divmod(left, resident)
        steps = -(-k // tile.k)
        work = tile.many * k * self.row_bytes
        # The latency limit of a turn does not depend on how many workgroups it has: they all wait for their own loads.
        waiting = work * rates.latency_clocks / (min(tile.ahead, steps) * tile.many * tile.k * self.row_bytes)
        if rates.fixed_clocks + left * rates.workgroup_clocks + max(left * work / self.peak, (turns + (last > 0)) * waiting) > enough:
            return inf
        idle = (-(-steps // tile.ahead) * tile.ahead) / steps
        peak = self.peak / max(1.0, share * idle / rates.vector_share)
        clocks = turns * limited(resident * work / peak, waiting, 2) + (limited(last * work / peak, waiting, 2) if last else 0.0)
        return rates.fixed_clocks + (clocks + left * rates.workgroup_clocks) * self.several


def _streamed(shape: SmallShape, spec: TargetSpec) -> list[_Streamed]:
    """The tiles that are considered."""
    candidates, k = _stream_candidates(replace(shape, k=None, batch=1), _spread(shape, spec), spec), shape.k or UNKNOWN_EXTENT
    return [each for each in candidates if each.tile.ahead * each.tile.k < 2 * max(k, each.unit)]


def stream_tiles(shape: SmallShape, spec: TargetSpec) -> list[StreamTile]:
    """The candidates, least modelled time first; of those alike the one with fewer warps first, then one that leaves registers."""
    rates, model = spec.rates.streaming, _Streams(shape, spec)
    found = [(model.clocks(each.tile, each.resident, each.share), each.registers, each.tile) for each in _streamed(shape, spec)]
    found.sort(key=lambda each: (each[0], each[1], each[2].warps))
    count = sum(clocks <= found[0][0] * (1 + rates.alike) for clocks, _, _ in found)
    alike = sorted(found[:count], key=lambda each: (each[2].warps, each[1] > rates.crowded_registers, each[0]))
    return [tile for _, _, tile in (*alike, *found[count:])]


def stream_tile(shape: SmallShape, spec: TargetSpec) -> StreamTile | None:
    """The first of `stream_tiles`, without a look at those that cannot be it; None where there is none."""
    # Copies of boxes have facts that streaming asks nothing of.
    return _stream_tile(replace(shape, small_along_k=True, pitch_bytes=(0, 0), result_bytes=0, takes_turns=True), spec)


@lru_cache(maxsize=256)
def _stream_tile(shape: SmallShape, spec: TargetSpec) -> StreamTile | None:
    rates, model = spec.rates.streaming, _Streams(shape, spec)
    candidates, least = _streamed(shape, spec), inf
    candidates = [each for each in candidates if each.resident] or candidates
    found: list[tuple[float, _Streamed]] = []
    for each in candidates:
        clocks = model.clocks(each.tile, each.resident, each.share, least * (1 + SLACK + rates.alike))
        least = min(least, clocks)
        found.append((clocks, each))

    def rank(entry: tuple[float, _Streamed]) -> tuple[int, bool, float, int]:
        clocks, each = entry
        return each.tile.warps, each.registers > rates.crowded_registers, clocks, each.registers

    alike = [entry for entry in found if entry[0] <= least * (1 + rates.alike)]
    return min(alike, key=rank)[1].tile if alike else None


# --- swapped


_BOX_ROW_BYTES = 128
"""A row of a copy's box: the widest swizzle's span."""
_ROW_GRAIN = 8
"""Rows of a swizzle's period."""
_RING = 8
_MOST_SLOTS = 24
_LEAST_WIDE_RING = 4
"""Slots that a ring of two swizzle spans a slot must have."""
_NEAR = 5
"""How limits of what is copied add up where they are near one another (see `limited`)."""


def engine_clocks(rows: float, missing: int, row_bytes: int, rates: SwappedRates) -> float:
    """Clocks of a unit's copy engine for a slot: so many rows of operands (rows that begin inside a request of the cache counted as more),
    and so many outside of the arrays, each of `row_bytes`.
    """
    spans = -(-row_bytes // _BOX_ROW_BYTES)
    return spans * (rows * rates.row_clocks + missing * rates.missing_row_clocks) + rates.stage_clocks


def copied_clocks(memory_bytes: float, spec: TargetSpec) -> float:
    """Clocks in which all units together copy so many bytes of global memory."""
    return memory_bytes / _copied_bytes(spec)


@lru_cache(maxsize=64)
def _copied_bytes(spec: TargetSpec) -> float:
    """What they copy in a clock."""
    return spec.product.unit_bytes_per_clock * spec.compute_units * spec.rates.swapped.peak_share


def swapped_clocks(tile: SwappedTile, shape: SmallShape, spec: TargetSpec) -> float:
    """Modelled clocks of a swapped kernel: the memory's time, that of the cache that all units share, or that of each unit's copy engine;
    and what a role kernel's workgroup takes outside of its loop, of which a unit has one in each round.
    """
    many, k, rates, roles = shape.many or UNKNOWN_EXTENT, shape.k or UNKNOWN_EXTENT, spec.rates.swapped, spec.rates.roles
    tiles = shape.batch * -(-many // tile.step)
    rounds, steps = -(-tiles // spec.compute_units), -(-k // tile.k)
    # An operand that lies across is copied in as many rows along k as one that lies along k has: both sides are whole spans.
    of_large, of_small = (request_factor(apart, roles) for apart in shape.pitch_bytes)
    rows, missing = shape.roots * tile.step * of_large + tile.few * of_small, shape.roots * (tile.rows - tile.step)
    engine = rounds * steps * engine_clocks(rows, missing, tile.k * shape.large_bytes, rates)
    spans = -(-tile.k * shape.large_bytes // _BOX_ROW_BYTES)
    cache = tiles / spec.compute_units * steps * spans * rows * roles.cache_row_clocks
    idle = rounds * spec.compute_units / tiles - 1
    large = shape.roots * shape.batch * many * k * shape.large_bytes
    others = shape.batch * shape.few * (k * shape.small_bytes + many * shape.result_bytes)
    memory = copied_clocks(large * (1 + rates.idle_factor * idle) + others, spec)
    # What follows a slot's first span comes while that is multiplied. Rows that a tile leaves out have their place in slots and registers.
    first = roles.fill_clocks * _BOX_ROW_BYTES * (shape.roots * tile.rows + tile.few)
    leaving = roles.tile_overhead + shape.roots * tile.rows * tile.few * roles.epilogue_clocks
    between = leaving + (0 if shape.takes_turns else roles.start_clocks)
    copies = limited(limited(memory, cache, _NEAR), engine, _NEAR)
    return spec.rates.streaming.fixed_clocks + first + copies + (rounds - 1) * between + leaving


def row_steps(row: MatrixInstruction, many: int | None) -> tuple[int, ...]:
    """Rows of the large operand that a tile may take: all the instruction has, or fewer where that divides their number."""
    smaller: tuple[int, ...] = () if many is None else tuple(s for s in range(_ROW_GRAIN, row.m, _ROW_GRAIN) if many % s == 0)
    return (row.m, *reversed(smaller))


def _slots(tile: SwappedTile, shape: SmallShape, spec: TargetSpec) -> int:
    """Slots of a tile's ring: eight, more where rows are few, fewer where they do not fit or the sum is short."""
    in_flight = 4 * spec.rates.streaming.latency_clocks * spec.product.unit_bytes_per_clock
    wanted = -(-int(in_flight) // (shape.roots * tile.step * tile.k * shape.large_bytes))
    steps = _MOST_SLOTS if shape.k is None else max(2, -(-shape.k // tile.k))
    staging = shape.roots * tile.rows * tile.few * max(shape.accumulator_bytes, 4)
    slot = (shape.roots * tile.rows + tile.few) * tile.k * shape.large_bytes
    return min((spec.shared_bytes_per_workgroup - 2048 - staging) // slot, max(wanted, _RING), steps, _MOST_SLOTS)


def swapped_tiles(row: MatrixInstruction, shape: SmallShape, spec: TargetSpec, step: int = 0, k: int = 0) -> list[SwappedTile]:
    """The candidates whose ring fits (of `step` rows and `k` a slot where these are not 0), least modelled time first.

    Tiles of fewer rows than the instruction has leave it partly idle: it is not what bounds the kernel. Slots of two swizzle spans are
    handed over half as often.
    """
    # What lies across is copied and read in whole rows of a swizzle.
    grain = max(row.n_step, _ROW_GRAIN) if shape.small_along_k else _BOX_ROW_BYTES // shape.small_bytes
    few = -(-shape.few // grain) * grain
    if shape.few > MOST_ROWS or few > row.n:
        return []
    span = _BOX_ROW_BYTES // shape.large_bytes
    wide = (2 * span,) if shape.k is None or shape.k > span else ()
    found: list[SwappedTile] = []
    for rows, length in product((step,) if step else row_steps(row, shape.many), (k,) if k else (*wide, span)):
        tile = SwappedTile(row.m, rows, few, length, 0, row.warps)
        slots = _slots(tile, shape, spec)
        short = 2 * length >= (shape.k or UNKNOWN_EXTENT)
        if slots >= (2 if k or short or length == span else _LEAST_WIDE_RING):
            found.append(replace(tile, slots=slots))
    return sorted(found, key=lambda t: swapped_clocks(t, shape, spec))


def swapped_tile(row: MatrixInstruction, shape: SmallShape, spec: TargetSpec, step: int = 0, k: int = 0) -> SwappedTile | None:
    """The tile of least modelled time; None where no ring fits."""
    return next(iter(swapped_tiles(row, shape, spec, step, k)), None)
