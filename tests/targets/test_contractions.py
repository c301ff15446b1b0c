"""Contractions to audited machine code: shapes that once failed."""

import pytest
from generators.contractions import ContractionCase

from treadle.driver.lowering import Lowered, lower
from treadle.driver.sources import Source
from treadle.options import CompileOptions


def compiled(case: ContractionCase) -> Lowered:
    """The artifact of a case; raises what the compiler does."""
    return lower(Source(case.text, "case.mlir"), case.target, CompileOptions(tuned=False, **case.options), None)


NARROW = [
    ContractionCase(6912, 256, 256, "f16", "nn", "f16"),
    ContractionCase(15064, 128, 184, "bf16", "nt", "bf16"),
    ContractionCase(2464, 1880, 14, "bf16", "tn", "bf16"),
]


@pytest.mark.parametrize("case", NARROW, ids=lambda case: case.name)
def test_tiles_narrower_than_a_box_are_not_chosen(case: ContractionCase) -> None:
    compiled(case)
