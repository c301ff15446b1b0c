"""insert-sync on rings that threads fill for another role, by copies that they wait for or by local stores."""

import numpy as np
import pytest
from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    alloc,
    array,
    buffer,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    roles,
    slot,
    store,
    view,
    wgmma,
    zeros,
)

from treadle.dialects import sync, tile
from treadle.errors import TreadleError
from treadle.ir.builtin import IntegerAttr, i64
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.verify.check import prove

ROWS = 448
WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 3))
SHAPES = [(1, 1), (5, 1), (2, 3), (7, 3), (7, 4)]
FILLS, READS = ("cp_async", "stored"), ("loaded", "multiplied")


def fill(how: str) -> str:
    """Rows %i to %i + 64 of %a into the slot %f."""
    if how == "cp_async":
        return f'  tile.copy %a[%i, %c0] dims array<i64: 0, 1>, %f path "cp_async" : {array(ROWS, 64)}, {buffer()}'
    return "\n".join((load("%v", "%a", array(ROWS, 64), "%i, %c0", ROWS_LAYOUT), local_store("%v", "%f", ROWS_LAYOUT)))


def read(how: str) -> str:
    """The tile of the slot %f, or its product with itself, to rows %i to %i + 64 of %c."""
    out = array(ROWS, 64, "f32")
    if how == "multiplied":
        return "\n".join((zeros("%z"), wgmma("%r", "%f", "%f", "%z"), store("%r", "%c", out, "%i, %c0", ACC_LAYOUT, "f32")))
    wide = f"tensor<64x64xf32, {ROWS_LAYOUT}>"
    widened = f"  %w = arith.extf %v : tensor<64x64xf16, {ROWS_LAYOUT}> to {wide}"
    return "\n".join((local_load("%v", "%f", ROWS_LAYOUT), widened, store("%w", "%c", out, "%i, %c0", ROWS_LAYOUT, "f32")))


def step(body: str, slots: int, *, ahead: bool = False) -> str:
    """A role: `body` for each 64 rows. `ahead`: the first of them in front of a loop whose steps run under one another."""
    taken, number = slot("%f", "%p", (slots,), "%s"), f"  %n = pipe.advance %s by %c1 of {slots} : i64"
    loop = "  %e = scf.for %i = {low} to %end step %c64 iter_args(%s = {first}) -> (index) {{"
    inside = "\n".join((taken, body, number, "  scf.yield %n : index"))
    if not ahead:
        return "\n".join((loop.format(low="%c0", first="%c0"), inside, "  }"))
    first = "\n".join((slot("%g", "%p", (slots,), "%q"), body.replace("%f", "%g").replace("%i", "%c0").replace("%v", "%u")))
    started = f"  %q = pipe.advance %c0 by %c0 of {slots} : i64"
    second = f"  %m = pipe.advance %q by %c1 of {slots} : i64"
    return "\n".join((started, first, second, loop.format(low="%c64", first="%m"), inside, "  } {steps_in_flight = 1 : i64}"))


def handed_over(steps: int, slots: int, filled: str, taken: str, *, ahead: bool = False, groups: int = 1) -> str:
    """One role fills a ring, four warps read it."""
    return kernel(
        "%pa: !tile.ptr<f16>, %pc: !tile.ptr<f32>",
        view("%a", "%pa", ROWS, 64),
        view("%c", "%pc", ROWS, 64, "f32"),
        constants(0, 1, 64, slots),
        f"  %end = arith.constant {64 * steps} : index",
        alloc("%p", slots),
        roles(("producer", "consumer"), (4, 4), (groups, 1), step(fill(filled), slots, ahead=ahead), step(read(taken), slots)),
        warps=4 + 4 * groups,
        pointers=2,
    )


def synchronised(text: str) -> tile.KernelOp:
    """The one kernel of a text, after insert-sync."""
    module = parse_module(text, "fills.mlir")
    run_passes(module, [InsertSyncPass()])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def check(made: tile.KernelOp, steps: int, taken: str) -> None:
    """Proven, and right in both modes."""
    assert prove(made).is_proven
    a = (np.arange(ROWS * 64).reshape(ROWS, 64) % 7 - 3).astype(np.float16)
    tiles = a.reshape(-1, 64, 64).astype(np.float32)
    want = (tiles @ tiles if taken == "multiplied" else tiles).reshape(ROWS, 64)
    for mode, seed in WAYS:
        report = simulate(made, [a, np.zeros((ROWS, 64), np.float32)], mode=mode, seed=seed)
        assert report.ok, report
        assert np.array_equal(report.outputs[0].reshape(ROWS, 64)[: 64 * steps], want[: 64 * steps])


