"""The proof of kernels whose workgroups take turns: right ones for all sizes, wrong ones refused with the reason."""

import pytest
from generators.arrivals import scheduled, split_rows
from generators.turns import WRONG, fixed_sum, turn_sum

from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.verify.check import prove
from treadle.verify.faults import changed, erase, faults
from treadle.verify.reports import Verdict

ASSUMED = (
    "%counters is zero before the launch, as it is behind it",
    "workgroups begin in the order of their numbers in the grid, its first axis fastest",
)


def verdict(text: str, target: str = "sm_90a") -> Verdict:
    return prove(scheduled(text, target), stores=True)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("text", [turn_sum(), fixed_sum(3, 700, 4)], ids=["any size", "known sizes"])
def test_right_kernels(text: str, target: str) -> None:
    found = verdict(text, target)
    assert (found.status, found.assumptions) == ("proven", ASSUMED)


LINES = {
    "parts innermost": "%row = arith.divui %pid, %four : index\n  %part = arith.remui %pid, %four : index",
    "parts outermost": "%row = arith.remui %pid, %seven : index\n  %part = arith.divui %pid, %seven : index",
}


@pytest.mark.parametrize("name", LINES)
def test_workgroups_in_one_line(name: str) -> None:
    """Turns are quotients and remainders of one id, which grows with the turn of each counter in both orders."""
    text = turn_sum(count="%four", counters="%seven", grid='"28"').replace("%part = tile.program_id 1 : i64", "")
    text = text.replace("%row = tile.program_id 0", "%pid = tile.program_id 0").replace("  %first = ", f"  {LINES[name]}\n  %first = ", 1)
    text = text.replace("  %c0 = ", "  %four = arith.constant 4 : index\n  %seven = arith.constant 7 : index\n  %c0 = ", 1)
    assert verdict(text).is_proven
    assert not verdict(text.replace('["28"]', '["29"]')).is_proven
    backwards = text.replace("turn %part", "turn %down").replace(
        "  %upto = ", "  %top = arith.constant 3 : index\n  %down = arith.subi %top, %part : index\n  %upto = ", 1
    )
    assert "it may begin only when this one has ended" in str(verdict(backwards).first_error("k"))


def test_the_axes_of_the_grid_have_an_order() -> None:
    """The first axis is the fastest: parts along it are in order, too, and along the second one whatever the rows are."""
    assert verdict(turn_sum(grid='"parts", "rows"', axes=(1, 0))).is_proven
    assert verdict(turn_sum(grid='"parts", "1", "rows"', axes=(2, 0))).is_proven


REASONS = {
    "backwards": "a workgroup may wait for ever",
    "one too many": "a counter counts more workgroups than arrive",
    "one too few": "more workgroups arrive at a counter than it counts",
    "one counter for all": "two workgroups of a counter may have the same turn",
    "a counter a part": "two workgroups of a counter may have the same turn",
    "one row for all": "nothing orders the two",
    "the turn behind": "the numbers of its workgroups do not go from 0 to its count",
    "ends another turn": "a workgroup ends another turn than it waits for",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels(name: str) -> None:
    found = verdict(WRONG[name])
    assert not found.is_proven
    said = [f"{finding.message} {' '.join(finding.steps)}" for finding in found.findings] + [str(each) for each in found.undecided]
    assert REASONS[name] in " ".join(said)


def test_waits_for_later_workgroups_are_shown() -> None:
    (first, *_) = verdict(WRONG["backwards"]).findings
    assert first.rule == "V5"
    assert "workgroup [0, 0], turn 1, waits for turn 0, which is that of workgroup [0, 1]" in first.steps[-1]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_every_fault_is_found(target: str) -> None:
    """The wait, its acquire, the barriers, the end of the turn, its release and the number it leaves: nothing is proven without. Waves'
    accesses to shared memory are retired before the turn, so that its barriers may be bare.
    """
    kernel = scheduled(fixed_sum(2, 300, 3), target)
    proven = [fault.description for fault in faults(kernel, ("remove", "weaken")) if prove(fault.kernel).is_proven]
    assert all(text.endswith("bare") for text in proven) and (target == "gfx942") == bool(proven)
    descriptions = " ".join(fault.description for fault in faults(kernel))
    words = ["await_turn", "pass_turn", "releases nothing", "acquires nothing", "does not reset the counter", "another turn"]
    assert all(word in descriptions for word in words)


def test_a_turn_has_two_ends() -> None:
    kernel = scheduled(turn_sum(), "sm_90a")
    for kind, message in ((tile.AwaitTurnOp, "waits for the turn"), (tile.PassTurnOp, "nothing behind it in its block ends the turn")):
        found = prove(changed(kernel, at(kernel, kind), erase), stores=True)
        assert found.status == "refuted" and any(message in finding.message for finding in found.findings)


def at(kernel: tile.KernelOp, kind: type[Operation]) -> int:
    return next(number for number, op in enumerate(kernel.walk()) if isinstance(op, kind))


def test_the_threads_of_a_single_warp_meet() -> None:
    """A warp is one agent, but not one thread: the one that waits tells the others by a barrier, and hears of them by one."""
    kernel = scheduled(turn_sum().replace("num_warps = 4", "num_warps = 1"), "sm_90a")
    assert prove(kernel, stores=True).is_proven
    barriers = [number for number, op in enumerate(kernel.walk()) if isinstance(op, sync.BarrierOp)]
    found = [prove(changed(kernel, number, erase), stores=True) for number in barriers]
    assert sum("do not meet" in one.findings[0].message for one in found if not one.is_proven) >= 2
    assert sum(one.is_proven for one in found) <= 1


def test_bulk_copies_of_what_others_wrote() -> None:
    """Turns do not order them: no fence joins the proxies of two workgroups."""
    text = split_rows(tail='  tile.pass_turn %arrived[%c0] turn %part of %parts order "relaxed" : memref<1xi32, strided<[1]>>')
    start = '  tile.await_turn %arrived[%c0] turn %part of %parts order "relaxed" : memref<1xi32, strided<[1]>>\n'
    text = text[: text.index("  %last = ")] + "  tile.return\n}\n"
    inside = text.replace("  tile.copy_out", f"{start}  tile.copy_out", 1)
    assert verdict(inside).is_proven  # each has rows of its own
    assert not verdict(inside.replace("%partial[%row, %c0]", "%partial[%c0, %c0]")).is_proven


def test_counters_are_for_turns_alone() -> None:
    """A store to them makes the turn anything."""
    store = (
        "  %number = arith.constant dense<1> : tensor<1xi32>\n"
        "  tile.store %number, %arrived[%row] dims array<i64: 0> vector 1 : i64 : tensor<1xi32>, memref<?xi32, strided<[1]>>"
    )
    assert not verdict(turn_sum(extra=store)).is_proven
