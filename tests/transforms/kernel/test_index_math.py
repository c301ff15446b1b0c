"""Index arithmetic of tiles: how a linear id becomes coordinates, and what a few known values of a symbol tell."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.ir.builtin import IndexType, IntegerType
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import arith
from treadle.plan.expr import parse
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, Listed, builder_at_end, grouped_raster


@pytest.mark.parametrize("count_m", [1, 2, 5, 8, 12, 16])
@pytest.mark.parametrize("count_n", [1, 3, 4])
@pytest.mark.parametrize("group", [1, 4, 8])
def test_every_tile_has_one_id_and_groups_of_rows_are_walked_column_by_column(count_m: int, count_n: int, group: int) -> None:
    index = builder_at_end(Block(), {})
    places: list[tuple[int | None, int | None]] = []
    for linear in range(count_m * count_n):
        m, n = grouped_raster(index, index.constant(linear), index.constant(count_m), index.constant(count_n), group)
        places.append((index.static(m), index.static(n)))
    rows = max(group, 1)
    wanted = [
        (first + row, column) for first in range(0, count_m, rows) for column in range(count_n) for row in range(min(rows, count_m - first))
    ]
    assert places == wanted


@pytest.mark.parametrize(("count_m", "divides"), [(16, True), (12, False), (20, False)])
def test_whole_groups_are_divided_by_constants(count_m: int, divides: bool) -> None:
    block = Block(arg_types=[IndexType()])
    index = builder_at_end(block, {})
    grouped_raster(index, block.args[0], index.constant(count_m), index.constant(6), 8)
    assert ("arith.minsi" not in {op.name for op in block.ops}) == divides


def with_bits(count: int) -> tuple[IndexBuilder, tuple[SSAValue, ...], Block]:
    """A builder, and the bits of a place among so many."""
    block = Block(arg_types=[IndexType(), *[IntegerType(1)] * (count - 1).bit_length()])
    return builder_at_end(block, {"p0": block.args[0]}), tuple(block.args[1:]), block


def evaluated(index: IndexBuilder, value: SSAValue, bits: Mapping[SSAValue, int]) -> int:
    """What a tree of selections is for a place with these bits."""
    while isinstance(value.owner, arith.SelectOp):
        value = value.owner.lhs if bits[value.owner.cond] else value.owner.rhs
    found = index.static(value)
    assert found is not None
    return found


def of_place(place: int, bits: Sequence[SSAValue]) -> dict[SSAValue, int]:
    return {bit: place >> (len(bits) - 1 - at) & 1 for at, bit in enumerate(bits)}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_a_number_is_chosen_by_the_bits_of_its_place(values: list[int]) -> None:
    index, bits, block = with_bits(len(values))
    found = index.chosen(values, bits)
    assert [evaluated(index, found, of_place(place, bits)) for place in range(len(values))] == values
    assert sum(isinstance(op, arith.SelectOp) for op in block.ops) < max(len(values), 2)
    if len(set(values)) == 1:
        assert index.static(found) == values[0]


def test_what_a_listed_symbol_tells_is_chosen_where_that_is_less() -> None:
    """Of groups 0, 2, 3 and 7, where others have no tile."""
    numbers, steps = (0, 2, 3, 7), parse("7 + 5 * min(1, max(0, p0 - 1)) + 30 * min(1, max(0, p0 - 5))")
    index, bits, _ = with_bits(len(numbers))
    index.listed["p0"] = Listed(numbers, bits)
    found = index.expression(steps)
    assert [evaluated(index, found, of_place(place, bits)) for place in range(4)] == [7, 12, 12, 42]
    assert index.expression(parse("p0 * 3 - p0 * 2")) is index.symbols["p0"]
    index.symbols["s0"] = index.constant(9)
    assert isinstance(index.expression(parse("p0 + s0")).owner, arith.AddiOp)
    index.listed["p0"] = Listed(tuple(range(40)), bits)
    assert not isinstance(index.expression(steps).owner, arith.SelectOp)
