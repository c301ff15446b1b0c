"""What merging parts takes, by the models: it grows with what is merged, and clusters that must wait are not planned."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.part_merges import cluster_clocks, clustered_units, last_clocks, parts_at_once, traffic_clocks, turns_clocks
from treadle.plan.role_clocks import role_cost
from treadle.plan.role_forms import role_tiles
from treadle.plan.role_tiles import ResultShape, RoleProblem
from treadle.plan.tile_config import ContractionShape

SPEC = target_spec("sm_90a")


@given(st.integers(2, 300), st.integers(1, 1 << 15))
def test_more_parts_and_larger_tiles_take_longer(count: int, elements: int) -> None:
    clocks = last_clocks(count, elements, SPEC)
    assert 0 < clocks < last_clocks(count + 2 * parts_at_once(count, elements), elements, SPEC)
    assert clocks < last_clocks(count, 2 * elements, SPEC)
    assert 0 < traffic_clocks(count * elements, SPEC) < traffic_clocks(count * elements + 4, SPEC)
    turns = turns_clocks(count, elements, SPEC)
    assert clocks < turns < turns_clocks(count + 1, elements, SPEC) and turns < turns_clocks(count, elements + 1, SPEC)
    assert 0 < cluster_clocks(elements, SPEC) < cluster_clocks(elements + 1, SPEC)


def test_large_clusters_leave_units_out() -> None:
    assert clustered_units(2, SPEC) == SPEC.compute_units
    for count in (4, 8):
        assert clustered_units(count, SPEC) < SPEC.compute_units
        assert clustered_units(count, SPEC) % count == 0


def problem_of(parts: int, m: int, n: int, k: int, *, in_cluster: bool) -> RoleProblem:
    row = SPEC.instruction("wgmma_m64k16_f32_bf16_bf16")
    shape = ContractionShape(parts, m, n, k // parts)
    return RoleProblem(row, shape, 2, (ResultShape(4, True),), takes_turns=False, parts=parts, in_cluster=in_cluster)


@pytest.mark.parametrize(("parts", "m", "n", "k"), [(8, 768, 384, 7040), (4, 640, 384, 5184)])
def test_tiles_of_clusters_begin_at_once(parts: int, m: int, n: int, k: int) -> None:
    """Of 8 parts of 768 x 384, tiles of 128 x 80 are 240: they took 24.6 us on an H200, the whole about as long."""
    merged, apart = (role_tiles(problem_of(parts, m, n, k, in_cluster=each), SPEC) for each in (True, False))
    shape = ContractionShape(parts, m, n, k // parts)
    most = clustered_units(parts, SPEC)
    assert merged
    assert all(shape.tiles(tile.rows, tile.n) <= most for tile in merged)
    assert any(shape.tiles(tile.rows, tile.n) > most for tile in apart)
    slots = {replace(tile, num_stages=0): tile.num_stages for tile in apart}
    assert any(tile.num_stages < slots[replace(tile, num_stages=0)] for tile in merged), "parts take room beside the ring"


def test_merging_is_part_of_the_cost() -> None:
    whole = problem_of(4, 640, 384, 5184, in_cluster=False)
    for tile in role_tiles(whole, SPEC):
        assert role_cost(tile, whole, SPEC) > role_cost(tile, replace(whole, parts=1), SPEC)
        assert role_cost(tile, replace(whole, in_turn=True), SPEC) > role_cost(tile, whole, SPEC)
