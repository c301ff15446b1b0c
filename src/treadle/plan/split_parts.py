"""Into how many parts a reduction is split that leaves most of the machine idle: modelled times of the whole and of its parts. No IR.

Parts are computed by workgroups of their own into a workspace and merged by a second launch. A contraction's time is that of the fastest
kernel form (`form_times.py`, `small_m.py`) on a batch of shorter contractions. Another reduction waits for memory: it gets the bytes that
its workgroups have in flight each time the memory answers (Little's law), as far as the memory has bandwidth.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from treadle.machine.spec import TargetSpec
from treadle.plan.form_times import role_seconds, seconds, tile_seconds
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.role_tiles import ResultShape, RoleProblem, role_tile
from treadle.plan.small_m import MOST_ROWS, SmallShape, limited, stream_clocks, stream_refusal, stream_tiles, swapped_clocks, swapped_tile
from treadle.plan.tile_config import AxisShape, ContractionShape, ContractionTypes, contraction_tile

CLEAR_GAIN: Final = 0.8
"""The parts must be modelled to take at most so much of the whole's time: models are not better than that."""
LEAST_STEPS: Final = 4
"""Of a contraction's part: a shorter one is gone before its pipeline is full."""
LEAST_SAVED_SECONDS: Final = 3e-6
MOST_WORKSPACE_BYTES: Final = 256 << 20
"""Of all partial results together."""
WORKGROUP_CLOCKS: Final = 1500
"""Of a reduction's workgroup beside its loads: start, the last loads' latency, joining what its threads hold."""
ELEMENT_CLOCKS: Final = 2
"""Of a compute unit for one element in each of a subgroup's lanes: its load, where that is narrow, and what joins it to others."""
RESIDENT_THREADS: Final = 2048