@pytest.mark.parametrize("taken", READS)
@pytest.mark.parametrize("filled", FILLS)
@pytest.mark.parametrize(("steps", "slots"), SHAPES)
def test_threads_fill_for_another_role(steps: int, slots: int, filled: str, taken: str) -> None:
    made = synchronised(handed_over(steps, slots, filled, taken))
    check(made, steps, taken)
    names = [op.name for op in made.walk()]
    assert names.count("sync.fence") == (taken == "multiplied"), "only matrix instructions read past the generic proxy"
    assert "sync.named_barrier" not in names, "the ring's barriers order the warps that fill it"


@pytest.mark.parametrize("taken", READS)
@pytest.mark.parametrize(("steps", "slots"), [(2, 2), (7, 3)])
def test_copies_stay_in_flight_under_the_next_step(steps: int, slots: int, taken: str) -> None:
    made = synchronised(handed_over(steps, slots, "cp_async", taken, ahead=True))
    check(made, steps, taken)
    assert [op.pending.value.data for op in made.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "cp_async"] == [1, 0]


def test_all_groups_say_that_a_slot_is_full() -> None:
    made = synchronised(handed_over(3, 2, "stored", "loaded", groups=2))
    assert [op.arrivals.value.data for op in made.walk() if isinstance(op, sync.MbarrierAllocOp)] == [2, 1]


def needed(made: tile.KernelOp) -> list[Operation]:
    """All synchronisation but a wait in front of loops: there all slots are free."""
    ops = [op for op in made.walk() if isinstance(op, sync.WaitPhaseOp | sync.ArriveOp | sync.FenceOp | sync.WaitOp | sync.CommitOp)]
    return [op for op in ops if not isinstance(op, sync.WaitPhaseOp) or isinstance(op.parent_op(), scf.ForOp)]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("taken", READS)
@pytest.mark.parametrize("filled", FILLS)
def test_each_operation_is_needed(filled: str, taken: str, ahead: bool) -> None:
    """Whatever is left out or weakened is found by the proof."""
    text = handed_over(7, 3, filled, taken, ahead=ahead and filled == "cp_async")
    count = len(needed(synchronised(text)))
    assert count >= 4
    for number in range(count):
        made = synchronised(text)
        op = needed(made)[number]
        op.detach()
        op.erase(safe_erase=False)
        assert not prove(made).is_proven, f"without {op.name}"


@pytest.mark.parametrize("taken", READS)
def test_weaker_waits_are_found(taken: str) -> None:
    text = handed_over(7, 3, "cp_async", taken)
    made = synchronised(text)
    wait = next(op for op in made.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "cp_async")
    wait.properties["pending"] = IntegerAttr(1, i64)
    assert prove(made).findings
    made = synchronised(text)
    full = next(op for op in made.walk() if isinstance(op, sync.MbarrierAllocOp))
    full.properties["arrivals"] = IntegerAttr(2, i64)
    assert prove(made).findings


def test_a_late_fence_is_found() -> None:
    """Behind the arrival it tells the reader nothing."""
    made = synchronised(handed_over(7, 3, "stored", "multiplied"))
    fence: Operation = next(op for op in made.walk() if isinstance(op, sync.FenceOp))
    arrive = fence.next_op
    assert isinstance(arrive, sync.ArriveOp)
    block = fence.parent
    assert block is not None
    fence.detach()
    block.insert_op_after(fence, arrive)
    assert prove(made).findings


def test_what_is_handed_over_already_is_left_alone() -> None:
    """A kernel whose roles wait for each other keeps the order that it has."""
    made = synchronised(handed_over(7, 3, "stored", "multiplied"))
    before = [op.name for op in made.walk() if op.name.startswith("sync.")]
    InsertSyncPass().run(made, target_spec("sm_90a"))
    assert [op.name for op in made.walk() if op.name.startswith("sync.")] == before


def test_a_peeled_fill_is_handed_over_ahead_of_the_loop() -> None:
    """Its readers would wait for ever if it were owed across the loop, which waits for them."""
    text = handed_over(7, 3, "cp_async", "loaded", ahead=True).replace("{steps_in_flight = 1 : i64}", "")
    check(synchronised(text), 7, "loaded")


@pytest.mark.parametrize(
    ("behind_fill", "number", "what"),
    [
        ("", "arith.muli %s, %c1 : index", "does not go around a ring"),
        (slot("%g", "%p", (3,), "%c0") + "\n" + local_load("%b", "%g", ROWS_LAYOUT), "", "a buffer that its reader writes"),
    ],
)
def test_what_cannot_be_handed_over(behind_fill: str, number: str, what: str) -> None:
    text = handed_over(5, 3, "stored", "loaded")
    first = text.index("  pipe.end_role")
    text = text[:first] + behind_fill + "\n" + text[first:]
    text = text.replace("pipe.advance %s by %c1 of 3 : i64", number) if number else text
    with pytest.raises(TreadleError, match=what) as raised:
        synchronised(text)
    assert raised.value.code == "TR301"
    assert raised.value.location is not None
