"""Tiles of contractions in the vector units whose operands the threads' copies bring: what is considered, and what it is modelled to take.

A thread's accumulators are `rows` x `columns`; of each k it reads as many elements of A and of B, and the fewer the accumulators, the
more of the unit's clocks go to these reads. Few warps leave clocks unused, for nothing else hides what one waits for.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from treadle.machine.spec import TargetSpec
from treadle.plan.contract_layouts import MICRO_TILE
from treadle.plan.form_times import BOTH, with_memory
from treadle.plan.part_merges import ELEMENTS_AT_ONCE
from treadle.plan.pipeline_depth import DEEP
from treadle.plan.small_m import limited
from treadle.plan.tile_config import ContractionShape, ContractionTile, ContractionTypes, is_whole, most_threads
from treadle.records import dataclass, replace

GRIDS = (
    (256, 128, 4, 2),
    (128, 256, 2, 4),
    (128, 128, 2, 2),
    (128, 128, 4, 2),
    (128, 64, 2, 1),
    (64, 128, 1, 2),
    (128, 64, 4, 1),
    (64, 128, 2, 2),
    (64, 160, 2, 2),
    (32, 128, 1, 2),
    (128, 32, 2, 1),
    (96, 96, 2, 2),
    (96, 64, 2, 1),
    (64, 96, 1, 2),
    (64, 64, 2, 1),
    (64, 64, 2, 2),
    (32, 64, 2, 1),
    (64, 32, 2, 1),
    (32, 32, 2, 1),
)
"""m, n, and warps along both."""
LAST = (32, 32, 2, 2)
"""The same of what is tried where the machine's tools reject the lightest of these: half as many accumulators and elements of what is
computed of them at once.
"""
ROW_BYTES = 64
"""Of a step along k: more steps meet less often, and take more of shared memory."""
BESIDE = 32
"""Registers of a thread beside accumulators and two k of operands."""
RAGGED, RAGGED_STEP, OVERLAPPING = 20, 8, 12
"""More for each side along which tiles stick out of the result, and where steps are not whole: what each copy has to compare; and where the
last tiles begin earlier: where they begin, and what is stored.
"""
UNKNOWN = 14
MATRIX = 16
"""More where only the runtime knows sizes, and where a matrix is read beside the operands, or other parts are."""
WAITING, TURNED_WAITING, HIDING = 0.42, 0.02, 0.47
"""Clocks that one warp of a scheduler leaves unused for each that it fills, more for each operand that is turned, and how fast that falls
with the number of warps.
"""
COPY_INSTRUCTIONS, TURNED_CLOCKS = 8.3, 3.2
"""Of a thread for each element that it copies; of the path to shared memory for a warp's copy of an element a lane that is turned: rows of
a sector each, and where they go.
"""
FEW_ACCUMULATORS, CROWDED = 64, 0.07
"""Accumulators of a thread beyond which multiply-adds take longer, and by how much of their time: by the fit."""
PACE = 0.66
"""Of the clocks that all these come to.

These constants are fitted to 8 to 18 tilings each of 38 random shapes, of 4096^3 (nt and nn) and of 2048^3 (tn), whole and without copies
that turn operands (seeds 1 and 2, H200); of each shape to those that took less than 1.7 times as long as its fastest. `CROWDED` is by
which tile comes first, of 4096^3 with turned copies too: that took 1.015 times as long as the fastest, at the geometric mean, and times
were off by 9 % (standard deviation). Parts of long sums were not measured anew.
"""
SPREAD_ACCUMULATORS, SPREAD_STEPS = 64, 8
"""Accumulators of a thread that there are at least, to cover what is issued between them: with 32 and less such loops took up to 7 % longer
(4096^3 on an H200). Steps along k: a ring of four copies three steps too many, zeros all of them.
"""


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """What the tile is chosen for. `along_k`: A, and B, lie along k in memory, and are turned on their way. `beside`: a matrix is read
    besides the operands. `parts`: the kernel has parts of a longer reduction, and `merges` them. `in_groups`: rows or columns belong to
    groups of different sizes, each with tiles of its own.
    """

    types: ContractionTypes
    shape: ContractionShape
    spec: TargetSpec
    along_k: tuple[bool, bool] = (True, True)
    beside: bool = False
    parts: bool = False
    merges: bool = False
    in_groups: bool = False

    @property
    def words(self) -> int:
        """Registers of an accumulator."""
        return 2 if self.types.accumulator in ("f64", "i64") else 1


def multiplies_pieces(types: ContractionTypes, operands: Sequence[str], spec: TargetSpec) -> bool:
    """Whether the vector units multiply operands of these types as they are, and threads have copies for them."""
    queue = spec.queue_for("copy_in")
    copied = queue is not None and types.operand_bytes in queue.piece_bytes
    return copied and types.instruction == "fma" and tuple(operands) == (types.a, types.b)


def _sides(tile: ContractionTile, spec: TargetSpec) -> tuple[int, int]:
    """Rows and columns of a thread's accumulators."""
    along_m = 1 << (spec.subgroup_size.bit_length() - 1) // 2
    along_n = spec.subgroup_size // along_m
    return tile.m // (tile.warps_m * along_m), tile.n // (tile.warps_n * along_n)