@dataclass(frozen=True, slots=True)
class Parts:
    """So many parts, each of whole `step`s of what is reduced but the last; modelled seconds of the whole and of parts and merge."""

    count: int
    step: int
    whole_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class SplitContraction:
    """A contraction: `shape` and `types` as for the choice of tiles, bytes of an element of the operands and of a partial result.

    `copied_rows`: what the bytes of A's rows, and of B's, are multiples of, where hardware copies bring them to the matrix instruction; 0
    where those cannot. `along_k`: the unit-stride axis of A, and of B, is k.
    """

    shape: ContractionShape
    types: ContractionTypes
    a_bytes: int
    b_bytes: int
    partial_bytes: int
    copied_rows: tuple[int, int]
    along_k: tuple[bool, bool]

    def piece_bytes(self, spec: TargetSpec) -> tuple[int, int] | None:
        """What threads copy of A and of B at a time, 0 where descriptor copies bring it; None where one of them is not copied."""
        queue, rules = spec.queue_for("copy_in"), spec.bulk_tensor
        found: list[int] = []
        for rows, size in zip(self.copied_rows, (self.a_bytes, self.b_bytes), strict=True):
            aligned = next((width for width in queue.piece_bytes if width <= rows), 0) if queue is not None else 0
            width = aligned or (size if queue is not None and queue.shifts else 0)
            if not rows or rules is None or (rows < rules.pitch_align_bytes and not width):
                return None
            found.append(0 if rows >= rules.pitch_align_bytes else width)
        return found[0], found[1]

    def by_descriptor(self, spec: TargetSpec) -> bool:
        """Whether descriptor copies can bring both operands."""
        return self.piece_bytes(spec) == (0, 0)

    @property
    def results(self) -> int:
        """Elements of the result."""
        return (self.shape.batch or 1) * (self.shape.m or 1) * (self.shape.n or 1)

    def step(self, spec: TargetSpec) -> int:
        """What parts are multiples of: the longest stage of a ring, or a step of any form on the vector units."""
        return max(64, 2 * spec.slot_row_bytes // self.types.operand_bytes)


@dataclass(frozen=True, slots=True)
class SplitReduction:
    """Any other reduction over known sizes: its axes as for the choice of tiles, which of them is split, bytes read in all, and of a
    result's partial values.
    """

    axes: tuple[AxisShape, ...]
    split_axis: int
    read_bytes: float
    partial_bytes: int

    @property
    def results(self) -> int:
        """Elements of each result."""
        return prod(axis.size or 1 for axis in self.axes if not axis.is_reduction)


def merge_seconds(count: int, results: int, partial_bytes: int, spec: TargetSpec) -> float:
    """A launch behind another one, its turns of loads one after the other, and what it reads, from the cache where that holds it."""
    held = count * results * partial_bytes
    faster = 2 if held <= spec.product.l2_bytes // 2 else 1
    axes = (AxisShape(count, True, 0, 0), AxisShape(results, False, held, results * partial_bytes))
    (along, _), _ = reduction_tile(axes, spec, separable=True)
    waiting = seconds(-(-count // along) * spec.rates.streaming.latency_clocks, spec)
    return spec.rates.general.launch_seconds + waiting + held / (spec.memory_gbps * 1e9 * faster)


def _small_seconds(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> Iterator[float]:
    m, n = shape.m or 0, shape.n or 0
    if min(m, n) > MOST_ROWS or shape.root_count > 1 or problem.types.accumulator not in ("f32", "i32", "f64"):
        return
    few, many, large, small = (m, n, 1, 0) if m <= n else (n, m, 0, 1)
    sizes = (problem.a_bytes, problem.b_bytes)
    along_k, accumulator = problem.along_k[large], 8 if problem.types.accumulator == "f64" else 4
    rows = (shape.k or 1) if along_k else many
    vector = min(spec.max_vector_bytes // sizes[large], rows & -rows)
    small_shape = SmallShape(few, many, shape.k, sizes[large], sizes[small], accumulator, along_k, vector, shape.batch or 1)
    if stream_refusal(small_shape) is None and (tile := next(iter(stream_tiles(small_shape, spec)), None)) is not None:
        yield seconds(stream_clocks(tile, small_shape, spec), spec)
    if (
        problem.by_descriptor(spec)
        and (swapped := swapped_tile(spec.instruction(problem.types.instruction), small_shape, spec)) is not None
    ):
        yield seconds(swapped_clocks(swapped, small_shape, spec), spec)


def _contraction_seconds(problem: SplitContraction, shape: ContractionShape, result_bytes: int, spec: TargetSpec) -> float:
    batch, m, n, k = (size or 1 for size in (shape.batch, shape.m, shape.n, shape.k))
    moved = batch * (k * (m * problem.a_bytes + n * problem.b_bytes) + m * n * result_bytes)
    types = problem.types
    row = None if types.instruction == "fma" else spec.instruction(types.instruction)
    tile = contraction_tile(types, shape, spec, types.operand_bytes, through_registers=not problem.by_descriptor(spec))
    pieces = problem.piece_bytes(spec)
    time = tile_seconds(tile, row, shape, types.operand_bytes, moved, spec, pieces or (0, 0))
    found = [time, *_small_seconds(problem, shape, spec)]
    if pieces is not None and row is not None:
        roles = RoleProblem(row, shape, types.operand_bytes, (ResultShape(result_bytes, True),), piece_bytes=pieces)
        if (best := role_tile(roles, spec)) is not None:
            found.append(role_seconds(best, roles, moved, spec))
    return min(found)


def _counts(workgroups: int, steps: int, least: int, each: int, spec: TargetSpec) -> list[int]:
    """Numbers of parts worth a look, of `least` steps at least: those that give the machine a few whole rounds of workgroups, and powers of
    two. `each`: bytes of one part's results.
    """
    wanted = {max(1, units * spec.compute_units // max(1, workgroups)) for units in (1, 2, 3, 4, 6, 8)}
    wanted |= {1 << power for power in range(1, 11)}
    most = min(steps // least, MOST_WORKSPACE_BYTES // max(1, each))
    # As many parts as give the same longest one, and no more.
    return sorted({-(-steps // -(-steps // count)) for count in wanted if 2 <= count <= most})


def split_contraction(problem: SplitContraction, spec: TargetSpec) -> Parts | None:
    """The parts that are modelled to be clearly faster than the whole; None where none are, or sizes are not known."""
    shape = problem.shape
    if any(size is None or size < 1 for size in (shape.batch, shape.m, shape.n, shape.k)):
        return None
    step, k, batch = problem.step(spec), shape.k or 1, shape.batch or 1
    tiles = batch * -(-(shape.m or 1) // 128) * -(-(shape.n or 1) // 128)
    if tiles >= spec.compute_units:
        return None
    whole = _contraction_seconds(problem, shape, problem.partial_bytes, spec)
    best: Parts | None = None
    each = problem.results * problem.partial_bytes
    small = batch * -(-(shape.m or 1) // 64) * -(-(shape.n or 1) // 64)
    steps = -(-k // step)
    counts = {count for workgroups in (tiles, small) for count in _counts(workgroups, steps, LEAST_STEPS, each, spec)}
    for count in sorted(counts):
        longest = -(-steps // count) * step
        part = replace(shape, batch=batch * count, k=longest)
        time = _contraction_seconds(problem, part, problem.partial_bytes, spec)
        time += merge_seconds(count, problem.results, problem.partial_bytes, spec)
        if best is None or time < best.seconds:
            best = Parts(count, step, whole, time)
    return best if best is not None and _is_clear(best) else None


def _is_clear(parts: Parts) -> bool:
    return parts.seconds <= CLEAR_GAIN * parts.whole_seconds and parts.whole_seconds - parts.seconds >= LEAST_SAVED_SECONDS


def _reduction_seconds(problem: SplitReduction, count: int, spec: TargetSpec) -> float:
    """Time of a reduction whose split axis is in so many parts."""
    axes = list(problem.axes)
    split = axes[problem.split_axis]
    axes[problem.split_axis] = replace(split, size=-(-(split.size or 1) // count))
    tile, warps = reduction_tile(tuple(axes), spec, separable=True)
    pairs = list(zip(axes, tile, strict=True))
    workgroups = count * prod(-(-(axis.size or 1) // extent) for axis, extent in pairs if not axis.is_reduction)
    elements = prod(axis.size or 1 for axis in axes) * count
    each = prod(min(extent, axis.size or extent) for axis, extent in pairs) * problem.read_bytes / max(1, elements)
    resident = max(1, RESIDENT_THREADS // (warps * spec.subgroup_size))
    active = min(workgroups, resident * spec.compute_units)
    busiest = elements / workgroups * -(-workgroups // spec.compute_units) / spec.subgroup_size
    rates = spec.rates.streaming
    in_flight = active * each / rates.latency_clocks * spec.clock_mhz * 1e6
    moving = limited(problem.read_bytes / in_flight, problem.read_bytes / (spec.memory_gbps * 1e9), 2)  # latency grows under load
    rounds = -(-workgroups // (resident * spec.compute_units))
    working = seconds(busiest * ELEMENT_CLOCKS, spec)
    return seconds(rates.fixed_clocks + rounds * WORKGROUP_CLOCKS, spec) + limited(moving, working, 2)


def split_reduction(problem: SplitReduction, spec: TargetSpec) -> Parts | None:
    """The parts that are modelled to be clearly faster than the whole; None where none are, or sizes are not known."""
    if any(axis.size is None or axis.size < 1 for axis in problem.axes):
        return None
    tile, _ = reduction_tile(problem.axes, spec, separable=True)
    step = tile[problem.split_axis]
    size = problem.axes[problem.split_axis].size or 1
    pairs = zip(problem.axes, tile, strict=True)
    workgroups = prod(-(-(axis.size or 1) // extent) for axis, extent in pairs if not axis.is_reduction)
    whole = _reduction_seconds(problem, 1, spec)
    best: Parts | None = None
    for count in _counts(workgroups, -(-size // step), 1, problem.results * problem.partial_bytes, spec):
        time = _reduction_seconds(problem, count, spec) + merge_seconds(count, problem.results, problem.partial_bytes, spec)
        if best is None or time < best.seconds:
            best = Parts(count, step, whole, time)
    return best if best is not None and _is_clear(best) else None
