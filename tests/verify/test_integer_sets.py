"""The door to the integer set library: what it decides, and that it gives up where it is told to."""

import pytest

from treadle.verify.integer_sets import TooHard, bounded, integer_set, point_of

KNAPSACK = (
    "[n] -> { [i, j, k, l, a, b, c] : 0 <= i, j, k, l, a, b, c < n and (i + j) mod 7 = 3 and (k + l) mod 5 = 2 "
    "and 7i + 3j + 5k + 11l + 13a + 17b + 19c = 2n }"
)


def test_points_are_named() -> None:
    found = point_of(integer_set("[n] -> { [i, j] : 0 <= i < n and j = 2i and n > 5 and j mod 3 = 1 }"))
    assert found is not None
    assert 0 <= found["i"] < found["n"] and found["j"] == 2 * found["i"] and found["j"] % 3 == 1
    assert point_of(integer_set("{ [i] : exists k : i = 2k and i = 4k + 1 }")) is None


@pytest.mark.parametrize("limit", [10, 1000])
def test_hard_questions_are_given_up(limit: int) -> None:
    with pytest.raises(TooHard), bounded(limit):
        integer_set(KNAPSACK)
    with bounded():
        assert not integer_set(KNAPSACK).is_empty()
