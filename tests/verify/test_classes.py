"""Proofs cover all sizes, workgroups, iterations: faults that few of them show are found, and right programs are proven."""

from time import process_time

import pytest
from hazards.kernels import kernel_of
from verify import class_programs, ring_programs, step_programs, turning_programs, width_programs
from verify.random_control import drawn

from treadle.verify.check import prove
from treadle.verify.reports import Verdict
from treadle.verify.verify_schedule import COMPILED

MAX_SECONDS = 2.0
WRONG = {**class_programs.WRONG, **ring_programs.WRONG, **step_programs.WRONG, **turning_programs.WRONG, **width_programs.WRONG}
RIGHT = {**class_programs.RIGHT, **ring_programs.RIGHT, **step_programs.RIGHT, **turning_programs.RIGHT, **width_programs.RIGHT}


def timed(text: str, effort: int = 1) -> Verdict:
    """The verdict; a proof that takes too long is timed again, since what a process collects of other tests counts, too."""
    for _ in range(2):
        kernel, start = kernel_of(text), process_time()
        verdict = prove(kernel, effort=effort)
        if process_time() - start < MAX_SECONDS:
            return verdict
    raise AssertionError(f"a proof takes more than {MAX_SECONDS} s")


@pytest.mark.parametrize("name", WRONG)
def test_no_wrong_program_is_proven(name: str) -> None:
    verdict = timed(WRONG[name])
    assert not verdict.is_proven
    assert verdict.findings or verdict.undecided[0].op.name


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_proven(name: str) -> None:
    verdict = timed(RIGHT[name])
    assert verdict.is_proven, verdict.first_error("k")


@pytest.mark.parametrize("name", step_programs.LONG)
def test_right_programs_of_many_classes_are_proven(name: str) -> None:
    verdict = timed(step_programs.LONG[name], COMPILED)
    assert verdict.is_proven, verdict.first_error("k")


@pytest.mark.parametrize("block", range(6))
def test_random_control(block: int) -> None:
    """Whatever decides where the barrier is: proven where it is never missing, and nowhere else."""
    for seed in range(20 * block, 20 * block + 20):
        text, is_right = drawn(seed)
        verdict = prove(kernel_of(text))
        assert verdict.is_proven == is_right, (seed, verdict.first_error("k"))
