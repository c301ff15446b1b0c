"""Forms of tiles of role kernels: their extents and groups of warps, as registers allow (`role_tiles.py` gives them rings and clusters)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.part_merges import PAIR, clustered_units
from treadle.plan.role_clusters import in_clusters
from treadle.plan.role_tiles import DEEPEST_RING, MANY_GROUPS, RoleProblem, RoleTile, box_widths, ringed, with_narrower
from treadle.plan.tile_config import PROMOTED_REGISTERS, ContractionShape

PING_PONG_STEP = 64
"""Widths of tiles in ping-pong: others were never the best of those measured."""
MAX_ACCUMULATOR_REGISTERS = 128
"""Registers of accumulators a thread may hold beside an epilogue."""
MAX_CROWDED_ACCUMULATOR_REGISTERS = 96
"""The same where runtime sizes are copied by threads."""
MAX_PLAIN_ACCUMULATOR_REGISTERS = 192
"""The same where the result leaves as it is, in ping-pong or from groups with more rows than the instruction; and in ping-pong, where its
boxes are computed one behind the other, each of its part of what is read.
"""
WIDTH_STEP, FINE_STEP = 16, 8
"""Widths of tiles: all multiples of the first, those of the second where they cover the result closely (see `close_widths`)."""
LEAST_WIDTH = 32
"""The narrowest tiles."""
MOST_GROUPS, WHOLE_ROUNDS = 4, 2
"""Rows of tiles, in those of an instruction, and rounds that tiles are made as wide for as all can begin in."""
LEAST_STEPS = 16
"""Along k that they have: with fewer, such tiles took 1.04 of the time of wider ones (6 products), with more 0.96 (16), on an H200."""
BOX_COLUMNS, CROWDED_BOXES = 64, 56
"""Columns that leave in one box, and what is left of them that leaves in boxes of three widths more: beside the accumulators of two
instructions' rows registers do not hold the places of all of these (120 and 184 columns do not compile, the other odd multiples of 8
from 72 to 168 do).
"""
MANY_GROUPS_STEP = 32
"""Widths of their tiles."""
BESIDE_PROMOTED, BESIDE_PLAIN, BESIDE = 24, 56, 72
"""Registers of a thread beside its accumulators: where they are held twice, where they leave as they are, and beside an epilogue."""


def _left_registers(problem: RoleProblem, groups: int, spec: TargetSpec) -> int:
    """Registers for accumulators that so many groups of consumers leave one another beside the producer."""
    moves = spec.register_moves
    if moves is None:
        return 0
    splits = moves.shift_split if any(problem.piece_bytes) else moves.index_split if problem.is_crowded else moves.split
    computing = problem.row.warps * groups
    left = (spec.registers_at_start(computing + moves.warps) * (computing + moves.warps) - splits[0] * moves.warps) // computing
    beside = BESIDE_PROMOTED if problem.promoted else BESIDE_PLAIN if problem.is_plain else BESIDE
    return left // moves.granule * moves.granule - beside


def role_forms(problem: RoleProblem, spec: TargetSpec) -> Iterator[RoleTile]:
    """Shapes of tiles that the registers allow, whatever rings they may have (see `tiles_of`)."""
    return (form for form in held_forms(problem, spec) if has_turns(form, problem, spec))


def has_turns(form: RoleTile, problem: RoleProblem, spec: TargetSpec) -> bool:
    """Whether each set of groups has a tile: of two sets one would compute, the other wait for a tile that never comes."""
    return form.ping_pong == 1 or (problem.takes_turns and problem.shape.tiles(form.m, form.n) > spec.compute_units)


def close_widths(problem: RoleProblem, spec: TargetSpec) -> frozenset[int]:
    """Odd multiples of 8 that are worth a look as widths of tiles: the narrowest that cover the extent along n in so many tiles, where a
    multiple of 16 has to be wider, or in so many that all begin in one of the first rounds. None where rows of results would be no whole
    pieces of copies, the extent is not known, or threads copy the columns, which they do 16 at a time: half of that takes pieces of half
    the width.
    """
    shape, rules = problem.shape, spec.bulk_tensor
    if shape.n is None or problem.piece_bytes[1] or problem.row.n_step > FINE_STEP or problem.n_step > FINE_STEP or rules is None:
        return frozenset()
    if any(result.in_bulk and FINE_STEP * result.element_bytes % rules.base_align_bytes for result in problem.results):
        return frozenset()
    close = _close_widths(shape.groups_n or (shape.n,), problem.row.n)
    if shape.m is None or shape.groups_n or not has_many_steps(problem, spec):
        return close
    return close | _in_whole_rounds(shape, problem.row, spec)


def has_many_steps(problem: RoleProblem, spec: TargetSpec) -> bool:
    """Whether tiles that are as wide as to fill whole rounds have so many steps that they are worth it."""
    return problem.shape.extents[2] >= LEAST_STEPS * spec.slot_row_bytes // problem.operand_bytes


def _in_whole_rounds(shape: ContractionShape, row: MatrixInstruction, spec: TargetSpec) -> frozenset[int]:
    """The narrowest tiles with which all begin in so many rounds: of all units, or of those that clusters of four cover."""
    found = set[int]()
    for groups in range(1, MOST_GROUPS + 1):
        rows = shape.tiles_along_m(groups * row.m)
        for units in {spec.compute_units, clustered_units(PAIR * PAIR, spec)}:
            for most in (rounds * units // rows for rounds in range(1, WHOLE_ROUNDS + 1)):
                found.add(-(-(shape.n or 0) // most // FINE_STEP) * FINE_STEP if most else 0)
    return frozenset(found.intersection(_fine(row.n)))


@lru_cache(maxsize=256)
def _close_widths(sizes: tuple[int, ...], most: int) -> frozenset[int]:
    covered = {n: sum([-(-size // n) for size in sizes]) for n in range(LEAST_WIDTH, most + FINE_STEP, FINE_STEP)}
    return frozenset([n for n in _fine(most) if covered[n - FINE_STEP] > covered[n] == covered[n + FINE_STEP]])


def _fine(most: int) -> range:
    return range(LEAST_WIDTH + FINE_STEP, most, WIDTH_STEP)


def held_forms(problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """Shapes of tiles that the registers allow, however many tiles there are."""
    close = close_widths(problem, spec)
    return tuple(form for form in alike_forms(problem, spec) if form.n % WIDTH_STEP == 0 or form.n in close)


def alike_forms(problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """The same for problems with any extent along n."""
    row, m, roots = problem.row, problem.shape.m, problem.shape.root_count
    plain, light = problem.is_plain and problem.parts == 1, problem.is_light and problem.parts == 1
    shape = ContractionShape(None, m if m is None else 2 * row.m + (m > 2 * row.m), None, None, roots)
    pieces = (int(any(problem.piece_bytes)), 0)
    kind = problem.n_step, problem.promoted
    alike = RoleProblem(row, shape, problem.operand_bytes, (), *kind, is_plain=plain, is_light=light, piece_bytes=pieces)
    return _forms_alike(replace(alike, is_crowded=True) if problem.is_crowded else alike, spec)


@lru_cache(maxsize=64)
def _forms_alike(problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """The same for all problems that have these forms."""
    return tuple(_forms(problem, spec))


def _forms(problem: RoleProblem, spec: TargetSpec) -> Iterator[RoleTile]:
    row, k = problem.row, spec.slot_row_bytes // problem.operand_bytes
    threads = row.warps * spec.subgroup_size
    for m, warpgroups, sets in ((row.m, 2, 1), (2 * row.m, 2, 1), (row.m, 3, 1), (row.m, 1, 1), (row.m, 1, 2), (2 * row.m, 1, 2)):
        may_be_large = (problem.is_plain and (sets > 1 or m > row.m)) or (problem.is_light and sets > 1)
        most = MAX_PLAIN_ACCUMULATOR_REGISTERS if may_be_large else MAX_ACCUMULATOR_REGISTERS
        most = MAX_CROWDED_ACCUMULATOR_REGISTERS if problem.is_crowded else most
        if warpgroups >= MANY_GROUPS:
            rows = problem.shape.m
            most = 0 if rows is not None and rows <= 2 * m else min(most, _left_registers(problem, warpgroups, spec))
        for n in range(row.n, LEAST_WIDTH - 1, -FINE_STEP):
            accumulators = m * n * problem.shape.root_count // threads
            if n % row.n_step or n % problem.n_step or accumulators > most or (m > row.m and n % BOX_COLUMNS == CROWDED_BOXES):
                continue
            if n % (PING_PONG_STEP if sets > 1 else MANY_GROUPS_STEP if warpgroups >= MANY_GROUPS else 1):
                continue
            if problem.promoted and 2 * accumulators > (PROMOTED_REGISTERS if warpgroups < MANY_GROUPS else min(PROMOTED_REGISTERS, most)):
                continue
            yield RoleTile(m, n, k, row.warps, warpgroups, DEEPEST_RING, sets, int(sets > 1))


def leave_box_by_box(elements: int, threads: int) -> bool:
    """Whether accumulators of so many elements leave registers for what one box of the result is computed of, but not for several."""
    return elements > MAX_ACCUMULATOR_REGISTERS * threads


def waited_boxes(tile: RoleTile, problem: RoleProblem, spec: TargetSpec) -> int:
    """Boxes of a tile's result that are computed one behind the other, each of what is read when the one before has left."""
    if problem.is_plain or not problem.is_light or not leave_box_by_box(tile.m * tile.n, tile.warps * spec.subgroup_size):
        return 0
    rows = spec.bulk_tensor.box_bytes if spec.bulk_tensor is not None else ()
    return max(len(box_widths(tile.n, result.element_bytes, rows) or ()) for result in problem.results)


def tiles_of(form: RoleTile, problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """A form with a ring, behind it the same in clusters, and with narrower tiles beside it; none where it does not fit."""
    tile = ringed(form, problem, spec)
    return () if tile is None else (tile, *in_clusters(tile, problem, spec), *with_narrower(tile, problem, spec))


def role_tiles(problem: RoleProblem, spec: TargetSpec) -> tuple[RoleTile, ...]:
    """Tiles of role kernels that fit registers and shared memory. Of those whose parts clusters merge, such that all begin at once, if
    there are any.
    """
    found = [tile for form in role_forms(problem, spec) for tile in tiles_of(form, problem, spec)]
    if problem.in_cluster:
        most = clustered_units(problem.parts, spec)
        return tuple(tile for tile in found if problem.shape.tiles(tile.rows, tile.n) <= most) or tuple(found)
    return tuple(found)
