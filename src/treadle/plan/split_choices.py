"""The ways to compute a contraction and its parts, as the choice of a split sees them: modelled times of all kernel forms. No IR."""

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from treadle.machine.spec import TargetSpec
from treadle.plan.contract_layouts import MICRO_TILE
from treadle.plan.f32_split import IN_KERNEL
from treadle.plan.form_times import (
    Gathered,
    best_tile,
    bounded_seconds,
    bounding_clocks,
    least_tile_clocks,
    seconds,
    tile_seconds,
    with_memory,
)
from treadle.plan.mixed_widths import MOST_NARROWER
from treadle.plan.multiply_add_tiles import ROW_BYTES, MultiplyAdds, multiplies_pieces, multiply_add_seconds, multiply_add_tiles
from treadle.plan.role_search import RoleSearch
from treadle.plan.role_tiles import OperandRows, ResultShape, RoleProblem, exchanged_problem, may_be_exchanged, width_step
from treadle.plan.small_m import (
    MOST_ROWS,
    SmallShape,
    reading_clocks,
    stream_clocks,
    stream_refusal,
    stream_tile,
    swapped_clocks,
    swapped_tile,
)
from treadle.plan.split_tiles import SplitProblem, best_split_tile, split_tile_seconds, split_tiles
from treadle.plan.tile_config import ContractionShape, ContractionTypes, TileProblem
from treadle.records import dataclass, replace

LEAST_STAGES: Final = 4
"""Of the longest that rings have, in a contraction's part: a shorter one is gone before its pipeline is full."""
LEAST_STEPS: Final = 8
"""The same of steps in the vector units."""


