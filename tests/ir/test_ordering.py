"""dependence_order: everything behind what it needs, nothing moved without need, cycles told."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.ir.ordering import NeedsItselfError, dependence_order


@given(st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=31), st.randoms())
def test_everything_is_behind_what_it_needs(rows: list[list[int]], rng: random.Random) -> None:
    needs = {node: [other for other in row if other < node] for node, row in enumerate(rows)}
    starts = list(needs)
    rng.shuffle(starts)
    order = dependence_order(starts, needs.__getitem__)
    assert sorted(order) == sorted(needs)
    place = {node: at for at, node in enumerate(order)}
    assert all(place[other] < place[node] for node, row in needs.items() for other in row)
    assert dependence_order(order, needs.__getitem__) == order, "what is in order already stays"


def test_a_cycle_is_told_from_where_it_begins() -> None:
    needs = {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]}
    with pytest.raises(NeedsItselfError) as caught:
        dependence_order(needs, needs.__getitem__)
    assert caught.value.path == ["b", "c", "d"]


def test_long_chains_are_no_problem() -> None:
    assert dependence_order([9999], lambda node: [node - 1] if node else []) == list(range(10_000))
