"""In which order the tiles of a result are walked: so many rows of them together, for reuse in the cache. No IR."""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from treadle.machine.spec import TargetSpec
from treadle.plan.tile_config import ContractionShape

RASTERS = (1, 2, 4, 8, 12)
"""Of 13 large products on an H200 twelve rows of tiles walked together took 0.999 of the time of eight, those of 8-bit operands 0.998, and
none more than 1.001; 16 rows, which read less yet at one time, took as long as eight, and up to 1.004 of it.
"""
MOST_WHOLE_ROWS = 8
"""So many rows of tiles are walked together where there are no others and the memory would be read again for each group of them."""
MANY_ROWS = 6
"""More of them than are walked together in a few rounds."""
UNEVEN_RASTERS = (1, 3, 7)
"""The same of clusters along n: no whole clusters (see `cluster_extents`)."""
MOST_WHOLE_GROUPS = 2
"""So many whole groups of rows at most before a row that would be walked alone: of more tiles its own are a small part."""


KEPT_SHARE = 0.5
"""Of the cache that all units share, what still holds operands when they are read again."""


class Tile(Protocol):
    """Rows and columns of a workgroup's tile, and how many rows of tiles are walked together."""

    @property
    def rows(self) -> int:
        """All of its groups'."""
        ...

    @property
    def n(self) -> int:
        """Columns."""
        ...

    @property
    def group_m(self) -> int:
        """The raster."""
        ...


def raster(tile: Tile, shape: ContractionShape, spec: TargetSpec, rasters: Sequence[int] = RASTERS, *, operand_bytes: int = 2) -> int:
    """Rows of tiles walked together, so that the tiles computed at one time read the fewest different rows of operands. One more of them
    where a last row would be left alone, whose neighbours share the narrow side of a tile: 320 x 18816 x 13376 in tiles of 64 x 256 took
    396 us on an H100 in rows of four and one, 277 in rows of five; of 30 tilings in five rows the gain was a fifth, in nine rows 2 %. All
    rows, where they are as many as may be walked, and the memory is read again for each group of them: 872 x 6664 x 9120 in seven rows
    took 4 % less on an H200 than in four and three, others in eight 1 to 2 % less than in twice four.
    """
    count_m = shape.tiles_along_m(tile.rows)
    few = shape.tiles(tile.rows, tile.n) <= spec.rates.roles.few_rounds * spec.compute_units
    best, least = 1, inf
    for rows in [each for each in rasters if each < MANY_ROWS] if few else rasters:
        together = min(rows, count_m)
        footprint = shape.operand_rows(together * tile.rows, -(-spec.compute_units // together) * tile.n)
        if footprint < least:
            best, least = rows, footprint
    if rasters is RASTERS and best < count_m <= MOST_WHOLE_ROWS and shape.extents[1] > _kept_rows(shape, operand_bytes, spec):
        return count_m
    is_alone = best > 1 and count_m % best == 1 and count_m // best <= MOST_WHOLE_GROUPS
    return best + 1 if is_alone and rasters is RASTERS else best


def fetched_by_pairs(tile: Tile, shape: ContractionShape) -> float:
    """The part of two consecutive tiles' operand rows that their two units fetch, where what both ask for is fetched once: all but one
    copy of the operand that neighbours along n (A) or along m (B) share. Of an odd number of tiles that are walked in a line, one in as
    many pairs is of two lines.
    """
    count_m, count_n = shape.tiles_along_m(tile.rows), shape.tiles_along_n(tile.n)
    if count_m == count_n == 1:
        return 1.0
    of_a, of_b = shape.operand_rows(tile.rows, 0), shape.operand_rows(0, tile.n)
    walked = min(tile.group_m, count_m)
    line, shared = (walked if count_n > 1 else count_m, of_b) if walked > 1 or count_n == 1 else (count_n, of_a)
    alike = 1 - 1 / line if line % 2 else 1.0
    return 1 - alike * shared / (2 * (of_a + of_b))


def least_fetched_by_pairs(of_a: int, of_b: int) -> float:
    """The same in whatever order tiles are walked, at least, of the rows that a tile reads of A and of B."""
    return 1 - max(of_a, of_b) / (2 * (of_a + of_b))


def _times_read(tile: Tile, shape: ContractionShape, rows: int) -> float:
    """How many times B is read where so many rows of tiles read it together; of groups, whose B is each its own, on average."""
    if not shape.groups_m:
        return shape.tiles_along_m(tile.rows) / rows
    first, counts, reads = 0, [count for size in shape.groups_m if (count := -(-size // tile.rows))], 0
    for count in counts:
        reads += (first + count - 1) // rows - first // rows + 1
        first += count
    return reads / max(1, len(counts))


def _kept_rows(shape: ContractionShape, operand_bytes: int, spec: TargetSpec) -> float:
    """Rows of operands that the cache still holds when they are read again."""
    return KEPT_SHARE * spec.product.l2_bytes / (shape.extents[2] * operand_bytes)


def read_again(tile: Tile, shape: ContractionShape, operand_bytes: int, spec: TargetSpec) -> float:
    """Bytes of operands that all tiles together read of the memory, 0 where none is read twice: as many rows of tiles as are walked at one
    time read B together, and read A's rows once where the cache keeps them meanwhile.
    """
    (m, n, k), groups = shape.extents, sum(map(bool, shape.groups_m)) or 1
    kept = _kept_rows(shape, operand_bytes, spec)
    of_m, of_n = sum(shape.groups_m) or m * max(1, len(shape.groups_n)), sum(shape.groups_n) or n * groups
    if (shape.batch or 1) > 1 or of_m + of_n <= kept:
        return 0.0
    count_m, count_n = shape.tiles_along_m(tile.rows), shape.tiles_along_n(tile.n)
    walked = min(count_m, tile.group_m)
    # Where a round has more tiles than those rows, the next ones are computed at the same time.
    rows = min(count_m, max(walked, walked * max(1, round(spec.compute_units / (walked * count_n)))))
    times_a = 1 if rows * tile.rows <= kept else max(1.0, rows * count_n / spec.compute_units)
    times_b = 1 if n <= kept else _times_read(tile, shape, rows)
    return 0.0 if times_a == times_b == 1 else (times_a * of_m + times_b * of_n) * k * operand_bytes
