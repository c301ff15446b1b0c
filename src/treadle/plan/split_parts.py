"""Into how many parts a contraction is split that leaves most of the machine idle: modelled times of the whole and of its parts. No IR.

Parts are computed by workgroups of their own into a workspace and merged by a second launch, by the last workgroup of each tile, or within
a cluster. A contraction's time is that of the fastest kernel form (`form_times.py`, `small_m.py`) on a batch of shorter contractions. Other
reductions are in `reduction_parts.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

from treadle.machine.spec import TargetSpec
from treadle.plan.contract_layouts import MICRO_TILE
from treadle.plan.f32_split import IN_KERNEL
from treadle.plan.form_times import Gathered, best_tile, bounded_seconds, seconds, tile_seconds
from treadle.plan.multiply_add_tiles import ROW_BYTES, MultiplyAdds, multiplies_pieces, multiply_add_seconds, multiply_add_tiles
from treadle.plan.part_merges import PAIR, WORD_BYTES, cluster_clocks, clustered_units, last_clocks, traffic_clocks
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.role_clocks import RoleModel, merge_clocks
from treadle.plan.role_tiles import (
    OperandRows,
    ResultShape,
    RoleProblem,
    RoleTile,
    exchanged_problem,
    may_be_exchanged,
)
from treadle.plan.small_m import MOST_ROWS, SmallShape, stream_clocks, stream_refusal, stream_tiles, swapped_clocks, swapped_tile
from treadle.plan.split_tiles import SplitProblem, best_split_tile, split_tile_seconds, split_tiles
from treadle.plan.tile_config import AxisShape, ContractionShape, ContractionTypes, TileProblem
from treadle.records import dataclass

CLEAR_GAIN: Final = 0.8
"""The parts must be modelled to take at most so much of the whole's time: models are not better than that."""
CLEAR_GAIN_OF_ROLES: Final = 0.95
"""The same where hardware copies bring the operands of a matrix instruction: those models are."""
LEAST_STAGES: Final = 4
"""Of the longest that rings have, in a contraction's part: a shorter one is gone before its pipeline is full."""
LEAST_SAVED_SECONDS: Final = 3e-6
LEAST_SAVED_OF_ROLES: Final = 0.5e-6
MOST_WORKSPACE_BYTES: Final = 256 << 20
"""Of all partial results together."""
USUAL_ROWS: Final = (64, 128)
USUAL_COLUMNS: Final = (96, 128, 160, 192, 256)
"""Of tiles that numbers of parts are chosen by: so many that each compute unit has one."""


@dataclass(frozen=True, slots=True)
class Parts:
    """So many parts, each of whole `step`s of what is reduced but the last; modelled seconds of the whole and of parts and merge. `merge`:
    who merges them ("kernel", "last", "cluster").
    """

    count: int
    step: int
    whole_seconds: float
    seconds: float
    merge: str = "kernel"


class _Choice(NamedTuple):
    """A way to compute a contraction: its modelled time, the elements of the tile that those hold who would merge its parts, and its
    tiles. `in_cluster`: whether the workgroups of a cluster may.
    """

    seconds: float
    elements: int
    tiles: int
    in_cluster: bool = True


