"""What turned copies are modelled to take and to gain."""

from dataclasses import replace

import pytest

from treadle.machine import target_spec
from treadle.plan.row_padding import OperandCopy, Pitches, RowPadding, row_padding
from treadle.plan.split_choices import SplitContraction
from treadle.plan.tile_config import ContractionShape, contraction_types
from treadle.plan.turned_operands import CLEAR_GAIN, LEAST_SAVED_SECONDS, is_clear

SPEC = target_spec("sm_90a")


def found(m: int, n: int, k: int, along_k: tuple[bool, bool] = (True, True)) -> RowPadding:
    """The choice for a product of f32."""
    types = contraction_types(SPEC, "f32", "f32", "f32", ("", ""), allow_tf32=False)
    whole = SplitContraction(ContractionShape(1, m, n, k), types, 4, 4, 4, (0, 0), along_k)
    choices: list[Pitches] = [(a, b) for a in (0, m)[: 1 + along_k[0]] for b in (0, n)[: 1 + along_k[1]]]
    problems = {each: replace(whole, along_k=(along_k[0] and not each[0], along_k[1] and not each[1])) for each in choices}
    best = row_padding(problems, [OperandCopy(4 * rows * k, 4 * rows * k) for rows in (m, n)], SPEC, splits=True)
    assert best is not None
    return best


@pytest.mark.parametrize(
    ("along_k", "pitches", "most"),
    [((True, True), (4096, 4096), 0.95), ((True, False), (4096, 0), CLEAR_GAIN), ((False, True), (0, 4096), CLEAR_GAIN)],
)
def test_large_products_are_clearly_faster(along_k: tuple[bool, bool], pitches: Pitches, most: float) -> None:
    """The contractions alone were measured on an H200; with copies reckoned at 4.3 TB/s they come to 0.94 of the time for both operands, to
    0.975 for A alone, where the model has 0.915 and 0.94.
    """
    best = found(4096, 4096, 4096, along_k)
    assert best.pitches == pitches and is_clear(best)
    assert 0.85 < best.seconds / best.seconds_as_is <= most


@pytest.mark.parametrize("sizes", [(64, 48, 83), (512, 512, 512), (1024, 1024, 1024), (12536, 120, 392)])
def test_small_ones_are_not(sizes: tuple[int, int, int]) -> None:
    assert not is_clear(found(*sizes))


def test_the_large_operand_of_few_tiles_is_read_as_it_is() -> None:
    """Each element is turned for one tile, or two: the copy would read and write it besides."""
    assert found(192, 17152, 12416).pitches == (192, 0)


def test_gains_are_clear_in_parts_and_in_seconds() -> None:
    assert is_clear(RowPadding((8, 0), CLEAR_GAIN, 1))
    assert not is_clear(RowPadding((8, 0), CLEAR_GAIN + 0.001, 1))
    assert is_clear(RowPadding((8, 0), 0.0, LEAST_SAVED_SECONDS))
    assert not is_clear(RowPadding((8, 0), 1e-7, LEAST_SAVED_SECONDS))
