"""Global arrays that are read and written: what is right is proven, what is wrong is not, with the operation that is to blame."""

from time import process_time

import pytest
from hazards.kernels import kernel_of
from hazards.programs_global import RIGHT, WRONG

from treadle.verify.check import prove

MAX_SECONDS = 2.0
NOT_DECIDED = {
    "two views with strides known at run time",
    "a transposed view with strides known at run time",
    "two unknown offsets",
    "quotient and remainder by different sizes",
    "a stride that changes in the loop",
    "a row by a counter of eight bits, which wraps",
}
"""Wrong, or wrong for some sizes, by what the forms of the accesses do not say."""


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_proven(name: str) -> None:
    start = process_time()
    verdict = prove(kernel_of(RIGHT[name]()), stores=True)
    assert not verdict.findings, verdict.findings[0].explain()
    assert not verdict.undecided, verdict.undecided[0].reason
    assert process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_not_proven(name: str) -> None:
    verdict = prove(kernel_of(WRONG[name]()), stores=True)
    if name in NOT_DECIDED:
        assert not verdict.findings
        assert {found.op.name for found in verdict.undecided} <= {"tile.load", "tile.store"} and verdict.undecided
    else:
        assert verdict.findings
        assert verdict.findings[0].first is not None and verdict.findings[0].steps


def test_a_witness_names_sizes_workgroups_and_elements() -> None:
    found = prove(kernel_of(WRONG["tiles taken twice"]())).findings[0]
    assert any(step.startswith("with n = ") for step in found.steps)
    assert sum("workgroup [" in step and "iteration" in step for step in found.steps) == 2


def test_stores_that_are_not_compared_are_an_assumption() -> None:
    kernel = kernel_of(WRONG["all workgroups store to one tile"]())
    assert prove(kernel, stores=True).findings
    verdict = prove(kernel)
    assert verdict.is_proven and any("%a, which is only written" in assumed for assumed in verdict.assumptions)


def test_views_are_assumed_to_overlap_nowhere_where_only_the_caller_knows() -> None:
    assert prove(kernel_of(RIGHT["strides known at run time"]())).assumptions
    assert not prove(kernel_of(RIGHT["sizes known at run time"]())).assumptions
