"""Functions of an index, piece by piece: their numbers are those of arithmetic at each index, and sums have a piece for each step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.analysis.steps import Steps, constant_steps, extremum, identity_steps, of_numbers, pointwise, weighted_sum

numbers = st.lists(st.integers(-30, 30), min_size=1, max_size=13)
pairs = st.integers(1, 13).flatmap(lambda count: st.tuples(*[st.lists(st.integers(-9, 9), min_size=count, max_size=count)] * 2))


@given(numbers)
def test_numbers_are_those_given(values: list[int]) -> None:
    found = of_numbers(values)
    assert found.numbers() == values and found.least() == min(values)
    assert found.constant == (values[0] if len(set(values)) == 1 else None)


@given(pairs, st.integers(-3, 3), st.integers(-3, 3))
def test_sums(both: tuple[list[int], list[int]], a: int, b: int) -> None:
    one, other = both
    found = weighted_sum([(of_numbers(one), a), (of_numbers(other), b)])
    assert found.numbers() == [a * x + b * y for x, y in zip(one, other, strict=True)]


@given(pairs)
def test_extrema_and_other_functions(both: tuple[list[int], list[int]]) -> None:
    one, other = (of_numbers(values) for values in both)
    for pick in (min, max):
        assert extremum(one, other, pick).numbers() == [pick(a, b) for a, b in zip(*both, strict=True)]
    assert pointwise(one, other, lambda a, b: a * b).numbers() == [a * b for a, b in zip(*both, strict=True)]


@given(st.integers(1, 40), st.integers(-40, 40), st.integers(-5, 5))
def test_lines_that_cross_make_two_pieces(count: int, offset: int, slope: int) -> None:
    line = weighted_sum([(identity_steps(count), slope), (constant_steps(count, offset), 1)])
    for pick in (min, max):
        found = extremum(line, identity_steps(count), pick)
        assert found.numbers() == [pick(slope * at + offset, at) for at in range(count)]
        assert len(found.pieces) <= 2


def _step(count: int, at: int) -> Steps:
    past = weighted_sum([(identity_steps(count), 1), (constant_steps(count, -at), 1)])
    return extremum(constant_steps(count, 1), extremum(constant_steps(count, 0), past, max), min)


@pytest.mark.parametrize("count", [1, 7, 501])
def test_a_list_as_a_sum_of_steps_has_a_piece_for_each(count: int) -> None:
    values = [at * at % 37 for at in range(count)]
    terms = [(_step(count, at - 1), values[at] - values[at - 1]) for at in range(1, count)]
    found = weighted_sum([(constant_steps(count, values[0]), 1), *terms])
    assert found.numbers() == values
    assert len(found.pieces) <= count
