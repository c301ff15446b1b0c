"""Proofs cover all sizes, workgroups, iterations: faults that few of them show are found, and right programs are proven."""

from time import process_time

import pytest
from hazards.kernels import kernel_of
from verify.class_programs import RIGHT, WRONG
from verify.random_control import drawn

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


@pytest.mark.parametrize("block", range(6))
def test_random_control(block: int) -> None:
    """Whatever decides where the barrier is: never proven where it is missing for small sizes, never refuted where it is not."""
    open_ones = 0
    for seed in range(20 * block, 20 * block + 20):
        text, is_right = drawn(seed)
        verdict = prove(kernel_of(text))
        if is_right:
            assert not verdict.findings, (seed, verdict.findings[0].explain())
            open_ones += not verdict.is_proven
        else:
            assert not verdict.is_proven, seed
    assert open_ones <= 3, "residues of several sizes and the loop's number together may be too many classes; little else"
