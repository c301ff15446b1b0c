"""Index arithmetic of tiles: how a linear id becomes coordinates."""

import pytest

from treadle.ir.builtin import IndexType
from treadle.ir.core import Block
from treadle.transforms.kernel.tiling.index_math import builder_at_end, grouped_raster


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