@dataclass(frozen=True, slots=True)
class SplitContraction:
    """A contraction: `shape` and `types` as for the choice of tiles, bytes of an element of the operands and of a partial result.

    `copied_rows`: what the bytes of A's rows, and of B's, are multiples of, where hardware copies bring them to the matrix instruction; 0
    where those cannot; `lying_rows`: the same as they lie in memory, for kernels that split f32 operands themselves. `along_k`: the
    unit-stride axis of A, and of B, is k. `split`: what the kernel may make of f32 operands itself, "" for nothing. `is_windowed`: A or B
    is read at windows; `gathered`: how threads load these and the other where they do. `loads`: see `TileProblem`.
    """

    shape: ContractionShape
    types: ContractionTypes
    a_bytes: int
    b_bytes: int
    partial_bytes: int
    copied_rows: tuple[int, int]
    along_k: tuple[bool, bool]
    split: str = ""
    is_windowed: bool = False
    gathered: Gathered | None = None

    lying_rows: tuple[int, int] = (0, 0)
    loads: int = 1

    def piece_bytes(self, spec: TargetSpec, *, to_split: bool = False) -> tuple[int, int] | None:
        """What threads copy of A and of B at a time, 0 where descriptor copies bring it; None where one of them is not copied. `to_split`:
        for a kernel that splits them.
        """
        queue, rules = spec.queue_for("copy_in"), spec.bulk_tensor
        found: list[int] = []
        for rows, size in zip(self.lying_rows if to_split else self.copied_rows, (self.a_bytes, self.b_bytes), strict=True):
            aligned = next((width for width in queue.piece_bytes if width <= rows), 0) if queue is not None else 0
            width = aligned or (size if queue is not None and queue.shifts else 0)
            if not rows or rules is None or (rows < rules.pitch_align_bytes and not width):
                return None
            found.append(0 if rows >= rules.pitch_align_bytes else width)
        return found[0], found[1]

    def multiplies_pieces(self, spec: TargetSpec) -> bool:
        """Whether the vector units multiply what the threads' copies bring as it is."""
        as_they_are = self.a_bytes == self.b_bytes == self.types.operand_bytes and not self.is_windowed and not self.split
        return as_they_are and multiplies_pieces(self.types, (self.types.a, self.types.b), spec)

    def by_descriptor(self, spec: TargetSpec) -> bool:
        """Whether descriptor copies can bring both operands."""
        return self.piece_bytes(spec) == (0, 0)

    @property
    def results(self) -> int:
        """Elements of the result."""
        return (self.shape.batch or 1) * (self.shape.m or 1) * (self.shape.n or 1)

    def stage(self, spec: TargetSpec) -> int:
        """The longest stage of a ring, of which a step of any form on the vector units is a part."""
        return max(64, 2 * spec.slot_row_bytes // self.types.operand_bytes)

    def step(self, spec: TargetSpec) -> int:
        """What parts of known length are multiples of: a slot's row in a ring, or a step of what the vector units multiply, so that the
        longest part is hardly longer than the others; a stage where no descriptors bring the operands.
        """
        if spec.bulk_tensor is None:
            return self.stage(spec)
        row_bytes = ROW_BYTES if self.multiplies_pieces(spec) else spec.slot_row_bytes
        return max(MICRO_TILE, row_bytes // self.types.operand_bytes)


def merge_seconds(count: int, results: int, partial_bytes: int, spec: TargetSpec) -> float:
    """A launch behind another one, its turns of loads one after the other, and what it reads, from the cache where that holds it."""
    held = count * results * partial_bytes
    faster = 2 if held <= spec.product.l2_bytes // 2 else 1
    axes = (AxisShape(count, True, 0, 0), AxisShape(results, False, held, results * partial_bytes))
    (along, _), _ = reduction_tile(axes, spec, separable=True)
    waiting = seconds(-(-count // along) * spec.rates.streaming.latency_clocks, spec)
    return spec.rates.general.launch_seconds + waiting + held / (spec.memory_gbps * 1e9 * faster)


def _small_choices(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> Iterator[_Choice]:
    m, n = shape.m or 0, shape.n or 0
    if problem.is_windowed or min(m, n) > MOST_ROWS or shape.root_count > 1 or problem.types.accumulator not in ("f32", "i32", "f64"):
        return
    few, many, large, small = (m, n, 1, 0) if m <= n else (n, m, 0, 1)
    sizes = (problem.a_bytes, problem.b_bytes)
    along_k = problem.along_k[large]
    rows = (shape.k or 1) if along_k else many
    vector = min(spec.max_vector_bytes // sizes[large], rows & -rows)
    accumulator = 8 if problem.types.accumulator == "f64" else 4
    pitches = problem.copied_rows[large] or spec.line_bytes, problem.copied_rows[small] or spec.line_bytes
    small_shape = SmallShape(
        few,
        many,
        shape.k,
        sizes[large],
        sizes[small],
        accumulator,
        along_k,
        vector,
        shape.batch or 1,
        small_along_k=problem.along_k[small],
        pitch_bytes=pitches,
    )
    if stream_refusal(small_shape) is None and (tile := next(iter(stream_tiles(small_shape, spec)), None)) is not None:
        yield _Choice(seconds(stream_clocks(tile, small_shape, spec), spec), tile.few * tile.many, 0, in_cluster=False)
    swaps = problem.types.instruction != "fma" and problem.by_descriptor(spec)
    if swaps and (swapped := swapped_tile(spec.instruction(problem.types.instruction), small_shape, spec)) is not None:
        whole_rows, tiles = swapped.step == swapped.rows, small_shape.batch * -(-many // swapped.step)
        yield _Choice(seconds(swapped_clocks(swapped, small_shape, spec), spec), swapped.rows * swapped.few, tiles, in_cluster=whole_rows)


def _moved_bytes(problem: SplitContraction, shape: ContractionShape) -> int:
    batch, m, n, k = (size or 1 for size in (shape.batch, shape.m, shape.n, shape.k))
    return batch * (k * (m * problem.a_bytes + n * problem.b_bytes) + m * n * problem.partial_bytes)


class _RoleCosts:
    """Modelled clocks of the tiles of role kernels for a contraction and for its parts, in which steps cost the same."""

    def __init__(self, problem: SplitContraction, spec: TargetSpec) -> None:
        self._problem, self._spec = problem, spec
        self._pieces = None if problem.types.instruction == "fma" else problem.piece_bytes(spec)
        self._models: list[RoleModel] = []

    def of(self, shape: ContractionShape) -> list[RoleModel]:
        """The models of a contraction, and of one with exchanged operands; none where there are none."""
        if self._pieces is None:
            return []
        found = list(_role_problems(self._problem, shape, self._pieces, self._spec))
        self._models += [RoleModel(roles, self._spec) for roles in found[len(self._models) :]]
        return [model.of(roles) for model, roles in zip(self._models, found, strict=False)]


def _whole_seconds(problem: SplitContraction, roles: _RoleCosts, spec: TargetSpec) -> float:
    """The time of the fastest kernel form for a contraction that is not split."""
    shape = problem.shape
    costs = [model.cost(tile) for model in roles.of(shape) if (tile := model.best()) is not None]
    times = [bounded_seconds(min(costs), _moved_bytes(problem, shape), spec)] if costs else []
    return min([*times, *(choice.seconds for choice in _choices_of_one_tile(problem, shape, spec))])


def _role_problems(problem: SplitContraction, shape: ContractionShape, pieces: tuple[int, int], spec: TargetSpec) -> Iterator[RoleProblem]:
    """What tiles of role kernels are chosen for: the contraction as it is, and with its operands exchanged."""
    row, result = spec.instruction(problem.types.instruction), ResultShape(problem.partial_bytes, True)
    a, b = (OperandRows(along, rows) for along, rows in zip(problem.along_k, problem.copied_rows, strict=True))
    size = problem.types.operand_bytes
    of_b, of_a = (row.n_step if side.along_k else spec.slot_row_bytes // size for side in (b, a))
    is_whole = shape == problem.shape
    known = RoleProblem(row, shape, size, (result,), of_b, is_plain=is_whole, piece_bytes=pieces, operands=(a, b))
    yield known
    if not any(pieces) and not problem.is_windowed and shape.root_count == 1 and may_be_exchanged(shape, (a, b), spec):
        yield exchanged_problem(known, of_a)


def _choices_of_one_tile(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> list[_Choice]:
    """The choices of all forms but roles, whose workgroups take one tile each."""
    moved = _moved_bytes(problem, shape)
    types = problem.types
    row = None if types.instruction == "fma" else spec.instruction(types.instruction)
    if problem.multiplies_pieces(spec):
        sums = MultiplyAdds(types, shape, spec, problem.along_k, parts=True)
        tile = multiply_add_tiles(sums)[0]
        time = multiply_add_seconds(tile, sums, moved)
        return [_Choice(time, tile.m * tile.n, shape.tiles(tile.m, tile.n)), *_small_choices(problem, shape, spec)]
    wanted = TileProblem(types, shape, spec, through_registers=not problem.by_descriptor(spec), loads=problem.loads)
    tile, pieces = best_tile(wanted, moved, problem.gathered), problem.piece_bytes(spec) or (0, 0)
    time = tile_seconds(tile, row, shape, types.operand_bytes, moved, spec, pieces, problem.gathered, problem.loads)
    found = [_Choice(time, tile.m * tile.n, shape.tiles(tile.m, tile.n))]
    found += _small_choices(problem, shape, spec)
    within = _within(problem, shape, spec)
    if within is not None and (best_split := best_split_tile(within, spec)) is not None:
        sides = (best_split.n, best_split.rows) if best_split.is_swapped else (best_split.rows, best_split.n)
        found.append(_Choice(split_tile_seconds(best_split, within, moved, spec), best_split.m * best_split.n, shape.tiles(*sides)))
    return found


def _within(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> SplitProblem | None:
    """The contraction for a kernel that splits f32 operands itself; None where that is not asked for, or no copies bring them."""
    pieces = problem.piece_bytes(spec, to_split=True)
    if pieces is None or not problem.split:
        return None
    split = IN_KERNEL[problem.split]
    row = spec.instructions_for(split.element, split.element, problem.types.accumulator)[0]
    return SplitProblem(split, row, shape, problem.along_k, pieces, problem.partial_bytes)


def _split_tiles(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> set[int]:
    """How many tiles cover the result in kernels that split f32 operands themselves."""
    within = _within(problem, shape, spec)
    found = () if within is None else split_tiles(within, spec)
    return {shape.tiles(*((tile.n, tile.rows) if tile.is_swapped else (tile.rows, tile.n))) for tile in found}


def part_counts(workgroups: int, steps: int, least: int, each: int, spec: TargetSpec) -> list[int]:
    """Numbers of parts worth a look, of `least` steps at least: those that give the machine a few whole rounds of workgroups, and powers of
    two. `each`: bytes of one part's results.
    """
    wanted = {max(1, units * spec.compute_units // max(1, workgroups)) for units in (1, 2, 3, 4, 6, 8)}
    wanted |= {1 << power for power in range(1, 11)}
    most = min(steps // least, MOST_WORKSPACE_BYTES // max(1, each))
    # As many parts as give the same longest one, and no more.
    return sorted({-(-steps // -(-steps // count)) for count in wanted if 2 <= count <= most})


def _usual_tiles(shape: ContractionShape) -> set[int]:
    """How many of the usual tiles cover the result."""
    return {shape.tiles(rows, columns) for rows in USUAL_ROWS for columns in USUAL_COLUMNS}


def _one_round(workgroups: int, steps: int, least: int, each: int, spec: TargetSpec) -> list[int]:
    """The number of parts, as in `_counts`, that gives each compute unit one workgroup, as far as it can."""
    count = min(spec.compute_units // workgroups, steps // least, MOST_WORKSPACE_BYTES // max(1, each))
    return [-(-steps // -(-steps // count))] if count > 1 else []


def cluster_counts(spec: TargetSpec) -> tuple[int, ...]:
    """How many parts of a tile the workgroups of a cluster may merge: powers of two, which divide its rows."""
    return tuple(1 << power for power in range(1, spec.max_cluster.bit_length()))


def _merge_times(problem: SplitContraction, part: ContractionShape, count: int, costs: _RoleCosts, spec: TargetSpec) -> dict[str, float]:
    """The times of `count` parts, of which `part` is all in one batch, and of their merge, by who merges."""
    others, moved = _choices_of_one_tile(problem, part, spec), _moved_bytes(problem, part)
    held = count * problem.results * problem.partial_bytes
    by_kernel, by_last = [choice.seconds for choice in others], [_last_seconds(count, choice, spec) for choice in others]
    may_cluster = count in cluster_counts(spec) and problem.partial_bytes == WORD_BYTES
    is_short = count <= PAIR or (part.k or 0) <= spec.rates.arrivals.longest_together
    most = clustered_units(count, spec) if may_cluster and is_short else 0
    by_cluster = [c.seconds + seconds(cluster_clocks(c.elements, spec), spec) for c in others if c.in_cluster and c.tiles <= most]
    for model in costs.of(part):
        best = model.best()
        by_kernel.append(inf if best is None else bounded_seconds(model.cost(best), moved, spec))
        ways = ((by_last, _part_tiles(model), held), (by_cluster, _part_tiles(model, most), 0))
        for times, admitted, written in ways if most else ways[:1]:
            merge = partial(merge_clocks, parts=count, spec=spec, in_cluster=not written)
            tile = model.best(admitted, merge)
            if tile is not None:
                copied = bounded_seconds(model.cost(tile), moved - held + written, spec)
                times.append(copied + seconds(merge(tile), spec))
    found = {
        "kernel": min(by_kernel) + merge_seconds(count, problem.results, problem.partial_bytes, spec),
        "last": min(by_last) + seconds(traffic_clocks(held, spec), spec),
        "cluster": min(by_cluster, default=inf),
    }
    return {who: time for who, time in found.items() if time < inf}


def _part_tiles(model: RoleModel, most: int | None = None) -> Callable[[RoleTile], bool]:
    """Which tiles have parts that are merged in their kernel: those of workgroups that take one each, at most so many of them."""
    shape = model.problem.shape
    return lambda tile: tile.ping_pong == 1 and (most is None or shape.tiles(tile.rows, tile.n) <= most)


def _last_seconds(count: int, choice: _Choice, spec: TargetSpec) -> float:
    return choice.seconds + seconds(last_clocks(count, choice.elements, spec), spec)


def split_contraction(problem: SplitContraction, spec: TargetSpec, *, whole_stages: bool = False) -> Parts | None:
    """The parts that are modelled to be clearly faster than the whole; None where none are, or sizes are not known. `whole_stages`: they
    are multiples of a stage, as those of a length that only the runtime knows, which are all of one length.
    """
    shape = problem.shape
    if any(size is None or size < 1 for size in (shape.batch, shape.m, shape.n, shape.k)):
        return None
    step = problem.stage(spec) if whole_stages else problem.step(spec)
    k, batch = shape.k or 1, shape.batch or 1
    tiles, small = (shape.tiles(side, side) for side in (128, 64))
    if tiles >= spec.compute_units:
        return None
    costs = _RoleCosts(problem, spec)
    whole = _whole_seconds(problem, costs, spec)
    best: Parts | None = None
    each = problem.results * problem.partial_bytes
    steps, least = -(-k // step), LEAST_STAGES * problem.stage(spec) // step
    counts = {
        count
        for workgroups in {tiles, small, *_split_tiles(problem, shape, spec)}
        for count in part_counts(workgroups, steps, least, each, spec)
    }
    counts |= {count for count in cluster_counts(spec) if count <= steps // least}
    counts |= {count for workgroups in _usual_tiles(shape) for count in _one_round(workgroups, steps, least, each, spec)}
    for count in sorted(counts):
        longest = -(-steps // count) * step
        part = replace(shape, batch=batch * count, k=longest)
        times = _merge_times(problem, part, count, costs, spec)
        merge = min(times, key=lambda name: times[name])
        if best is None or times[merge] < best.seconds:
            best = Parts(count, step, whole, times[merge], merge)
    has_roles = problem.types.instruction != "fma" and problem.piece_bytes(spec) is not None
    gain, saved = (CLEAR_GAIN_OF_ROLES, LEAST_SAVED_OF_ROLES) if has_roles else (CLEAR_GAIN, LEAST_SAVED_SECONDS)
    return best if best is not None and is_clear(best, gain, saved) else None


def is_clear(parts: Parts, gain: float, saved: float) -> bool:
    """Whether parts take at most the share `gain` of the whole's time, and so many seconds less."""
    return parts.seconds <= gain * parts.whole_seconds and parts.whole_seconds - parts.seconds >= saved