def _sides_beyond(tile: ContractionTile, problem: MultiplyAdds) -> tuple[bool, bool]:
    """Whether tiles stick out of the result, or of a group, along m, and along n."""
    m, n = (
        problem.in_groups or size is None or (bool(size % extent) and not _may_overlap(size, extent, problem))
        for size, extent in ((problem.shape.m, tile.m), (problem.shape.n, tile.n))
    )
    return m, n


def _may_overlap(size: int, extent: int, problem: MultiplyAdds) -> bool:
    return size >= extent and not (problem.merges or problem.beside or problem.in_groups)


def overlaps_ends(tile: ContractionTile, problem: MultiplyAdds) -> bool:
    """Whether the last tiles begin earlier, so that they end with the result and no copy compares rows with its end: where a tile fits.
    Parts that a tile's workgroups merge are one tile's alone, and a matrix that is read besides may be the one that is written.
    """
    sides = ((problem.shape.m, tile.m), (problem.shape.n, tile.n))
    return any(size is not None and size % extent > 0 and _may_overlap(size, extent, problem) for size, extent in sides)


def registers(tile: ContractionTile, problem: MultiplyAdds) -> int:
    """Registers that a thread needs."""
    rows, columns = _sides(tile, problem.spec)
    unknown = problem.shape.n is None or problem.shape.k is None or problem.shape.m is None
    held = rows * columns * problem.shape.root_count + 2 * (rows + columns)
    wide = problem.spec.wide_integer_registers * (problem.types.accumulator == "i64")
    bounds = RAGGED * sum(_sides_beyond(tile, problem)) + RAGGED_STEP * (problem.parts or not is_whole(tile, problem.shape))
    bounds += OVERLAPPING * overlaps_ends(tile, problem)
    loop = problem.words * held + BESIDE + bounds + UNKNOWN * unknown + MATRIX * (problem.beside + problem.merges) + wide
    return max(loop, _merging_registers(tile, problem) if problem.merges else 0)


def _merging_registers(tile: ContractionTile, problem: MultiplyAdds) -> int:
    """What the last workgroup needs beside its accumulators that loads parts of a small tile together."""
    rows, columns = _sides(tile, problem.spec)
    together = ELEMENTS_AT_ONCE // tile.num_threads(problem.spec) if 2 * tile.m * tile.n <= ELEMENTS_AT_ONCE else 0
    return problem.words * (rows * columns + together) + BESIDE


