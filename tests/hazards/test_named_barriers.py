"""Warp counts of named barriers: the verifier and the simulator say the same."""

import pytest
from hazards.campaign import simulator_objects
from hazards.kernels import kernel_of
from hazards.programs_nvidia import groups_apart, ping_pong
from hazards.schedules import alloc, constants, kernel, roles, view

from treadle.dialects import sync
from treadle.errors import TreadleError
from treadle.ir.text import parse_module, print_module
from treadle.verify.check import prove
from treadle.verify.verify_schedule import explained_verdict

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
    return not prove(made).is_proven, simulator_objects(made, ())


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
    if count > 8:
        with pytest.raises(TreadleError, match=r"TR416.*warps 9 is not between 1 and 8"):
            kernel_of(text)
        text = text.replace("num_warps = 8", "num_warps = 9")
    assert objections(text) == (True, True)


def test_groups_at_barriers_of_their_own() -> None:
    text = groups_apart()
    printed = print_module(parse_module(text, "x.mlir"))
    assert print_module(parse_module(printed, "x.mlir")) == printed
    barriers = [op for op in kernel_of(printed).walk() if isinstance(op, sync.NamedBarrierOp)]
    assert [op.number(group) for op in barriers for group in (0, 1)] == [3, 4, 3, 4]
    assert objections(text) == (False, False)
    shared = text.replace("per_group warps", "warps")
    assert objections(shared) == (True, True), "two groups at one barrier for the warps of one"
    both = shared.replace("warps 4 : i64", "warps 8 : i64")
    assert objections(both) == (False, False), "both at every meeting"
    assert objections(groups_apart().replace("%steps step", "%c2 step").replace("warps 4", "warps 3")) == (True, True)


def test_a_barrier_for_each_group_is_proposed() -> None:
    once = groups_apart().replace("per_group warps", "warps", 1)
    fixes = [found.fix for found in explained_verdict(kernel_of(once)).findings]
    assert any("give each group a barrier of its own" in fix for fix in fixes), fixes
    missing = groups_apart().replace("  sync.named_barrier 3 : i64 per_group warps 4 : i64\n", "", 1)
    fixes = [found.fix for found in explained_verdict(kernel_of(missing)).findings]
    assert any("sync.named_barrier of the group's 4 warps" in fix for fix in fixes), fixes