class Choice(NamedTuple):
    """A way to compute a contraction: its modelled time, the elements of the tile that those hold who would merge its parts, and its
    tiles. `clustered`: the time where the workgroups of a cluster merge them, infinite where they cannot.
    """

    seconds: float
    elements: int
    tiles: int
    clustered: float


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
        return _pieces(self.lying_rows if to_split else self.copied_rows, (self.a_bytes, self.b_bytes), spec)

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

    def shortest(self, spec: TargetSpec) -> int:
        """The shortest part that is considered."""
        return (LEAST_STEPS * self.step(spec)) if self.multiplies_pieces(spec) else LEAST_STAGES * self.stage(spec)

    def step(self, spec: TargetSpec) -> int:
        """What parts of known length are multiples of: a slot's row in a ring, or a step of what the vector units multiply, so that the
        longest part is hardly longer than the others; a stage where no descriptors bring the operands.
        """
        if spec.bulk_tensor is None:
            return self.stage(spec)
        row_bytes = ROW_BYTES if self.multiplies_pieces(spec) else spec.slot_row_bytes
        return max(MICRO_TILE, row_bytes // self.types.operand_bytes)


@lru_cache(maxsize=256)
def _pieces(rows: tuple[int, int], sizes: tuple[int, int], spec: TargetSpec) -> tuple[int, int] | None:
    queue, rules = spec.queue_for("copy_in"), spec.bulk_tensor
    found: list[int] = []
    for apart, size in zip(rows, sizes, strict=True):
        aligned = next((width for width in queue.piece_bytes if width <= apart), 0) if queue is not None else 0
        width = aligned or (size if queue is not None and queue.shifts else 0)
        if not apart or rules is None or (apart < rules.pitch_align_bytes and not width):
            return None
        found.append(0 if apart >= rules.pitch_align_bytes else width)
    return found[0], found[1]


def _has_small(problem: SplitContraction, shape: ContractionShape) -> bool:
    """Whether forms for a small side may compute a contraction."""
    few = min(shape.m or 0, shape.n or 0)
    return few <= MOST_ROWS and not problem.is_windowed and shape.root_count == 1 and problem.types.accumulator in ("f32", "i32", "f64")


def _least_of_small(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> float:
    """Seconds that these take at least: those of the large operand."""
    m, n = shape.m or 0, shape.n or 0
    many, size = (n, problem.b_bytes) if m <= n else (m, problem.a_bytes)
    return seconds(reading_clocks((shape.batch or 1) * many * (shape.k or 1) * size, spec), spec)


def _small_choices(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec, enough: float = inf) -> Iterator[Choice]:
    """The choices of forms for a small side, but for those that are sure to take longer than `enough`."""
    if not _has_small(problem, shape) or _least_of_small(problem, shape, spec) > enough:
        return
    m, n = shape.m or 0, shape.n or 0
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
        result_bytes=problem.partial_bytes,
        takes_turns=shape == problem.shape,
    )
    if stream_refusal(small_shape) is None and (tile := stream_tile(small_shape, spec)) is not None:
        yield Choice(seconds(stream_clocks(tile, small_shape, spec), spec), tile.few * tile.many, 0, inf)
    swaps = problem.types.instruction != "fma" and problem.by_descriptor(spec)
    # Parts that differ in length are whole steps of one span, and may be no whole steps of two.
    span = 0 if are_alike(problem, shape) else spec.slot_row_bytes // sizes[large]
    if swaps and (swapped := swapped_tile(spec.instruction(problem.types.instruction), small_shape, spec, k=span)) is not None:
        tiles, unwritten = small_shape.batch * -(-many // swapped.step), replace(small_shape, result_bytes=0)
        time, merged = (seconds(swapped_clocks(swapped, each, spec), spec) for each in (small_shape, unwritten))
        yield Choice(time, swapped.rows * swapped.few, tiles, merged if swapped.step == swapped.rows else inf)


def are_alike(problem: SplitContraction, shape: ContractionShape) -> bool:
    """Whether parts, `shape` all of them in one batch, are of one length: only then may their workgroups compute several tiles."""
    return (shape.batch or 1) // (problem.shape.batch or 1) * (shape.k or 0) == problem.shape.k


def moved_bytes(problem: SplitContraction, shape: ContractionShape) -> int:
    """Bytes of the operands and of the results of a contraction's parts, `shape` all of them in one batch."""
    batch, m, n, k = shape.batch or 1, shape.m or 1, shape.n or 1, shape.k or 1
    return batch * (k * (m * problem.a_bytes + n * problem.b_bytes) + m * n * problem.partial_bytes)


def least_seconds(problem: SplitContraction, spec: TargetSpec) -> float:
    """Seconds that a contraction of known sizes takes at least, in whatever form and parts: those of its operands and of its products, by
    sizes alone.
    """
    shape, types = problem.shape, problem.types
    batch, m, n, k = shape.batch or 1, shape.m or 1, shape.n or 1, shape.k or 1
    clocks, others = 0.0, problem.split or problem.is_windowed or problem.multiplies_pieces(spec)
    if types.instruction != "fma" and not others:
        # Of tiles of two widths, those of less than a step of columns count for less than they have.
        fewest = (1 - 1 / MOST_NARROWER) * min(1.0, spec.rates.roles.tall_factor)
        clocks = fewest * batch * m * n * k / (spec.compute_units * spec.macs_per_clock(spec.instruction(types.instruction)))
    found = bounded_seconds(clocks, batch * k * (m * problem.a_bytes + n * problem.b_bytes), spec)
    return min(found, _least_of_small(problem, shape, spec)) if _has_small(problem, shape) else found


@lru_cache(maxsize=16)
def role_costs(problem: SplitContraction, spec: TargetSpec) -> "RoleCosts":
    """The models of role kernels for a contraction, those of another k where it was asked for lately: steps cost the same."""
    return RoleCosts(problem, spec)


class RoleCosts:
    """Modelled clocks of the tiles of role kernels for a contraction and for its parts, in which steps cost the same, whatever k is."""

    def __init__(self, problem: SplitContraction, spec: TargetSpec) -> None:
        self._problem, self._spec = problem, spec
        self._pieces = None if problem.types.instruction == "fma" else problem.piece_bytes(spec)
        self._models: list[RoleSearch] = []
        self._of_parts: dict[int, RoleSearch] = {}
        self._found: dict[tuple[int | None, int | None, bool, bool], list[RoleSearch]] = {}
        self._wholes: dict[int | None, float] = {}
        self._tile_clocks: float | None = None

    def of(self, shape: ContractionShape, *, is_whole: bool = False, alike: bool = True) -> list[RoleSearch]:
        """The models of a contraction, and of one with exchanged operands; none where there are none. Parts that are not `alike` in length
        take no turns.
        """
        if self._pieces is None:
            return []
        key = (shape.batch, shape.k, is_whole, alike)
        if (found := self._found.get(key)) is None:
            if not self._models:
                self._models.append(RoleSearch(_role_problem(self._problem, self._pieces, self._spec), self._spec))
            both = self._may_exchange(shape, is_whole=is_whole)
            if both and len(self._models) == 1:
                known, spec = self._models[0].problem, self._spec
                self._models.append(RoleSearch(exchanged_problem(known, _width_step(known, 0, known.shape, spec)), spec))
            lying = (shape, shape.exchanged) if both else (shape,)
            problems = [
                _lying(model.problem, each, self._spec, is_plain=is_whole, takes_turns=alike)
                for model, each in zip(self._models, lying, strict=False)
            ]
            found = self._found[key] = [self._model(at, problem).of(problem) for at, problem in enumerate(problems)]
        return found

    def _model(self, at: int, problem: RoleProblem) -> RoleSearch:
        """The model of the contraction, or of the one with exchanged operands, for all with as many batches: one, or more."""
        if (problem.shape.batch or 1) == 1:
            return self._models[at]
        if (found := self._of_parts.get(at)) is None:
            found = self._of_parts[at] = RoleSearch(problem, self._spec)
        return found

    def _may_exchange(self, shape: ContractionShape, *, is_whole: bool) -> bool:
        if any(self._pieces or ()) or (self._problem.is_windowed and not is_whole) or shape.root_count > 1:
            return False
        return may_be_exchanged(shape, self._models[0].problem.operands, self._spec)

    def whole_seconds(self, problem: SplitContraction, enough: float = inf) -> float:
        """The time of the fastest kernel form for the contraction with some k, not split; infinite where it is sure to be more than
        `enough`.
        """
        if (found := self._wholes.get(problem.shape.k)) is None:
            found = _whole_seconds(problem, self, self._spec, enough)
            if found < inf:
                self._wholes[problem.shape.k] = found
        return found

    def least_of_tiles(self, shape: ContractionShape, moved: int) -> float:
        """Seconds that kernels of plain tiles take at least which move so many bytes."""
        problem, spec = self._problem, self._spec
        if self._tile_clocks is None:
            wanted = TileProblem(problem.types, problem.shape, spec, not problem.by_descriptor(spec), loads=problem.loads)
            others = problem.split or problem.multiplies_pieces(spec)
            self._tile_clocks = 0.0 if others else least_tile_clocks(wanted, problem.piece_bytes(spec) or (0, 0))
        return with_memory((shape.batch or 1) * (shape.k or 1) * self._tile_clocks, moved, spec)

    def least_of_one_tile(self, shape: ContractionShape) -> float:
        """Seconds that every one of `choices_of_one_tile` takes at least."""
        of_tiles = self.least_of_tiles(shape, moved_bytes(self._problem, shape))
        return min(of_tiles, _least_of_small(self._problem, shape, self._spec)) if _has_small(self._problem, shape) else of_tiles


def _whole_seconds(problem: SplitContraction, roles: RoleCosts, spec: TargetSpec, enough: float) -> float:
    shape = problem.shape
    moved, least = moved_bytes(problem, shape), inf
    clocks = bounding_clocks(enough, moved, spec)
    for model in roles.of(shape, is_whole=True):
        if (tile := model.best(enough=min(least, clocks))) is not None:
            least = min(least, model.cost(tile))
    found = bounded_seconds(least, moved, spec)
    others = choices_of_one_tile(problem, shape, spec, min(found, enough), roles.least_of_tiles(shape, moved))
    found = min([found, *(choice.seconds for choice in others)])
    return found if found <= enough else inf


def _role_problem(problem: SplitContraction, pieces: tuple[int, int], spec: TargetSpec) -> RoleProblem:
    """What tiles of role kernels are chosen for."""
    row, size, result = spec.instruction(problem.types.instruction), problem.types.operand_bytes, ResultShape(problem.partial_bytes, True)
    a, b = (OperandRows(along, min(rows, spec.line_bytes)) for along, rows in zip(problem.along_k, problem.copied_rows, strict=True))
    of_b = width_step(b, problem.shape.k, row, size, spec)
    return RoleProblem(row, problem.shape, size, (result,), of_b, piece_bytes=pieces, operands=(a, b))


def _lying(problem: RoleProblem, shape: ContractionShape, spec: TargetSpec, *, is_plain: bool, takes_turns: bool) -> RoleProblem:
    n_step = _width_step(problem, 1, shape, spec)
    return replace(problem, shape=shape, is_plain=is_plain, takes_turns=takes_turns, n_step=n_step)


def _width_step(problem: RoleProblem, which: int, shape: ContractionShape, spec: TargetSpec) -> int:
    """What widths must be a multiple of where A (0) or B (1) of a problem is B, and its shape is another one."""
    return width_step(problem.operands[which], shape.k, problem.row, problem.operand_bytes, spec)


def choices_of_one_tile(
    problem: SplitContraction, shape: ContractionShape, spec: TargetSpec, enough: float = inf, least: float = 0.0
) -> list[Choice]:
    """The choices of all forms but roles, whose workgroups take one tile each; those that are sure to take longer than `enough` may be
    missing. `least`: seconds that those of plain tiles take at least.
    """
    moved, types = moved_bytes(problem, shape), problem.types
    if least > enough:
        return list(_small_choices(problem, shape, spec, enough))
    row = None if types.instruction == "fma" else spec.instruction(types.instruction)
    if problem.multiplies_pieces(spec):
        sums = MultiplyAdds(types, shape, spec, problem.along_k, parts=True)
        tile = multiply_add_tiles(sums)[0]
        time = multiply_add_seconds(tile, sums, moved)
        return [Choice(time, tile.m * tile.n, shape.tiles(tile.m, tile.n), time), *_small_choices(problem, shape, spec, enough)]
    wanted = TileProblem(types, shape, spec, through_registers=not problem.by_descriptor(spec), loads=problem.loads)
    tile, pieces = best_tile(wanted, moved, problem.gathered), problem.piece_bytes(spec) or (0, 0)
    time = tile_seconds(tile, row, shape, types.operand_bytes, moved, spec, pieces, problem.gathered, problem.loads)
    found = [Choice(time, tile.m * tile.n, shape.tiles(tile.m, tile.n), time)]
    found += _small_choices(problem, shape, spec, enough)
    within = _within(problem, shape, spec)
    if within is not None and (best_split := best_split_tile(within, spec)) is not None:
        sides = (best_split.n, best_split.rows) if best_split.is_swapped else (best_split.rows, best_split.n)
        time = split_tile_seconds(best_split, within, moved, spec)
        found.append(Choice(time, best_split.m * best_split.n, shape.tiles(*sides), time))
    return found


def _within(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> SplitProblem | None:
    """The contraction for a kernel that splits f32 operands itself; None where that is not asked for, or no copies bring them."""
    pieces = problem.piece_bytes(spec, to_split=True)
    if pieces is None or not problem.split:
        return None
    split = IN_KERNEL[problem.split]
    row = spec.instructions_for(split.element, split.element, problem.types.accumulator)[0]
    return SplitProblem(split, row, shape, problem.along_k, pieces, problem.partial_bytes)


def split_tile_counts(problem: SplitContraction, shape: ContractionShape, spec: TargetSpec) -> set[int]:
    """How many tiles cover the result in kernels that split f32 operands themselves."""
    within = _within(problem, shape, spec)
    found = () if within is None else split_tiles(within, spec)
    return {shape.tiles(*((tile.n, tile.rows) if tile.is_swapped else (tile.rows, tile.n))) for tile in found}
