"""How wide the accesses of elementwise kernels are together."""

import pytest

from treadle.plan.wide_accesses import Widths, elements_together

ALIGNED = Widths(2, 8, 8)


@pytest.mark.parametrize(
    ("loads", "stores", "expected"),
    [
        ([Widths(2, 1, 1, 8)], [Widths(2, 1, 8)], 8),  # rows of odd pitch, copied to rows of even pitch
        ([Widths(2, 1, 1, 8)], [ALIGNED], 8),
        ([Widths(1, 1, 1, 16)], [Widths(1, 1, 16)], 16),
        ([Widths(1, 1, 1, 16)], [Widths(4, 4, 4)], 4),  # widened: a word of bytes at a time
        ([Widths(4, 1, 1, 4), Widths(2, 1, 1, 8)], [ALIGNED], 4),  # as wide as the widest of them can be
        ([], [Widths(2, 1, 8)], 8),
        ([Widths(2, 1, 8, 8), Widths(2, 2, 2, 8)], [Widths(2, 1, 8)], 8),
    ],
)
def test_all_move_as_many_elements(loads: list[Widths], stores: list[Widths], expected: int) -> None:
    assert elements_together(loads, stores) == expected


@pytest.mark.parametrize(
    ("loads", "stores"),
    [
        ([ALIGNED], [ALIGNED]),  # wide as they are
        ([Widths(2, 2, 2, 8)], [Widths(2, 2, 8)]),  # words
        ([Widths(4, 1, 1, 4)], [Widths(4, 1, 4)]),
        ([Widths(2, 1, 1, 8)], [Widths(2, 1, 1)]),  # results at any address
        ([Widths(2, 1, 1, 0)], [ALIGNED]),  # no unit stride
        ([Widths(1, 1, 1, 16)], [Widths(8, 2, 2)]),  # less than a word
        ([Widths(2, 1, 1, 8)], []),
    ],
)
def test_each_goes_its_own_way(loads: list[Widths], stores: list[Widths]) -> None:
    assert elements_together(loads, stores) == 0
