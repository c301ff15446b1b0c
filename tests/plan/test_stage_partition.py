"""The model that cuts loops into stages: what it promises of every partition, and which ones it prefers."""

from hypothesis import given
from hypothesis import strategies as st

from treadle.plan.stage_partition import MOST_STAGES, UNITS, Work, cuts, iteration_clocks, partitions

WORKS = st.lists(st.builds(Work, st.sampled_from(UNITS), st.integers(1, 500).map(float)), min_size=1, max_size=8)


@given(WORKS, st.floats(0, 100))
def test_no_iteration_is_shorter_than_its_busiest_unit(work: list[Work], meeting: float) -> None:
    total: dict[str, float] = {}
    for piece in work:
        total[piece.unit] = total.get(piece.unit, 0.0) + piece.clocks
    for found in partitions(work, (2, 4), (1, 2), meeting):
        assert found.clocks + 1e-6 >= max(total.values()) + meeting * len(found.begins)
        assert found.clocks - 1e-6 <= sum(total.values()) + meeting * len(found.begins)


@given(WORKS)
def test_stages_are_runs_of_the_work(work: list[Work]) -> None:
    """All of it, in order, none of them empty; groups are no more stages apart than there are."""
    found = partitions(work, (2, 4), (1, 2), 16.0)
    assert [each.clocks for each in found] == sorted(each.clocks for each in found)
    for each in found:
        assert each.begins[0] == 0
        assert list(each.begins) == sorted(set(each.begins))
        assert 2 <= len(each.begins) <= min(MOST_STAGES, len(work))
        assert (each.groups - 1) * each.gap < len(each.begins)
        demands = each.demands(work)
        assert abs(sum(sum(stage.values()) for stage in demands) - sum(piece.clocks for piece in work)) < 1e-6


def test_memory_and_matrix_take_turns() -> None:
    """As long as the longer of them takes, twice half of it; a second cut only makes the groups meet more often."""
    work = [Work("shared", 100.0), Work("global", 100.0), Work("matrix", 100.0), Work("matrix", 100.0)]
    best = partitions(work, (2,), (1,), 10.0)[0]
    assert (best.begins, best.groups, best.gap, best.clocks) == ((0, 2), 2, 1, 220.0)


def test_pieces_of_a_stage_follow_one_another() -> None:
    assert iteration_clocks([{"shared": 100.0, "vector": 300.0}, {"matrix": 200.0}], 2, 1, 0.0) == 400.0
    assert iteration_clocks([{"matrix": 100.0}, {"matrix": 100.0}], 2, 1, 0.0) == 200.0


def test_nothing_to_cut() -> None:
    assert partitions([], (2,), (1,), 0.0) == []
    assert partitions([Work("global", 5.0), Work("shared", 5.0)], (2,), (1,), 0.0) == []
    assert cuts([Work("global", 5.0), Work("matrix", 5.0), Work("matrix", 5.0), Work("vector", 1.0)]) == [1, 2, 3]


def test_long_rows_of_work_are_cut_in_few_places() -> None:
    assert len(cuts([Work("matrix", 1.0)] * 100)) <= 10
