"""tiles: each workgroup computes tiles of a contraction, all its warps alike. Every contraction can be computed so."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from treadle.analysis.contraction_axes import reads_whole_tile
from treadle.analysis.kernel_problem import KernelProblem
from treadle.plan.form_times import best_tile, tile_seconds
from treadle.plan.long_steps import with_long_steps
from treadle.plan.multiply_add_tiles import (
    MultiplyAdds,
    last_tile,
    multiply_add_seconds,
    multiply_add_tiles,
    overlaps_ends,
    resident,
    spreads,
)
from treadle.plan.tile_config import (
    ContractionTile,
    ContractionTypes,
    TileProblem,
    candidate_tiles,
    resident_workgroups,
    tile_cost,
)
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms.contraction import (
    ContractionConfig,
    asked_tile,
    contraction_of,
    contraction_text,
    merging_seconds,
    merging_text,
)
from treadle.transforms.kernel.forms.form import Choice, Choices, Grid
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.contraction import build_contraction

NAME = "tiles"
KIND = "contraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ContractionConfig):
    """`workgroups`: how many take all tiles in turn, 0 for one a tile. `is_drained`: loops wait for their matrix instructions at the end of
    a step. `resident`: workgroups that are to share a unit, 0 for what registers come to. `spreads_copies`: copies by the threads are
    issued between the multiply-adds of a step (spread-copies).
    """

    form: ClassVar[str] = NAME
    workgroups: int = 0
    is_drained: bool = False
    resident: int = 0
    spreads_copies: bool = False

    def relieved(self, problem: KernelProblem) -> "Config":
        """Without iterations that overlap, and with all registers."""
        return replace(self, resident=0, spreads_copies=False, is_sequential=problem.overlaps, is_drained=problem.spec.async_matrix)


def refusal(problem: KernelProblem) -> str | None:
    """Nothing is refused."""
    return None


def multiply_adds(problem: KernelProblem) -> MultiplyAdds:
    """What tiles of multiply-adds are chosen for."""
    beside = any(reads_whole_tile(problem.nest, access) for access in problem.nest.accesses)
    a, b = problem.operands
    parts, along = bool(problem.nest.kernel.blocks), (a.along_k, b.along_k)
    in_groups = any(axis >= 0 and problem.nest.axes[axis].reach is not None for axis in problem.axes[:2])
    return MultiplyAdds(problem.types, problem.shape, problem.spec, along, beside, parts, problem.merges_parts, in_groups)


def tiles(problem: KernelProblem) -> Iterator[tuple[ContractionTile, ContractionTypes]]:
    """The tiles that are considered, the fastest first, each with long steps before short ones, and what each is computed in: the last goes
    without matrix instructions, on a tile that every machine holds.
    """
    shape, spec, types = problem.shape, problem.spec, problem.types
    beside = not problem.overrides.tile and any(reads_whole_tile(problem.nest, a) for a in problem.nest.accesses)
    if problem.multiplies_pieces and not problem.overrides.tile:
        sums = multiply_adds(problem)
        found = multiply_add_tiles(sums)
        lightest = min(found, key=lambda tile: tile.m * tile.n)
        yield from ((tile, types) for tile in (*found, *([lightest] if found[-1] != lightest else []), last_tile(sums)))
        return
    wanted = TileProblem(types, shape, spec, problem.is_crowded, problem.is_promoted, beside, problem.loads)
    best = best_tile(wanted, problem.memory_bytes, problem.gathered)
    if problem.overrides.tile:
        yield asked_tile(problem, best), types
        return

    def long_and_short(tile: ContractionTile) -> Iterator[tuple[ContractionTile, ContractionTypes]]:
        long = with_long_steps(tile, wanted, is_gathered=problem.gathered is not None)
        return ((one, types) for one in dict.fromkeys((long, tile)))

    yield from long_and_short(best)
    for tile in sorted((tile for tile in candidate_tiles(wanted) if tile != best), key=lambda tile: tile_cost(tile, wanted)):
        yield from long_and_short(tile)
    if types.instruction != "fma":
        plain = ContractionTypes(types.accumulator, types.accumulator, types.accumulator, "fma")
        yield min(candidate_tiles(TileProblem(plain, shape, spec)), key=lambda tile: tile.m * tile.n), plain


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    return Choices(_choices(problem))


def _choices(problem: KernelProblem) -> Iterator[Choice]:
    before: ContractionTile | None = None
    for tile, types in tiles(problem):
        is_shorter = before is not None and replace(tile, k=before.k) == before
        choice = _choice(problem, tile, types, is_light=is_shorter or types != problem.types)
        yield choice
        if isinstance(choice.config, Config) and choice.config.spreads_copies:
            # Addresses of copies among multiply-adds are there with all that those need.
            yield replace(choice, config=replace(choice.config, spreads_copies=False), is_light=True)
        before = tile


def _choice(problem: KernelProblem, tile: ContractionTile, types: ContractionTypes, *, is_light: bool) -> Choice:
    spec, takes_turns = problem.spec, problem.overrides.persistent == "always" and problem.may_take_turns
    is_promoted = problem.is_promoted and (bool(problem.kind.scales) or types.instruction != "fma")
    config = Config(
        axes=problem.axes,
        tile=(tile.m, tile.n, tile.k),
        warps=(tile.warps_m, tile.warps_n),
        instruction=types.instruction,
        a_type=types.a,
        b_type=types.b,
        accumulator_type=types.accumulator,
        group_m=problem.overrides.group_m or tile.group,
        is_promoted=is_promoted,
        parts_together=problem.parts_together(tile.m) if problem.axes[0] >= 0 else 1,
        workgroups=resident_workgroups(tile, problem.shape, spec) * spec.compute_units if takes_turns else 0,
    )
    row = None if types.instruction == "fma" else spec.instruction(types.instruction)
    text = contraction_text(problem, tile, types, is_promoted=is_promoted) + merging_text(problem, config)
    merging = merging_seconds(problem, tile.m * tile.n, config.parts_together)
    if problem.multiplies_pieces:
        sums = multiply_adds(problem)
        shared = resident(tile, sums)
        spread, overlaps = spreads(tile, sums), overlaps_ends(tile, sums)
        config = replace(config, resident=shared if shared > 1 else 0, spreads_copies=spread, overlaps_ends=(0, 1) if overlaps else ())
        return Choice(config, multiply_add_seconds(tile, sums, problem.memory_bytes) + merging, text, tile.m * tile.n / tile.num_warps)
    pieces, gathered = problem.copies.piece_bytes, problem.gathered
    size, moved = types.operand_bytes, problem.memory_bytes
    seconds = tile_seconds(tile, row, problem.shape, size, moved, spec, pieces, gathered, problem.loads, problem.results)
    return Choice(config, seconds + merging, text, tile.m * tile.n / tile.num_warps, is_light)


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    return build_contraction(kernel, contraction_of(kernel), config, workgroups=config.workgroups)
