"""Entries of tables in size expressions: values, text, folding, bounds."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InternalError, TreadleError
from treadle.plan.block_bounds import greatest, least
from treadle.plan.expr import compile_tuple, constant, parse, symbol
from treadle.plan.expr_tables import entry, shortened
from treadle.plan.index_range import is_never_negative

P = symbol("p0")


@given(st.lists(st.integers(-99, 99), min_size=1, max_size=9), st.integers(-5, 5))
def test_entries_are_the_numbers(values: list[int], factor: int) -> None:
    found = entry(values, P) * factor + P
    wanted = [value * factor + at for at, value in enumerate(values)]
    assert [found.evaluate({"p0": at}) for at in range(len(values))] == wanted
    assert [found.substitute({"p0": at}) for at in range(len(values))] == wanted
    value_of = compile_tuple([found], ["p0"])
    assert [value_of(at)[0] for at in range(len(values))] == wanted
    assert parse(str(found)) == found and pickle.loads(pickle.dumps(found)) == found
    for bounds, pick in ((least, min), (greatest, max)):
        assert bounds(found, {"p0": constant(len(values))}) == [pick(wanted)]


def test_an_entry_is_one_atom_of_its_index() -> None:
    found = entry((7, 3, 9), P // 2 + 1)
    assert str(found) == "(7, 3, 9)[p0 // 2 + 1]"
    assert found.symbols() == {"p0"} and found.sole_atom is not None
    assert (found * 8).divisor() == 8 and entry((8, 0, 4), P).divisor() == 4
    assert found.substitute({"p0": symbol("q")}) == entry((7, 3, 9), symbol("q") // 2 + 1)


def test_what_rises_evenly_is_arithmetic() -> None:
    assert entry((5, 8, 11), P) == P * 3 + 5
    assert entry((4, 4), P) == 4 and entry((6,), P) == 6
    assert entry((5, 8, 12), constant(2)) == 12


def test_signs() -> None:
    assert is_never_negative(entry((3, 0, 9), P)) and not is_never_negative(entry((3, -1, 9), P))


def test_people_are_shown_the_first_numbers() -> None:
    found = entry(tuple(n * n for n in range(1000)), P) + 1
    assert shortened(found) == "(0, 1, 4, 9, 16, 25, 36, 49, .. 1000 numbers)[p0] + 1"
    assert shortened(entry((7, 3, 9), P)) == str(entry((7, 3, 9), P))
    assert parse(str(found)) == found


def test_refused() -> None:
    for text in ("(1, 2)[p0, 1]", "(1, p0)[p0]", "(1,)[p0]", "p0[1]"):
        with pytest.raises(TreadleError, match="TR103"):
            parse(text)
    with pytest.raises(InternalError):
        entry((1, 3, 2), constant(3))
    with pytest.raises(InternalError):
        entry((), P)
