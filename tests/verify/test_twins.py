"""Pairs of kernels of which one is wrong and the other right: neither verdict is another one, and none takes long."""

from time import process_time

import pytest
from hazards.kernels import kernel_of
from verify import twins_nests, twins_rings, twins_schedules, twins_sizes
from verify.step_programs import FILL, USE, ring, turn

from treadle.dialects import tile
from treadle.verify.check import prove
from treadle.verify.reports import Verdict

SECONDS = 2
WRONG = {**twins_sizes.WRONG, **twins_rings.WRONG, **twins_nests.WRONG, **twins_schedules.WRONG}
RIGHT = {**twins_sizes.RIGHT, **twins_rings.RIGHT, **twins_nests.RIGHT, **twins_schedules.RIGHT}


def verdict_of(text: str) -> Verdict:
    """In time, in one of three tries: Python may look through all objects of the tests before meanwhile."""
    for _ in range(3):
        kernel, start = kernel_of(text), process_time()
        verdict = prove(kernel)
        if process_time() - start < SECONDS:
            return verdict
    pytest.fail(f"no verdict in {SECONDS} s")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones(name: str) -> None:
    """Where one is not refuted, an operation is named."""
    verdict = verdict_of(WRONG[name])
    assert not verdict.is_proven
    assert all(not isinstance(left.op, tile.KernelOp) and left.reason for left in verdict.undecided)


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones(name: str) -> None:
    verdict = verdict_of(RIGHT[name])
    assert verdict.is_proven, verdict.first_error("k")


def test_barriers_that_nobody_uses() -> None:
    """They are no ring of any counter."""
    unused = "  %more = sync.mbarrier_alloc 1 : i64 slots 3 : i64 : !sync.mbarrier"
    producer, consumer = (["  scf.for %i = %c0 to %n step %c1 {", *turn("%i"), *body, "  }"] for body in (FILL, USE))
    assert prove(kernel_of(ring(producer, consumer, unused))).is_proven