def resident(tile: ContractionTile, problem: MultiplyAdds) -> int:
    """Workgroups that share a unit, as registers and shared memory allow."""
    spec, threads = problem.spec, tile.num_threads(problem.spec)
    granule = spec.register_granule
    each = -(-registers(tile, problem) // granule) * granule
    ring = DEEP * problem.shape.operand_rows(tile.m, tile.n) * tile.k * problem.types.operand_bytes
    warps = spec.registers_per_unit // spec.matrix_units // (spec.subgroup_size * each)  # of a scheduler, which has its part of them
    room = (warps * spec.matrix_units // tile.num_warps, spec.shared_bytes_per_unit // ring, spec.max_threads_per_unit // threads)
    return max(1, min(room))


def spreads(tile: ContractionTile, problem: MultiplyAdds) -> bool:
    """Whether copies are issued between the multiply-adds: where tiles stick out of the result as far as copies need not compare places for
    that, which spilled; not of such tiles with one warp along a side, which took longer then (seven of nine products, H200).
    """
    rows, columns = _sides(tile, problem.spec)
    beyond = _sides_beyond(tile, problem)
    if any(beyond) and (not _repeats_ends(beyond, problem) or min(tile.warps_m, tile.warps_n) < 2):
        return False
    if rows * columns * problem.shape.root_count < SPREAD_ACCUMULATORS:
        return False
    return problem.shape.extents[2] >= SPREAD_STEPS * tile.k


def _repeats_ends(beyond: tuple[bool, bool], problem: MultiplyAdds) -> bool:
    """Whether copies may fill rows behind the ends with the last one: of a known number, each of them apart from the others."""
    sizes = (problem.shape.m, problem.shape.n)
    each = zip(beyond, sizes, problem.along_k, strict=True)
    return not problem.in_groups and all(size is not None and is_along for is_beyond, size, is_along in each if is_beyond)


def _warp_clocks(tile: ContractionTile, problem: MultiplyAdds) -> float:
    """Clocks of a unit for one k of one warp, where others fill what it leaves: of the schedulers, or of the path to shared memory. Of two
    sides, lanes along one read the same, which takes half as long.
    """
    spec, words, threads = problem.spec, problem.words, tile.num_threads(problem.spec)
    rows, columns = _sides(tile, spec)
    sums = rows * columns * problem.shape.root_count
    counts = (1, problem.shape.root_count) if problem.shape.shared == "a" else (problem.shape.root_count, 1)
    copied = [count * side / threads for count, side in zip(counts, (tile.m, tile.n), strict=True)]
    turned, plain = (sum(each for each, is_along in zip(copied, problem.along_k, strict=True) if is_along is way) for way in (True, False))
    multiplied = sums * words * (1 + CROWDED * (sums > FEW_ACCUMULATORS))
    issued = multiplied + (rows + columns) * words / MICRO_TILE + COPY_INSTRUCTIONS * (turned + plain / MICRO_TILE)
    served = (rows / 2 + columns) * words + TURNED_CLOCKS * turned + words * plain
    return limited(issued / spec.matrix_units, served, BOTH)


def clocks(tile: ContractionTile, problem: MultiplyAdds) -> float:
    """Clocks of the busiest unit for all its tiles."""
    return _clocks(tile, _warp_clocks(tile, problem), resident(tile, problem), problem)


def _clocks(tile: ContractionTile, warp_clocks: float, together: int, problem: MultiplyAdds) -> float:
    spec, shape, each = problem.spec, problem.shape, warp_clocks * tile.num_warps
    waiting = WAITING + TURNED_WAITING * sum(problem.along_k)
    busiest = -(-shape.tiles(tile.m, tile.n) // spec.compute_units)
    total = 0.0
    for count in (together,) * (busiest // together) + (busiest % together,):
        # Where there are fewer warps than schedulers, one warp's clocks are the unit's.
        warps = max(count * tile.num_warps, spec.matrix_units if count else 0) / spec.matrix_units
        total += each * warps * spec.matrix_units / tile.num_warps * (1 + waiting / warps**HIDING) if count else 0.0
    return PACE * total * -(-shape.extents[2] // tile.k) * tile.k


def multiply_add_tiles(problem: MultiplyAdds) -> tuple[ContractionTile, ...]:
    """The tiles that are considered, the fastest first."""
    found = [(_clocks(tile, of_warp, together, problem), tile) for tile, of_warp, together in _held(_of_any_length(problem))]
    return tuple(tile for _, tile in sorted(found, key=lambda each: each[0]))


def last_tile(problem: MultiplyAdds) -> ContractionTile:
    """The tile of fewest registers, which is not modelled."""
    m, n, warps_m, warps_n = LAST
    return ContractionTile(m, n, _step(problem), warps_m, warps_n)


def _of_any_length(problem: MultiplyAdds) -> MultiplyAdds:
    """A problem with another batch and k, of which tiles take as many registers."""
    k, step = problem.shape.k, _step(problem)
    alike = None if k is None else step if k % step == 0 else 1
    return replace(problem, shape=replace(problem.shape, batch=None, k=alike))


@lru_cache(maxsize=64)
def _held(problem: MultiplyAdds) -> tuple[tuple[ContractionTile, float, int], ...]:
    """The tiles that registers hold, with a warp's clocks for one k and how many share a unit."""
    found = [tile for tile in _tiles(problem) if registers(tile, problem) <= problem.spec.fma_registers]
    return tuple((tile, _warp_clocks(tile, problem), resident(tile, problem)) for tile in found)


def _step(problem: MultiplyAdds) -> int:
    return max(ROW_BYTES // problem.types.operand_bytes, MICRO_TILE)


def _tiles(problem: MultiplyAdds) -> Iterator[ContractionTile]:
    for m, n, warps_m, warps_n in GRIDS:
        tile = ContractionTile(m, n, _step(problem), warps_m, warps_n)
        if tile.num_threads(problem.spec) <= most_threads(problem.spec):
            yield tile


def multiply_add_seconds(tile: ContractionTile, problem: MultiplyAdds, memory_bytes: float) -> float:
    """Modelled time of a kernel that reads and writes so many bytes of global memory."""
    spec = problem.spec
    rounds = -(-problem.shape.tiles(tile.m, tile.n) // spec.compute_units)
    ends = rounds * (spec.rates.roles.tile_overhead + tile.m * tile.n * spec.rates.roles.epilogue_clocks)
    return with_memory(clocks(tile, problem) + ends, memory_bytes, spec)
