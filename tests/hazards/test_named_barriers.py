"""Warp counts of named barriers: the verifier and the simulator say the same."""

import pytest
from hazards.campaign import simulator_objects
from hazards.kernels import kernel_of
from hazards.programs_nvidia import ping_pong
from hazards.schedules import alloc, constants, kernel, roles, view

from treadle.verify.check import verify_kernel

BOTH, ALONE = "  sync.named_barrier 3 : i64 warps 2 : i64", "  sync.named_barrier 3 : i64 warps 1 : i64"


def meeting(left: list[str], right: list[str]) -> str:
    """Two roles of one warp."""
    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        view("%va", "%a", 64, 64),
        view("%vc", "%c", 64, 64),
        constants(0),
        alloc("%s"),
        roles(("left", "right"), (1, 1), (1, 1), "\n".join(left), "\n".join(right)),
        warps=2,
        pointers=2,
    )


def objections(text: str) -> tuple[bool, bool]:
    made = kernel_of(text)
    return bool(verify_kernel(made)), simulator_objects(made, ())


@pytest.mark.parametrize(
    ("left", "right", "is_right"),
    [
        ([BOTH, BOTH], [BOTH, BOTH], True),
        ([BOTH, ALONE], [BOTH], True),  # who took part knows that it is over
        ([ALONE, BOTH], [BOTH], False),  # the right one may come first, and finds another count
        ([BOTH], [ALONE], False),
        ([BOTH + " arrive", BOTH], [BOTH, BOTH], False),  # the first meeting may not be over
        ([BOTH, BOTH + " arrive"], [BOTH, BOTH], True),
    ],
)
def test_meetings(left: list[str], right: list[str], is_right: bool) -> None:
    assert objections(meeting(left, right)) == (not is_right, not is_right)


@pytest.mark.parametrize("count", [7, 9])
@pytest.mark.parametrize("which", range(6))
def test_one_warp_more_or_less_than_the_partners(which: int, count: int) -> None:
    parts = ping_pong().split("warps 8 : i64")
    assert len(parts) == 7
    text = "warps 8 : i64".join(parts[: which + 1]) + f"warps {count} : i64" + "warps 8 : i64".join(parts[which + 1 :])
    assert objections(text) == (True, True)
