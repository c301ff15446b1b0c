"""What pairs of units with consecutive tiles fetch, held against all pairs of a walk."""

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.rasters import fetched_by_pairs, least_fetched_by_pairs, raster
from treadle.plan.role_tiles import RoleTile
from treadle.plan.tile_config import ContractionShape


def walk(count_m: int, count_n: int, group: int) -> list[tuple[int, int]]:
    """The tiles in order: `group` rows of them together, along m first."""
    rows = [range(first, min(first + group, count_m)) for first in range(0, count_m, group)]
    return [(m, n) for some in rows for n in range(count_n) for m in some]


@given(
    counts=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    group=st.sampled_from((1, 2, 3, 4, 8)),
    groups=st.sampled_from((1, 2, 3)),
    columns=st.sampled_from((32, 64, 96, 128, 192, 256)),
)
@settings(deadline=None)
def test_all_pairs(counts: tuple[int, int], group: int, groups: int, columns: int) -> None:
    """Where rows of tiles are walked in whole groups, the part is that of all pairs, but for the tile that is left over."""
    tile = RoleTile(64, columns, 64, 4, groups, 4, group_m=group)
    count_m, count_n = counts[0] * group, counts[1]
    shape = ContractionShape(1, count_m * tile.rows, count_n * columns, 1024)
    tiles = walk(count_m, count_n, group)
    pairs = list(zip(tiles[::2], tiles[1::2], strict=False))
    asked = [len({one[0], other[0]}) * tile.rows + len({one[1], other[1]}) * columns for one, other in pairs]
    found = fetched_by_pairs(tile, shape)
    if pairs:
        assert abs(found - sum(asked) / (2 * len(pairs) * (tile.rows + columns))) < 0.5 / len(pairs) + 1e-9
    else:
        assert found == 1.0
    assert found >= least_fetched_by_pairs(shape.operand_rows(tile.rows, 0), shape.operand_rows(0, tile.n)) - 1e-9


def test_neighbours_share_what_is_wider() -> None:
    """64 rows and 192 columns: pairs along m fetch the columns once, pairs along n the rows."""
    shape = ContractionShape(1, 640, 2304, 8064)
    parts = [fetched_by_pairs(RoleTile(64, 192, 64, 4, 1, 4, group_m=group), shape) for group in (4, 1)]
    assert parts == [0.625, 0.875]


def test_a_last_row_of_tiles_is_not_walked_alone() -> None:
    """Five rows of tiles, and nine, are walked as five, six as four and two, or together where that reads the memory once."""
    tile, spec = RoleTile(64, 256, 64, 4, 1, 5), target_spec("sm_90a")
    assert [raster(tile, ContractionShape(1, 64 * rows, 18816, 133), spec) for rows in (4, 5, 6)] == [4, 5, 4]
    assert [raster(tile, ContractionShape(1, 64 * rows, 18816, 13376), spec) for rows in (4, 5, 6, 7)] == [4, 5, 6, 7]
    assert raster(tile, ContractionShape(1, 64 * 9, 2304, 12416), spec) == 5
