"""What is left out of a search for a tile is never the best: no tile takes less than is told of it."""

import random
from math import inf

import pytest

from treadle.machine import target_spec
from treadle.plan.role_forms import has_turns, held_forms, tiles_of
from treadle.plan.role_search import RoleSearch
from treadle.plan.role_tiles import OperandRows, ResultShape, RoleProblem, RoleTile
from treadle.plan.small_m import SLACK
from treadle.plan.tile_config import ContractionShape

SPEC = target_spec("sm_90a")
PROBLEMS = 40


def drawn_problem(draw: random.Random) -> RoleProblem:
    """Odd sizes first; results that the threads store, operands that they copy, parts, batches, several roots, groups of rows."""
    step, least = draw.choice((1, 1, 8, 64)), draw.choice((4, 11))
    m, n, k = (-(-round(2 ** draw.uniform(least, 14)) // step) * step for _ in range(3))
    rows = tuple(OperandRows(draw.choice((True, False)), draw.choice((2, 16, 32, 64, 128))) for _ in "ab")
    parts, groups = draw.choice((1, 1, 2, 3, 8)), draw.random() < 0.1
    shape = ContractionShape(
        draw.choice((1, 1, 3)) * parts,
        m,
        n,
        k,
        draw.choice((1, 1, 1, 2)),
        groups_m=tuple(sorted(draw.randint(1, m) for _ in range(5))) if groups else (),
    )
    merges = parts > 1 and draw.choice((True, False))
    return RoleProblem(
        SPEC.instruction("wgmma_m64k16_f32_bf16_bf16"),
        shape,
        2,
        (ResultShape(draw.choice((2, 4)), draw.choice((True, True, False)), pitch_bytes=draw.choice((2, 16, 128))),),
        draw.choice((8, 64)),
        promoted=draw.random() < 0.1,
        is_plain=draw.choice((True, False)),
        is_light=draw.choice((False, True)),
        may_be_deferred=draw.choice((True, True, False)),
        piece_bytes=draw.choice(((0, 0), (0, 0), (2, 0), (0, 4))),
        operands=(rows[0], rows[1]),
        takes_turns=parts == 1 or draw.choice((True, False)),
        parts=parts,
        in_cluster=merges and draw.choice((True, False)),
        in_turn=merges and draw.choice((True, False)),
        overlaps=(draw.choice((True, False)), draw.choice((True, False))),
    )


def classes(tiles: tuple[RoleTile, ...]) -> list[tuple[RoleTile, ...]]:
    """A form's tiles alone, in clusters, and with narrower ones beside."""
    alone = tuple(tile for tile in tiles if tile.cluster == 1 and not tile.tail_tile_n)
    return [alone, tuple(tile for tile in tiles if tile.cluster > 1), tuple(tile for tile in tiles if tile.tail_tile_n)]


@pytest.mark.parametrize("seed", range(4))
def test_no_tile_takes_less_than_is_told_of_it(seed: int) -> None:
    draw, seen = random.Random(seed), [0, 0, 0]
    for _ in range(PROBLEMS):
        problem = drawn_problem(draw)
        model = RoleSearch(problem, SPEC)
        of_any = {form: bound for bound, _, _, form in model._bounded()[1]}
        for form in held_forms(problem, SPEC):
            if not has_turns(form, problem, SPEC):
                continue
            tiles, (alone, *together, narrower) = tiles_of(form, problem, SPEC), model._least_of(form, inf)
            bounds = (alone, min(together, default=inf), narrower)
            for number, (each, bound) in enumerate(zip(classes(tiles), bounds, strict=True)):
                least = min(map(model.cost, each), default=inf) * (1 + SLACK)
                assert max(bound, of_any[form]) <= least, (problem, form, number)
                seen[number] += least < inf
            own = {each for which in range(len(together) + 2) for each in (model._tiles(tiles[0], which) if tiles else ())}
            assert own == set(tiles), "the search builds the same tiles"
    assert min(seen) > 0, "there are tiles of each kind"


@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_the_first_of_the_best_tiles(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(PROBLEMS):
        problem = drawn_problem(draw)
        costs = RoleSearch(problem, SPEC).costs()
        assert RoleSearch(problem, SPEC).best() == min(costs, key=lambda tile: costs[tile], default=None)
