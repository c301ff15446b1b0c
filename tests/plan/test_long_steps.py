"""Steps of contractions twice as long: where, and what they keep to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import known_targets, target_spec
from treadle.plan.long_steps import STEP_BYTES, with_long_steps
from treadle.plan.tile_config import ContractionShape, TileProblem, candidate_tiles, contraction_tile, contraction_types

SIZES = st.one_of(st.none(), st.integers(1, 5000), st.integers(1, 40).map(lambda count: 128 * count))


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES),
    roots=st.integers(1, 3),
    shared=st.sampled_from(["a", "b"]),
    target=st.sampled_from(known_targets()),
    kind=st.sampled_from(["f16", "f32", "i8"]),
    is_gathered=st.booleans(),
)
def test_long_steps_are_whole_and_fit(
    sizes: tuple[int | None, ...], roots: int, shared: str, target: str, kind: str, *, is_gathered: bool
) -> None:
    spec, (m, n, k) = target_spec(target), sizes
    types = contraction_types(spec, kind, kind, "i32" if kind == "i8" else "f32", ("", ""), False)
    problem = TileProblem(types, ContractionShape(1, m, n, k, roots, "a" if shared == "a" else "b"), spec)
    for tile in candidate_tiles(problem):
        long = with_long_steps(tile, problem, is_gathered=is_gathered)
        assert long in (tile, replace(tile, k=2 * tile.k))
        if long == tile:
            continue
        size = types.operand_bytes
        assert k is not None and k % long.k == 0 and long.k * size <= STEP_BYTES
        bytes_of_step = problem.shape.operand_rows(tile.m, tile.n) * long.k * size
        assert 2 * bytes_of_step <= spec.shared_bytes_per_unit
        threads = tile.num_threads(spec)
        assert roots * tile.m * tile.n // threads + bytes_of_step // 4 // threads < spec.max_registers_per_thread


@pytest.mark.parametrize(
    ("target", "k", "rows", "expected"),
    [
        ("gfx1201", 4096, 128, 64),
        ("gfx1201", 4128, 128, 32),
        ("gfx1100", 4096, 128, 32),
        ("gfx950", 4096, 128, 32),
        ("gfx942", 4096, 128, 32),
        ("gfx942", 4096, 64, 64),
        ("gfx942", 4128, 64, 32),
    ],
)
def test_where_registers_and_shared_memory_hold_them(target: str, k: int, rows: int, expected: int) -> None:
    """RDNA3 reads each operand twice, so that a tile of 128 x 128 leaves no registers; CDNA4's copies take none at all; two workgroups of
    CDNA3 have no room for two slots of 128 x 128 each.
    """
    spec = target_spec(target)
    problem = TileProblem(contraction_types(spec, "f16", "f16", "f32", ("", ""), False), ContractionShape(1, 4096, 4096, k), spec)
    tile = next(tile for tile in candidate_tiles(problem) if tile.m == rows)
    long = with_long_steps(tile, problem, is_gathered=False)
    assert long.k == expected and (target != "gfx950" or long == tile)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_tiles_of_few_warps_are_for_sizes_that_are_known(target: str) -> None:
    spec = target_spec(target)
    types = contraction_types(spec, "f16", "f16", "f32", ("", ""), False)
    for m, warps in ((4096, 4), (None, 8)):
        assert contraction_tile(TileProblem(types, ContractionShape(1, m, 4096, 4096), spec)).num_warps == warps


@pytest.mark.parametrize(
    ("target", "kind", "loads", "warps", "expected"),
    [
        ("gfx1100", "bf16", 1, 8, 64),
        ("gfx1100", "bf16", 8, 8, 32),  # each load takes a register and a place: the unit would hold one workgroup
        ("gfx950", "f32", 1, 4, 16),  # copies fill slots
        ("gfx950", "f32", 2, 4, 32),
        ("gfx950", "bf16", 4, 4, 64),
        ("gfx950", "bf16", 8, 4, 32),  # more loads than the machine counts
    ],
)
def test_narrow_loads(target: str, kind: str, loads: int, warps: int, expected: int) -> None:
    """Rows that are aligned to less than the widest load."""
    spec = target_spec(target)
    types = contraction_types(spec, kind, kind, "f32", ("", ""), False)
    problem = TileProblem(types, ContractionShape(16, 128, 512, 2176), spec, loads=loads)
    tile = next(tile for tile in candidate_tiles(problem) if (tile.m, tile.n, tile.num_warps) == (128, 128, warps))
    assert with_long_steps(tile, problem, is_gathered=False).k == expected
