"""Ways to tile a contraction, the best first, each with fewer registers than the one before: what is left where tools reject the best.

Pure functions over records. A candidate has at most half of the sums a thread of the one before (or as many, but no groups that take tiles
in turn), so that there are few, and the last is a small tile without matrix instructions, which every machine holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from treadle.machine.spec import TargetSpec
from treadle.plan.role_tiles import RoleProblem, RoleTile, role_cost, role_tile, role_tiles
from treadle.plan.tile_config import (
    ContractionShape,
    ContractionTile,
    ContractionTypes,
    candidate_tiles,
    contraction_cost,
    contraction_tile,
)


@dataclass(frozen=True, slots=True)
class TileProblem:
    """What tiles are chosen for. `roles`: the problem of a role kernel, None where none may be; the rest as for `contraction_tile`."""

    types: ContractionTypes
    shape: ContractionShape
    operand_bytes: int
    roles: RoleProblem | None = None
    through_registers: bool = False
    promoted: bool = False
    beside: bool = False


@dataclass(frozen=True, slots=True)
class TileCandidate:
    """A tile, with roles or without, and the types that it is computed in (other than the problem's where matrix instructions are left
    alone).
    """

    tile: ContractionTile
    types: ContractionTypes
    roles: RoleTile | None = None


def tile_candidates(problem: TileProblem, spec: TargetSpec) -> Iterator[TileCandidate]:
    """The candidates, best first; made as they are asked for."""
    limit: float = float("inf")
    for roles in _role_candidates(problem.roles, spec):
        yield TileCandidate(ContractionTile(roles.m, roles.n, roles.k, roles.warps, 1, roles.raster), problem.types, roles)
        limit = roles.m * roles.n / roles.warps / 2
    types = problem.types
    for tile in _plain_candidates(problem, spec, limit):
        yield TileCandidate(tile, types)
        limit = tile.m * tile.n / tile.num_warps / 2
    if types.instruction != "fma":
        widened = ContractionTypes(types.accumulator, types.accumulator, types.accumulator, "fma")
        tiles = candidate_tiles(widened, problem.shape, spec, 4)
        yield TileCandidate(min(tiles, key=lambda tile: tile.m * tile.n), widened)


def _role_candidates(problem: RoleProblem | None, spec: TargetSpec) -> Iterator[RoleTile]:
    best = None if problem is None else role_tile(problem, spec)
    if problem is None or best is None:
        return
    yield best
    others = [tile for tile in role_tiles(problem, spec) if 2 * tile.m * tile.n <= best.m * best.n or _is_simpler(tile, best)]
    yield from sorted(others, key=lambda tile: role_cost(tile, problem, spec))[:1]


def _is_simpler(tile: RoleTile, best: RoleTile) -> bool:
    """Whether a tile of no more sums goes without groups that take tiles in turn."""
    return tile.turns < best.turns and tile.m * tile.n <= best.m * best.n


def _plain_candidates(problem: TileProblem, spec: TargetSpec, limit: float) -> Iterator[ContractionTile]:
    """Tiles without roles that have at most `limit` sums a warp, each at most half of those before."""
    how = {"through_registers": problem.through_registers, "promoted": problem.promoted, "beside": problem.beside}
    if limit == float("inf"):
        best = contraction_tile(problem.types, problem.shape, spec, problem.operand_bytes, **how)
        yield best
        limit = best.m * best.n / best.num_warps / 2
    tiles = candidate_tiles(problem.types, problem.shape, spec, problem.operand_bytes, **how)
    while tiles := [tile for tile in tiles if tile.m * tile.n / tile.num_warps <= limit]:
        best = min(tiles, key=lambda tile: contraction_cost(tile, problem.shape, spec))
        yield best
        limit = best.m * best.n / best.num_warps / 2


def nth_candidate(problem: TileProblem, spec: TargetSpec, number: int, *, pipelined: bool) -> tuple[TileCandidate, bool]:
    """The candidate of a number (behind the last: the last), and whether it goes without a pipeline. `pipelined`: one is the compiler's
    choice, so that it goes first and the tile stays.
    """
    is_sequential = pipelined and number > 0
    found = list(islice(tile_candidates(problem, spec), number + (0 if is_sequential else 1)))
    return found[-1], is_sequential
