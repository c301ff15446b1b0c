"""Tiles of two widths in one kernel, so that workgroups that take tiles in turn all end at about the same time.

With one width, the last round leaves workgroups idle: 512 tiles of 128 x 256 on 132 workgroups take four rounds though 3.88 would do. Some
rows of tiles cut their columns into a few more, narrower tiles instead, until the rounds are full.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from treadle.machine.rates import RoleRates
from treadle.records import dataclass

MOST_NARROWER = 8
"""By this part of their width tiles may be narrower than the wide ones: narrow ones waste operand traffic."""
MOST_MORE = 4
"""How many tiles more than others a row of tiles may have."""

CLEAR_FACTOR = 1.018
"""How many times what they are modelled to take counts against tiles of one width: 18 products whose mixed tiles were modelled 2 % faster
or more took 1.026 times as long in the best of one width, 29 that were modelled to gain less took 0.99 of the time.
"""


def timed_columns(width: int, rates: RoleRates) -> float:
    """Columns by the time that matrix instructions take for a tile of `width`: whole steps of columns by their number, others longer."""
    missing = -width % rates.full_step
    return width + missing * (1 - rates.step_saved)


def least_part(wide: int, rates: RoleRates) -> float:
    """Of the time of a tile of `wide` columns, what any takes at least that is beside it."""
    return (1 - 1 / MOST_NARROWER) * wide / timed_columns(wide, rates)


@dataclass(frozen=True, slots=True)
class TileBlock:
    """`rows` x `count` tiles of `width` columns, the first at row of tiles `row` and at column `column`."""

    row: int
    rows: int
    column: int
    count: int
    width: int

    @property
    def tiles(self) -> int:
        """How many tiles."""
        return self.rows * self.count


@dataclass(frozen=True, slots=True)
class MixedWidths:
    """Blocks that cover a result, numbered one after another: those of the widest tiles first."""

    blocks: tuple[TileBlock, ...]

    @property
    def wide(self) -> int:
        """Columns of the tiles that are numbered first."""
        return self.blocks[0].width

    @property
    def narrow(self) -> int:
        """Columns of the others."""
        return self.blocks[-1].width

    @property
    def first_narrow(self) -> int:
        """How many wide tiles there are, which is the number of the first narrow one."""
        return sum(block.tiles for block in self.blocks if block.width == self.wide)

    @property
    def tiles(self) -> int:
        """All tiles."""
        return sum(block.tiles for block in self.blocks)

    def columns(self, rates: RoleRates) -> float:
        """Columns of all tiles together, by the time they take."""
        return sum(block.tiles * timed_columns(block.width, rates) for block in self.blocks)

    def most_columns(self, workgroups: int, rates: RoleRates) -> float:
        """Columns that the first of `workgroups` computes where each takes every `workgroups`-th tile, by their time: no other has more."""
        wide = -(-self.first_narrow // workgroups)
        narrow = -(-self.tiles // workgroups) - wide
        return wide * timed_columns(self.wide, rates) + narrow * timed_columns(self.narrow, rates)

    def numbers(self) -> list[int]:
        """The blocks as one list, five numbers each."""
        return [number for b in self.blocks for number in (b.row, b.rows, b.column, b.count, b.width)]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "MixedWidths":
        """The inverse of `numbers`."""
        return cls(tuple(TileBlock(*numbers[at : at + 5]) for at in range(0, len(numbers), 5)))


def _blocks(columns: int, groups: Sequence[tuple[int, int]], wide: int, narrow: int) -> MixedWidths | None:
    """Blocks for `groups` of rows of tiles: how many rows, and into how many tiles each of them is cut."""
    first: list[TileBlock] = []
    second: list[TileBlock] = []
    row = 0
    for rows, count in groups:
        of_wide = max(0, -(-(columns - narrow * count) // (wide - narrow)))
        if of_wide > count or (count - 1) * narrow >= columns:
            return None
        if of_wide:
            first.append(TileBlock(row, rows, 0, of_wide, wide))
        if count > of_wide:
            second.append(TileBlock(row, rows, of_wide * wide, count - of_wide, narrow))
        row += rows
    return MixedWidths((*first, *second)) if first and second else None


def _candidates(rows: int, columns: int, wide: int, narrow: int, workgroups: int) -> Iterator[MixedWidths]:
    fewest = -(-columns // wide)
    spare = -(-rows * fewest // workgroups) * workgroups - rows * fewest
    more, left = divmod(spare, rows)
    # All rows have `more` tiles beyond the fewest; what is left goes to some rows, `most` to each.
    for most in range(1, MOST_MORE + 1):
        some = left // most
        groups = [(count, tiles) for count, tiles in ((rows - some, fewest + more), (some, fewest + more + most)) if count]
        found = _blocks(columns, groups, wide, narrow)
        if found is not None:
            yield found


def narrow_widths(wide: int, step: int) -> range:
    """The widths that tiles beside those of `wide` columns may have, widest first. `step`: of the matrix instruction's widths."""
    return range((wide - 1) // step * step, wide - wide // MOST_NARROWER - 1, -step)


@lru_cache(maxsize=512)
def mixed_widths(rows: int, columns: int, wide: int, narrow: int, workgroups: int, rates: RoleRates) -> MixedWidths | None:
    """Tiles of `wide` and of `narrow` columns for `rows` rows of tiles over `columns` columns, so that the busiest of `workgroups` takes
    less time than with tiles of `wide` columns alone; None where there is no such choice. Who looks for tiles asks, their model asks again.
    """
    rounds = -(-rows * -(-columns // wide) // workgroups)
    found = _candidates(rows, columns, wide, narrow, workgroups)
    best = min(found, key=lambda mixed: (mixed.most_columns(workgroups, rates), mixed.columns(rates)), default=None)
    return best if best is not None and best.most_columns(workgroups, rates) < rounds * timed_columns(wide, rates) else None
