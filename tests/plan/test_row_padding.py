"""What copies with longer rows are modelled to take and to gain."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.machine import target_spec
from treadle.plan.padded_copies import copy_seconds, whole_pieces, whole_rows
from treadle.plan.rasters import KEPT_SHARE
from treadle.plan.row_padding import MOST_COPIED_BYTES, OperandCopy, Pitches, copying_seconds, row_padding
from treadle.plan.split_choices import SplitContraction
from treadle.plan.tile_config import ContractionShape, contraction_types

SPEC = target_spec("sm_90a")


def problems(m: int, n: int, k: int) -> dict[Pitches, SplitContraction]:
    """A product of f16 whose rows of A and of B are `k` elements apart, with copies of either, of both, and without."""
    types = contraction_types(SPEC, "f16", "f16", "f32", ("", ""), allow_tf32=False)
    row, line = (2 * k) & -(2 * k), SPEC.line_bytes
    whole = SplitContraction(ContractionShape(1, m, n, k), types, 2, 2, 4, (row, row), (True, True), lying_rows=(row, row))
    wide = whole_pieces(k, 2, line)
    choices = [(a, b) for a in (0, wide) for b in (0, wide)]
    return {each: replace(whole, copied_rows=(line if each[0] else row, line if each[1] else row)) for each in choices}


def copies(m: int, n: int, k: int) -> list[OperandCopy]:
    return [OperandCopy(2 * rows * k, 2 * rows * k) for rows in (m, n)]


@pytest.mark.parametrize(("elements", "size", "piece", "whole"), [(83, 2, 16, 88), (88, 2, 16, 88), (83, 1, 128, 128), (5, 4, 128, 32)])
def test_whole_pieces(elements: int, size: int, piece: int, whole: int) -> None:
    assert whole_pieces(elements, size, piece) == whole


def test_what_the_cache_keeps_takes_no_time_to_write() -> None:
    kept = int(KEPT_SHARE * SPEC.product.l2_bytes)
    small, large = OperandCopy(kept, kept), OperandCopy(kept + 128, kept + 128)
    assert copying_seconds([small], SPEC) == copy_seconds(kept, 1, SPEC)
    assert copying_seconds([large], SPEC) == copy_seconds(2 * (kept + 128), 1, SPEC)


def test_operands_of_one_type_take_one_launch() -> None:
    one, other, third = (OperandCopy(1000, 1000, kind) for kind in ("a", "a", "b"))
    assert copying_seconds([one, other], SPEC) == copy_seconds(2000, 1, SPEC)
    assert copying_seconds([one, third], SPEC) == copy_seconds(2000, 2, SPEC)
    assert copying_seconds([OperandCopy(1000, 1000)] * 2, SPEC) == copy_seconds(2000, 2, SPEC)


def test_large_products_are_clearly_faster_with_copies() -> None:
    found = row_padding(problems(5000, 3000, 4001), copies(5000, 3000, 4001), SPEC, splits=True)
    assert found is not None and found.is_clear
    assert found.pitches == (4032, 4032)
    assert found.seconds < 0.6 * found.seconds_as_is


def test_small_ones_are_not() -> None:
    found = row_padding(problems(64, 48, 83), copies(64, 48, 83), SPEC, splits=True)
    assert found is not None and not found.is_clear


def test_one_operand_may_be_worth_it_alone() -> None:
    """Rows of a large A of whole eight bytes and a small B: what is copied once is little of what tiles copy again and again."""
    shape = (200_000, 192, 131)
    found = row_padding(problems(*shape), copies(*shape), SPEC, splits=True)
    assert found is not None
    assert 0 in found.pitches


def test_copies_that_take_too_much_memory_are_no_choice() -> None:
    known, (a, b) = problems(5000, 3000, 4001), copies(5000, 3000, 4001)
    large = OperandCopy(a.read, MOST_COPIED_BYTES + 1)
    found = row_padding(known, [large, b], SPEC, splits=True)
    assert found is not None and found.pitches == (0, 4032)
    assert row_padding(known, [large, large], SPEC, splits=True) is None


@given(elements=st.integers(1, 5000), element_bytes=st.sampled_from([1, 2, 4]))
def test_rows_of_copies_begin_at_lines_or_fill_most_of_a_part_of_one(elements: int, element_bytes: int) -> None:
    pitch = whole_rows(elements, element_bytes, SPEC) * element_bytes
    assert pitch % SPEC.max_vector_bytes == 0
    assert pitch >= elements * element_bytes
    if pitch % SPEC.line_bytes:
        assert pitch in (16, 32, 64)
        assert pitch == 16 or 2 * elements * element_bytes > pitch
    else:
        assert 2 * elements * element_bytes > SPEC.line_bytes
