"""Folded views: what they are made of, the boxes that rows are, and their text."""

from itertools import product
from random import Random

import pytest

from treadle.dialects.tile_attributes import WindowsAttr
from treadle.ir.context import default_context
from treadle.ir.core import Parser
from treadle.layout.windows import FoldedAxis, Part, Windows, box_of, listed, windows_of

IMAGE = Windows(
    (FoldedAxis(80 * 9, 0, 0), FoldedAxis(80, 1, 10), FoldedAxis(8, 1, 11), FoldedAxis(1)),
    ((Part(0, 2, 1), Part(1, 9, 1), Part(2, 10, 1)), (Part(1, 3, 1), Part(2, 3, 1), Part(3, 8, 1))),
)
"""A 3 x 3 window over two images of 9 x 10 pixels of 8 channels, with zeros around."""


def test_indices_are_taken_apart_as_loops_nest() -> None:
    pixels = [((0, n), (1, h), (2, w)) for n, h, w in product(range(2), range(9), range(10))]
    assert [IMAGE.taken_apart(0, m) for m in range(180)] == pixels
    window = [((1, h), (2, w), (3, c)) for h, w, c in product(range(3), range(3), range(8))]
    assert [IMAGE.taken_apart(1, k) for k in range(72)] == window


def test_runs_and_what_divides_the_distances_between_them() -> None:
    assert (IMAGE.run(0), IMAGE.step(0), IMAGE.divisor(0)) == (10, 8, 16)
    assert (IMAGE.run(1), IMAGE.step(1), IMAGE.divisor(1)) == (8, 1, 8)
    assert IMAGE.checked == (1, 2)


@pytest.mark.parametrize("seed", range(40))
def test_a_box_holds_the_places_of_its_rows(seed: int) -> None:
    random = Random(seed)
    extents = [random.choice([1, 2, 3, 4, 6, 8, 16]) for _ in range(3)]
    steps = [1, *(random.randint(1, 2) for _ in range(2))]
    windows = Windows(
        tuple(FoldedAxis(1) for _ in range(3)), (tuple(Part(a, e, s) for a, (e, s) in enumerate(zip(extents, steps, strict=True))),)
    )
    rows = random.choice([1, 2, 4, 8, 16, 6])
    count, box = extents[0] * extents[1] * extents[2], box_of(windows, 0, rows)
    for start in range(0, count - rows + 1, rows):
        places = {tuple(steps for _, steps in windows.taken_apart(0, m)) for m in range(start, start + rows)}
        sides = [sorted({place[axis] for place in places}) for axis in range(3)]
        rectangle = len(places) == len(sides[0]) * len(sides[1]) * len(sides[2])
        if box is None:
            continue
        corner = windows.taken_apart(0, start)
        covered = {axis: [corner[axis][1] + i * step for i in range(taken)] for axis, taken, step in box}
        assert rectangle
        assert all(sides[axis] == covered.get(axis, [corner[axis][1]]) for axis in range(3))
    if box is None:
        assert extents[2] % rows
        assert rows % extents[2] or extents[1] % (rows // extents[2])


def test_text_round_trip() -> None:
    text = str(WindowsAttr(IMAGE))
    assert Parser(default_context(), text).parse_attribute() == WindowsAttr(IMAGE)
    assert windows_of(*listed(IMAGE)) == IMAGE


@pytest.mark.parametrize(
    ("axes", "dims"),
    [([[1, 0]], [[]]), ([[1, 0, 0]], [[[1, 2, 1]]]), ([[1, 0, 0]], [[[0, 2, 0]]]), ([[1, 0, 0]], [[[0, 2, 1], [0, 0, 1]]])],
)
def test_what_is_no_folding_is_refused(axes: list[list[int]], dims: list[list[list[int]]]) -> None:
    with pytest.raises(ValueError, match=r"an axis is|a part|every part"):
        windows_of(axes, dims)
