"""Choosing the tile of a kernel whose copying and computing go to different warps: candidates, a model of their time, the best.

The model counts clocks of one compute unit. Its constants are fitted to 38 measured pairs of shape and tile on an H200 (bf16, 17 to 1100
GFLOP): the ratio to the 128 x 256 tile came out within 2.1 % (mean square).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.tile_config import PROMOTED_REGISTERS, UNKNOWN_EXTENT, ContractionShape

L2_BYTES_PER_CLOCK = 62
"""What one compute unit gets out of the L2 cache when all ask."""
ROLE_MARGIN_BYTES = 2048
"""Shared memory of role kernels that is kept for barriers and alignment."""
TILE_OVERHEAD = 200
"""Clocks of a tile outside its loop, whatever its size."""
EPILOGUE_CLOCKS = 0.01
"""Clocks of an element of the result on its way out, for a workgroup."""
LAUNCH_OVERHEAD = 12000
"""Clocks of a kernel before its first step and after its last store."""
TALL_FACTOR = 1.03
"""Matrix time where a group has more rows than an instruction: the other operand is read from shared memory for each of them, and its tile
leaves room for few slots.
"""
UNEVEN_FACTOR = 1.015
"""The same where rows of the result are no whole number of the widest boxes."""
SHALLOW_FACTOR = 1.01
"""The same for rings of two slots."""
TRAFFIC_FACTOR = 0.09
"""How much slower the matrix units go for each part of operand traffic beyond that of 128 x 256 tiles: clocks follow power."""
TURN_OVERHEAD = 250
"""Clocks between the loops of two groups that take tiles in turn."""
DEEPEST_RING = 8
RASTERS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class RoleTile:
    """A persistent kernel of roles: `groups` computing groups with a tile of `m` x `n` each (neighbours along m), `slots` of `k` in the
    ring.

    `turns`: sets of such groups that take tiles in turn, one's epilogue under another's loop. `pending`: groups of matrix instructions in
    flight while the next slot is waited for. `raster`: rows of tiles walked together. `late`: a tile's results leave under the next one's
    first steps. `cluster`: workgroups, neighbours along m, that fetch the operand they share once.
    """

    m: int
    n: int
    k: int
    warps: int
    groups: int
    slots: int
    turns: int = 1
    pending: int = 0
    raster: int = 8
    late: bool = False
    cluster: int = 1

    @property
    def rows(self) -> int:
        """Rows of the tile that all groups of one turn compute."""
        return self.m * self.groups


@dataclass(frozen=True, slots=True)
class ResultShape:
    """A whole tile that a kernel writes (or reads beside its operands): bytes of an element, and whether descriptor copies carry it.

    `may_stay`: it is read, so whether it passes through shared memory is known only when layouts are.
    """

    element_bytes: int
    in_bulk: bool
    may_stay: bool = False


def box_widths(columns: int, element_bytes: int, swizzles: Sequence[int]) -> tuple[int, ...] | None:
    """The boxes that rows of `columns` elements leave in, widest first; None where they do not fit swizzles (bytes, widest first)."""
    found: list[int] = []
    left = columns * element_bytes
    for width in swizzles:
        found += [width // element_bytes] * (left // width)
        left %= width
    return None if left else tuple(found)


def box_buffers(boxes: int) -> int:
    """Buffers that boxes take in turn: one is filled while the one before leaves."""
    return min(2, boxes)


def staging_bytes(results: Sequence[ResultShape], m: int, n: int, swizzles: Sequence[int]) -> int:
    """Shared memory a group needs to bring tiles of all these out: buffers that boxes of one shape take in turn, or the whole tile on its
    way to the threads.
    """
    counts: dict[tuple[int, int], int] = {}
    total = 0
    for result in results:
        size = result.element_bytes
        widths = box_widths(n, size, swizzles) if result.in_bulk else None
        if widths is None:
            total += m * n * size
        for width in widths or ():
            counts[size, width] = counts.get((size, width), 0) + 1
    return total + sum(box_buffers(count) * m * width * size for (size, width), count in counts.items())


@dataclass(frozen=True, slots=True)
class RoleProblem:
    """What a tile is chosen for. `results`: tiles beside the operands. `n_step`: what widths must be a multiple of.

    `promoted`: sums are held twice. `is_plain`: sums leave as they are, but for a cast. `heavy`: clocks of arithmetic on an element of the
    result, for a workgroup of two groups.
    """

    row: MatrixInstruction
    shape: ContractionShape
    operand_bytes: int
    results: tuple[ResultShape, ...]
    n_step: int = 8
    promoted: bool = False
    is_plain: bool = True
    heavy: float = 0.0


MOST_SUMS = 128
"""Registers of sums a thread may hold beside an epilogue."""
MOST_PLAIN_SUMS = 192
"""The same where the result leaves as it is."""


def _forms(problem: RoleProblem, spec: TargetSpec) -> Iterator[RoleTile]:
    """Shapes of tiles that the registers allow, rings not yet."""
    row, k = problem.row, 128 // problem.operand_bytes
    threads = row.warps * spec.subgroup_size
    for m, groups, turns in ((row.m, 2, 1), (2 * row.m, 2, 1), (row.m, 1, 1), (row.m, 1, 2), (2 * row.m, 1, 2)):
        for n in range(row.n, 31, -16):
            sums = m * n * problem.shape.sums // threads
            if n % row.n_step or n % problem.n_step or sums > (MOST_PLAIN_SUMS if m > row.m and problem.is_plain else MOST_SUMS):
                continue
            if problem.promoted and 2 * sums > PROMOTED_REGISTERS:
                continue
            yield RoleTile(m, n, k, row.warps, groups, 0, turns, int(turns > 1))


def role_tiles(problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """Tiles of role kernels that fit registers and shared memory, with as deep a ring as does (at most 8 slots, made fewer where tiles
    read need room).
    """
    found: list[RoleTile] = []
    room = spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES
    swizzles = spec.bulk_tensor.swizzle_bytes if spec.bulk_tensor is not None else ()
    for form in _forms(problem, spec):
        consumers = form.groups * form.turns
        staging = consumers * staging_bytes([r for r in problem.results if not r.may_stay], form.m, form.n, swizzles)
        at_most = consumers * staging_bytes(problem.results, form.m, form.n, swizzles)
        slot = problem.shape.operand_rows(form.rows, form.n) * form.k * problem.operand_bytes
        slots = min(DEEPEST_RING, (room - staging) // slot)
        if (room - at_most) // slot >= 2 and slots >= 3 - (form.n > 64):
            found.append(replace(form, slots=slots, raster=raster(form, problem.shape, spec)))
    return tuple(found)


def raster(tile: RoleTile, shape: ContractionShape, spec: TargetSpec) -> int:
    """Rows of tiles walked together, so that the tiles computed at one time read the fewest different rows of operands."""
    count_m = -(-(shape.m or UNKNOWN_EXTENT) // tile.rows)

    def footprint(rows: int) -> int:
        together = min(rows, count_m)
        return shape.operand_rows(together * tile.rows, -(-spec.compute_units // together) * tile.n)

    return min(RASTERS, key=lambda rows: (footprint(rows), rows))


def may_cluster(tile: RoleTile, rows_together: int, shape: ContractionShape) -> bool:
    """Whether `tile.cluster` workgroups with consecutive tiles always share columns: tiles are walked along m in whole clusters."""
    if tile.cluster == 1 or shape.m is None or not tile.rows:
        return False
    count_m = -(-shape.m // tile.rows)
    return count_m % tile.cluster == 0 and (rows_together % tile.cluster == 0 or count_m <= rows_together)


def role_cost(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> float:
    """Modelled clocks of the kernel."""
    shape = problem.shape
    m, n, k = (s or UNKNOWN_EXTENT for s in (shape.m, shape.n, shape.k))
    tiles = (shape.batch or 1) * -(-m // tile.rows) * -(-n // tile.n)
    rounds = -(-tiles // spec.compute_units)
    # 2048 multiply-adds of 16-bit operands a clock, more of narrower ones.
    matrix = tile.rows * tile.n * shape.sums * tile.k * problem.operand_bytes / 2 / 2048
    matrix *= (
        (TALL_FACTOR if tile.m > problem.row.m else 1) * (UNEVEN_FACTOR if tile.n % 64 else 1) * (SHALLOW_FACTOR if tile.slots < 3 else 1)
    )
    least = (128 + 256) / (128 * 256)
    matrix *= 1 + TRAFFIC_FACTOR * (shape.operand_rows(tile.rows, tile.n) / (tile.rows * tile.n * shape.sums) / least - 1)
    cache = shape.operand_rows(tile.rows, tile.n) * tile.k * problem.operand_bytes / L2_BYTES_PER_CLOCK
    loop = -(-k // tile.k) * max(matrix, cache)
    elements = tile.rows * tile.n * max(1, len(problem.results))
    epilogue = elements * (EPILOGUE_CLOCKS + problem.heavy * 2 / tile.groups)
    if tile.turns > 1:
        # An epilogue may take as long as the others' loops; the last one is not hidden.
        return LAUNCH_OVERHEAD + rounds * max(loop + TURN_OVERHEAD, (loop + epilogue) / tile.turns) + TILE_OVERHEAD + epilogue
    return LAUNCH_OVERHEAD + rounds * (loop + TILE_OVERHEAD + epilogue)


def role_tile(problem: RoleProblem, spec: TargetSpec) -> RoleTile | None:
    """The candidate of least modelled cost, of equals the first; None where none fits. Turns are left to tuning."""
    return min(
        (tile for tile in role_tiles(problem, spec) if tile.turns == 1), key=lambda tile: role_cost(tile, problem, spec), default=None
    )
