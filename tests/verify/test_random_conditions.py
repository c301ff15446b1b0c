"""Random kernels of conditions, and twins of them with one slip: `python tests/verify/test_random_conditions.py FIRST LAST` tries more,
with `rests` behind it those whose inner loops go to what is left of the outer one.
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from hazards.kernels import kernel_of
from verify.random_conditions import Kernel, drawn, is_right, text_of, uses_rest

from treadle.verify.check import prove

RESTS = (5, 17, 25, 27, 36, 39)


def judged(kernel: Kernel) -> tuple[bool, str]:
    """Whether a kernel is right, for small sizes and those that a finding names; and the verdict on it."""
    verdict = prove(kernel_of(text_of(kernel)))
    right = is_right(kernel)
    if right and verdict.findings:
        sizes = dict(verdict.findings[0].where)
        right = is_right(kernel, (sizes.get("%n", 1), sizes.get("%m", 1)))
    return right, verdict.status


@pytest.mark.parametrize("block", range(4))
def test_conditions_and_slips(block: int) -> None:
    for seed in range(6 * block, 6 * block + 6):
        for kernel in drawn(seed):
            right, status = judged(kernel)
            assert (status == "proven") == right, seed


def test_what_is_left_in_many_pieces() -> None:
    """To make fewer pieces of what is left of the sizes after each class took longer than all else."""
    kernel = drawn(262)[1]
    assert judged(kernel) == (True, "proven")


@pytest.mark.parametrize("seed", [1038, 1228])
def test_what_is_done_in_one_iteration_and_what_is_the_larger_of_two(seed: int) -> None:
    """Behind that iteration each warp would run to the end alone; of a remainder of the larger of two numbers, that of both matters."""
    assert judged(drawn(seed)[1]) == (True, "proven")


@pytest.mark.parametrize("seed", RESTS)
def test_inner_loops_to_what_is_left_of_the_outer_one(seed: int) -> None:
    for kernel in drawn(seed, rests=True):
        assert uses_rest(kernel.body)
        right, status = judged(kernel)
        assert (status == "proven") == right


def main(first: int, last: int, *, rests: bool = False) -> int:
    """Print how many of each there were; 1 where a wrong one is proven, or a right one is not."""
    found: Counter[tuple[str, str]] = Counter()
    bad = 0
    for seed in range(first, last):
        for which, kernel in zip(("kernel", "twin"), drawn(seed, rests=rests), strict=True):
            if rests and not uses_rest(kernel.body):
                continue
            right, status = judged(kernel)
            found["right" if right else "wrong", status] += 1
            if (status == "proven") != right:
                bad += 1
                print(f"seed {seed}, {which}: {'right' if right else 'wrong'}, {status}", flush=True)
    for (kind, status), count in sorted(found.items()):
        print(f"{kind:6} {status:20} {count:6}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), rests="rests" in sys.argv[3:]))
