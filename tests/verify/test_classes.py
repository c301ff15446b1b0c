"""Proofs cover all sizes, workgroups, iterations: faults that few of them show are found, and right programs are proven."""

from time import process_time

import pytest
from hazards.kernels import kernel_of
from verify.class_programs import RIGHT, WRONG

from treadle.verify.check import prove

MAX_SECONDS = 2.0


@pytest.mark.parametrize("name", WRONG)
def test_no_wrong_program_is_proven(name: str) -> None:
    start = process_time()
    verdict = prove(kernel_of(WRONG[name]))
    assert not verdict.is_proven
    assert process_time() - start < MAX_SECONDS
    assert verdict.findings or verdict.undecided[0].op.name


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_proven(name: str) -> None:
    start = process_time()
    verdict = prove(kernel_of(RIGHT[name]))
    assert verdict.is_proven, verdict.first_error("k")
    assert process_time() - start < MAX_SECONDS
