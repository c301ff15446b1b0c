"""Candidates of a contraction's tile: the best is the one that would be chosen alone, and each behind it needs fewer registers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.role_tiles import ResultShape, RoleProblem, role_tile
from treadle.plan.tile_candidates import TileProblem, nth_candidate, tile_candidates
from treadle.plan.tile_config import ContractionShape, contraction_tile, contraction_types

SIZES = st.one_of(st.none(), st.integers(0, 20_000))
TARGETS = st.sampled_from(["sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
TYPES = st.sampled_from(
    [("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"), ("i8", "i32"), ("i64", "i64"), ("f8E4M3FN", "f32")]
)
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "i64": 8, "f8E4M3FN": 1}


def problem_of(target: str, element: str, result: str, m: int | None, n: int | None, k: int | None, sums: int, roles: bool) -> TileProblem:
    spec = target_spec(target)
    types = contraction_types(spec, element, element, result, ("", ""), allow_tf32=False)
    shape = ContractionShape(1, m, n, k, sums)
    size = BYTES.get(types.a, 1)
    may = roles and types.instruction != "fma" and spec.instruction(types.instruction).reads_shared
    row = RoleProblem(spec.instruction(types.instruction), shape, size, (ResultShape(2, in_bulk=True),)) if may else None
    return TileProblem(types, shape, size, row, through_registers=not may)


@given(TARGETS, TYPES, SIZES, SIZES, SIZES, st.sampled_from([1, 2, 3]), st.booleans())
def test_candidates_shrink_and_end(
    target: str, types: tuple[str, str], m: int | None, n: int | None, k: int | None, sums: int, roles: bool
) -> None:
    spec, problem = target_spec(target), problem_of(target, *types, m, n, k, sums, roles)
    found = list(tile_candidates(problem, spec))
    assert 1 <= len(found) <= 8
    best = None if problem.roles is None else role_tile(problem.roles, spec)
    assert found[0].roles == best
    if best is None:
        how = {"through_registers": problem.through_registers}
        assert found[0].tile == contraction_tile(problem.types, problem.shape, spec, problem.operand_bytes, **how)
    held = [(c.tile.m * c.tile.n / c.tile.num_warps, c.roles.turns if c.roles else 1) for c in found if c.types == problem.types]
    assert all(2 * after[0] <= before[0] or (after[0] <= before[0] and after[1] < before[1]) for before, after in pairwise(held))
    assert found[-1].types.instruction == "fma" and found[-1].tile.m * found[-1].tile.n <= 64 * 64


@given(TARGETS, TYPES, SIZES, SIZES, SIZES)
def test_a_pipeline_goes_before_the_tile_does(target: str, types: tuple[str, str], m: int | None, n: int | None, k: int | None) -> None:
    spec, problem = target_spec(target), problem_of(target, *types, m, n, k, 1, roles=False)
    found = list(tile_candidates(problem, spec))
    taken = [nth_candidate(problem, spec, number, pipelined=True) for number in range(len(found) + 3)]
    assert taken[:2] == [(found[0], False), (found[0], True)]
    assert taken[2:] == [(found[min(number, len(found) - 1)], True) for number in range(1, len(found) + 2)]
    assert nth_candidate(problem, spec, 99, pipelined=False) == (found[-1], False)
