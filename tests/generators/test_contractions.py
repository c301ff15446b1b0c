"""The generator of random contractions: determined by the seed, all legal, of the promised variety."""

from generators.contractions import EPILOGUES, LAYOUTS, TARGETS, random_contraction

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport] - makes them known to the parser
from treadle.ir.text import parse_module, print_module


def test_seeds_determine_cases() -> None:
    first, again = ([random_contraction(seed) for seed in range(100)] for _ in range(2))
    assert [case.text for case in first] == [case.text for case in again]
    assert len({case.label for case in first}) == 100


def test_texts_are_legal_and_round_trip() -> None:
    for seed in range(0, 300, 3):
        case = random_contraction(seed)
        text = print_module(parse_module(case.text, case.name))
        assert print_module(parse_module(text, case.name)) == text


def test_variety() -> None:
    cases = [random_contraction(seed) for seed in range(300)]
    assert {case.target for case in cases} == set(TARGETS)
    assert {case.layout for case in cases} == set(LAYOUTS)
    assert {case.epilogue for case in cases} == set(EPILOGUES)
    assert sum(bool(case.dynamic) for case in cases) > 100
    assert sum(case.m % 2 for case in cases) > 80
    assert max(case.n for case in cases) > 15000
    assert min(case.n for case in cases) == 1
    assert sum(bool(case.options) for case in cases) > 20


def test_the_longest_size_can_be_chosen() -> None:
    assert all(max(case.m, case.n, case.k) <= 50 for seed in range(50) for case in [random_contraction(seed, longest=50)])
