"""Tiles of two widths: they cover the result, and the busiest workgroup has less to do than with one width."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.mixed_widths import MixedWidths, least_part, mixed_widths, narrow_widths, timed_columns

RATES = target_spec("sm_90a").rates.roles


def columns_of(mixed: MixedWidths, workgroups: int) -> list[int]:
    """Columns that each workgroup computes, tile by tile."""
    widths = [block.width for block in mixed.blocks for _ in range(block.tiles)]
    return [sum(widths[first::workgroups]) for first in range(workgroups)]


def covered(mixed: MixedWidths, rows: int) -> list[list[tuple[int, int]]]:
    """By row of tiles, the column ranges of its tiles in order."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    for block in mixed.blocks:
        for row in range(block.row, block.row + block.rows):
            found[row] += [(block.column + at * block.width, block.width) for at in range(block.count)]
    return [sorted(row) for row in found]


@given(st.integers(1, 70), st.integers(1, 9000), st.sampled_from([128, 224, 256]), st.sampled_from([16, 24, 32]), st.integers(1, 140))
def test_every_column_of_every_row_is_in_one_tile(rows: int, columns: int, wide: int, less: int, workgroups: int) -> None:
    mixed = mixed_widths(rows, columns, wide, wide - less, workgroups, RATES)
    if mixed is None:
        return
    for row in covered(mixed, rows):
        at = 0
        for start, width in row:
            assert start == at < columns
            at += width
        assert at >= columns
    assert (mixed.wide, mixed.narrow) == (wide, wide - less)


@given(st.integers(1, 70), st.integers(1, 9000), st.sampled_from([128, 224, 256]), st.integers(1, 140))
def test_the_busiest_workgroup_has_less_to_do(rows: int, columns: int, wide: int, workgroups: int) -> None:
    mixed = mixed_widths(rows, columns, wide, wide - 16, workgroups, RATES)
    if mixed is None:
        return
    busiest = max(columns_of(mixed, workgroups))
    assert busiest == mixed.most_columns(workgroups, RATES) < -(-rows * -(-columns // wide) // workgroups) * wide
    assert sum(columns_of(mixed, workgroups)) == mixed.columns(RATES)


def test_wide_tiles_are_numbered_first() -> None:
    mixed = mixed_widths(32, 4096, 256, 240, 132, RATES)
    assert mixed is not None
    assert mixed.tiles == 4 * 132
    assert [block.width for block in mixed.blocks] == sorted((block.width for block in mixed.blocks), reverse=True)
    assert mixed.first_narrow == sum(block.tiles for block in mixed.blocks if block.width == 256)


@pytest.mark.parametrize(
    ("rows", "columns", "most"),
    [(32, 4096, 1008), (64, 8192, 3984), (16, 6144, 752), (16, 28672, 3488)],
)
def test_rounds_of_large_results_are_nearly_full(rows: int, columns: int, most: int) -> None:
    """The columns of all rows, spread over 132 workgroups, are 97 % of whole rounds of 256; these are within 1.6 % of that."""
    mixed = mixed_widths(rows, columns, 256, 240, 132, RATES)
    assert mixed is not None
    assert mixed.most_columns(132, RATES) == most


def test_full_rounds_and_single_rounds_stay_as_they_are() -> None:
    assert mixed_widths(33, 4096, 256, 240, 132, RATES) is None
    assert mixed_widths(16, 2048, 256, 240, 132, RATES) is None
    assert mixed_widths(16, 4096, 256, 240, 132, RATES) is None, "half of 264 tiles would have to be narrower than 240"


def test_widths_are_multiples_of_the_instruction() -> None:
    assert list(narrow_widths(256, 8)) == [248, 240, 232, 224]
    assert list(narrow_widths(256, 32)) == [224]
    assert list(narrow_widths(160, 8)) == [152, 144]
    assert list(narrow_widths(96, 8)) == [88]
    assert not list(narrow_widths(56, 8))


@given(st.integers(1, 600))
def test_the_last_columns_take_longer_than_their_part(width: int) -> None:
    assert width <= timed_columns(width, RATES) <= -(-width // 16) * 16
    assert timed_columns(width, RATES) < timed_columns(width + 1, RATES)
    assert (timed_columns(width, RATES) == width) == (width % 16 == 0)


def test_blocks_as_numbers_and_back() -> None:
    mixed = mixed_widths(16, 28672, 256, 240, 132, RATES)
    assert mixed is not None
    assert MixedWidths.of(mixed.numbers()) == mixed


@pytest.mark.parametrize("wide", range(32, 257, 8))
def test_tiles_beside_others_take_no_less_than_their_part(wide: int) -> None:
    parts = [timed_columns(narrow, RATES) / timed_columns(wide, RATES) for narrow in narrow_widths(wide, 8)]
    assert all(1 > part >= least_part(wide, RATES) - 1e-12 for part in parts)


def test_rates_decide_whatever_was_asked_before() -> None:
    asked = (32, 4096, 256, 240, 132)
    slow = replace(RATES, full_step=256, step_saved=0.0)  # narrow tiles take as long as wide ones
    assert mixed_widths(*asked, RATES) is not None
    assert mixed_widths(*asked, slow) is None
    assert mixed_widths(*asked, RATES) is not None
