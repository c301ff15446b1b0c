"""Geometry against brute force."""

from itertools import product
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.ir.core import SSAValue
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled
from treadle.layout.tile_layout import TileLayout
from treadle.verify.regions import Box, Buffer, Owners, Part, Region, is_covered, subtract, warps_meet

SPAN = st.tuples(st.integers(0, 4), st.integers(1, 3)).map(lambda s: (s[0], s[0] + s[1]))
BOX = st.tuples(SPAN, SPAN)


def elements(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(a, b) for a, b in box)))


@given(BOX, BOX)
def test_subtract(one: Box, other: Box) -> None:
    parts = subtract(one, other)
    found = [e for part in parts for e in elements(part)]
    assert len(found) == len(set(found))
    assert set(found) == elements(one) - elements(other)


@given(BOX, st.lists(BOX, max_size=4))
def test_is_covered(box: Box, parts: list[Box]) -> None:
    taken = {e for part in parts for e in elements(part)}
    assert is_covered(box, parts) == (elements(box) <= taken)


@st.composite
def layouts(draw: st.DrawFn) -> TileLayout:
    """An 8x4 tile over two registers, four lanes, four warps, with replicas over warps."""
    bases = draw(st.permutations([(1, 0), (2, 0), (4, 0), (0, 1), (0, 2)]))
    warp = list(bases[:2])
    if draw(st.booleans()):
        place = draw(st.integers(0, 2))
        warp.insert(place, (0, 0))
    return TileLayout((bases[2],), (bases[3], bases[4]), tuple(warp), (1, 1))


def touched(layout: TileLayout, warp: int, writes: bool) -> set[tuple[int, ...]]:
    idle = sum(1 << bit for bit, basis in enumerate(layout.warp) if not any(basis))
    if writes and warp & idle:
        return set()
    return {layout.coordinates(r, lane, warp) for r in range(layout.num_registers) for lane in range(layout.num_lanes)}


@given(layouts(), layouts(), st.booleans(), st.booleans())
def test_warps_meet(one: TileLayout, other: TileLayout, one_writes: bool, other_writes: bool) -> None:
    expected = any(
        touched(one, w, one_writes) & touched(other, v, other_writes)
        for w, v in product(range(one.num_warps), range(other.num_warps))
        if w != v
    )
    assert warps_meet(Part(one, (0, 0)), one_writes, Part(other, (0, 0)), other_writes) == expected


VALUE = cast(SSAValue, None)
SHARED = st.sampled_from([row_major((2, 16, 8), (2, 1, 0)), row_major((2, 16, 8), (1, 2, 0)), swizzled((16, 16), (1, 0), 2, 32).stacked(2)])
PLACE = st.tuples(st.integers(0, 1), st.sampled_from([0, 8]), st.sampled_from([0, 4]))


@st.composite
def placed(draw: st.DrawFn) -> tuple[Region, Part, bool]:
    """A tile somewhere in a slot of a buffer somewhere."""
    shared: SharedLayout = draw(SHARED)
    buffer = Buffer(VALUE, shared, draw(st.sampled_from([2, 4])), 16 * draw(st.integers(0, 40)), "b")
    slot, row, column = draw(PLACE)
    region = Region(buffer, ((slot, slot + 1), (row, row + 8), (column, column + 4)), (slot,))
    return region, Part(draw(layouts()), (row, column)), draw(st.booleans())


def bytes_touched(access: tuple[Region, Part, bool], warp: int) -> set[int]:
    region, part, writes = access
    buffer = region.buffer
    assert isinstance(buffer, Buffer) and part.layout is not None and buffer.first is not None
    found: set[int] = set()
    for row, column in touched(part.layout, warp, writes):
        at = buffer.layout.offset_of((region.slots[0], part.offsets[0] + row, part.offsets[1] + column))
        first = buffer.first + at * buffer.element_bytes
        found.update(range(first, first + buffer.element_bytes))
    return found


@settings(max_examples=300)
@given(placed(), placed())
def test_warps_meet_to_the_byte(one: tuple[Region, Part, bool], other: tuple[Region, Part, bool]) -> None:
    assert one[1].layout is not None and other[1].layout is not None
    ours = [bytes_touched(one, warp) for warp in range(one[1].layout.num_warps)]
    theirs = [bytes_touched(other, warp) for warp in range(other[1].layout.num_warps)]
    expected = any(a & b for w, a in enumerate(ours) for v, b in enumerate(theirs) if w != v)
    assert Owners().meet(*one, *other) == expected


def test_unlike_parts_meet() -> None:
    layout = TileLayout(((1,),), ((2,),), ((4,),), (1,))
    assert warps_meet(Part(layout, (0,)), True, Part(layout, (4,)), True) is None
    assert not warps_meet(Part(layout, (0,)), True, Part(layout, (0,)), True)
    assert warps_meet(Part(None, (), "x"), True, Part(layout, (0,)), False)
    assert not warps_meet(Part(None, (), "x"), True, Part(None, (), "x"), True)
    assert warps_meet(Part(None, (), "x"), True, Part(None, (), "y"), True)
