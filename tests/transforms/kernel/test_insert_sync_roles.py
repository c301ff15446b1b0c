"""insert-sync on kernels with roles: hand-overs by rings, what is written already, what cannot be handed over."""

import pytest
from hazards.kernels import kernel_of
from hazards.programs import PROGRAMS, Schedule
from hazards.schedules import ROWS_LAYOUT, alloc, array, buffer, constants, kernel, local_load, roles, slot, store, view

from treadle.dialects import pipe, sync, tile
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.sim.schedule import simulate
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.verify.check import prove


def synchronised(text: str) -> tile.KernelOp:
    """The one kernel of a text, after insert-sync."""
    module = parse_module(text, "roles.mlir")
    run_passes(module, [InsertSyncPass()])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


@pytest.mark.parametrize("schedule", PROGRAMS.values(), ids=PROGRAMS)
def test_schedules_that_are_right_stay_right(schedule: Schedule) -> None:
    """With or without roles: nothing that is written goes."""
    before = [op.name for op in kernel_of(schedule.text).walk() if op.name.startswith("sync.")]
    kernel = synchronised(schedule.text)
    after = [op.name for op in kernel.walk() if op.name.startswith("sync.")]
    assert prove(kernel).is_proven
    assert all(after.count(name) >= before.count(name) for name in before)


def copy(at: str, destination: str, path: str = "bulk_tensor") -> str:
    return f'  tile.copy %a[{at}] dims array<i64: 0, 1>, {destination} path "{path}" : {array(448, 64)}, {buffer()}'


def relay(
    steps: int, slots: int, *, reads: int = 1, number: str = "carried", path: str = "bulk_tensor", groups: int = 1, filling: int = 1
) -> str:
    """One role of `filling` warps copies tiles into a ring, another brings them elsewhere; `reads` of them are looked at once more behind
    the loop.
    """
    wide = (slots,)
    step = {
        "carried": f"  %n = pipe.advance %s by %c1 of {slots} : i64",
        "wrapped": f"  %t = arith.addi %s, %c1 : index\n"
        f"  %w = arith.cmpi eq, %t, %c{slots} : index\n  %n = arith.select %w, %c0, %t : index",
        "taken": "  %n = arith.addi %s, %c1 : index",
    }[number]
    place = f"  %m = arith.remui %s, %c{slots} : index" if number == "taken" else ""
    where = "%m" if number == "taken" else "%s"
    loop = "  %e = scf.for %i = %c0 to %end step %c64 iter_args(%s = %c0) -> (index) {"
    fill = "\n".join((loop, place, slot("%f", "%p", wide, where), copy("%i, %c0", "%f", path), step, "  scf.yield %n : index\n  }"))
    out = store("%v", "%c", array(448, 64), "%i, %c0", ROWS_LAYOUT)
    read = "\n".join((slot("%f", "%p", wide, where), *[local_load("%v", "%f", ROWS_LAYOUT)] * 1, out))
    take = "\n".join((loop, place, read, step, "  scf.yield %n : index\n  }"))
    return kernel(
        "%pa: !tile.ptr<f16>, %pc: !tile.ptr<f16>",
        view("%a", "%pa", 448, 64),
        view("%c", "%pc", 448, 64),
        constants(0, 1, 64, slots),
        f"  %end = arith.constant {64 * steps} : index",
        alloc("%p", slots),
        roles(("producer", "consumer"), (filling, 4), (1, groups), fill, take),
        warps=filling + 4 * groups,
        pointers=2,
    )


@pytest.mark.parametrize("number", ["carried", "wrapped", "taken"])
@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (5, 1), (2, 3), (7, 3), (7, 4)])
def test_a_ring_of_any_depth(steps: int, slots: int, number: str) -> None:
    """Proven, and right in both modes, however the number of the slot is written."""
    import numpy as np

    made = synchronised(relay(steps, slots, number=number))
    assert prove(made).is_proven
    allocs = [op for op in made.walk() if isinstance(op, sync.MbarrierAllocOp)]
    assert [(op.arrivals.value.data, op.slot_count()) for op in allocs] == [(1, slots), (1, slots)]
    assert not any(isinstance(op, pipe.AdvanceOp) for op in made.walk())
    a = np.arange(448 * 64).reshape(448, 64) % 61
    for report in (simulate(made, [a.astype(np.float16), np.zeros((448, 64), np.float16)], mode=m, seed=3) for m in ("late", "random")):
        assert report.ok, report
        assert np.array_equal(report.outputs[0].reshape(448, 64)[: 64 * steps], a[: 64 * steps])


@pytest.mark.parametrize("kind", [sync.WaitPhaseOp, sync.ArriveOp, sync.MbarrierExpectOp])
def test_every_operation_of_a_ring_is_needed(kind: type[Operation]) -> None:
    text = relay(7, 3)
    count = sum(isinstance(op, kind) for op in synchronised(text).walk())
    assert count == (2 if kind is sync.WaitPhaseOp else 1)
    for number in range(count):
        made = synchronised(text)
        op = [op for op in made.walk() if isinstance(op, kind)][number]
        op.detach()
        op.erase()
        assert prove(made).findings


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (1, 2), (2, 3), (7, 3)])
def test_warps_meet_before_one_of_them_fills_a_slot(steps: int, slots: int) -> None:
    """Else the slot is handed back, and the phase that its slowest warp waits for is over, before it looks."""
    text = relay(steps, slots, filling=4).replace(
        "  pipe.end_role", '  sync.fence "async_shared"\n  pipe.end_role', 1
    )  # all warps do something
    made = synchronised(text)
    assert prove(made).is_proven
    (meeting,) = [op for op in made.walk() if isinstance(op, sync.NamedBarrierOp)]
    assert isinstance(meeting.prev_op, sync.WaitPhaseOp)
    assert meeting.warps.value.data == 4
    meeting.detach()
    meeting.erase()
    assert prove(made).findings


@pytest.mark.parametrize("path", ["bulk_tensor", "cp_async"])
def test_where_one_warp_is_enough_or_all_copy_none_meet(path: str) -> None:
    made = synchronised(relay(7, 3, path=path, filling=4))
    assert prove(made).is_proven
    assert not any(isinstance(op, sync.NamedBarrierOp) for op in made.walk())


def late(steps: int, slots: int, lag: int) -> str:
    """A ring whose slots are handed over `lag` steps behind the threads' copies into them."""
    end = "  scf.yield %n : index\n  }"
    return relay(steps, slots, path="cp_async").replace(end, f"{end} {{fills_in_flight = {lag} : i64}}", 1)


@pytest.mark.parametrize(("steps", "slots", "lag"), [(1, 2, 1), (1, 4, 3), (2, 3, 2), (7, 3, 1), (7, 4, 3), (6, 4, 9), (5, 1, 1)])
def test_slots_that_threads_copy_are_handed_over_late(steps: int, slots: int, lag: int) -> None:
    """Proven and right, also where the loop makes fewer steps than are in flight; as many groups stay in flight as are asked for."""
    import numpy as np

    made = synchronised(late(steps, slots, lag))
    assert prove(made).is_proven
    pending = [op.pending.value.data for op in made.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "cp_async"]
    assert pending == ([min(lag, slots - 1), 0] if slots > 1 else [0])
    assert not any(isinstance(op, sync.FenceOp) for op in made.walk()), "threads read the slots: a fence would wait for what is in flight"
    a = np.arange(448 * 64).reshape(448, 64) % 61
    for report in (simulate(made, [a.astype(np.float16), np.zeros((448, 64), np.float16)], mode=m, seed=3) for m in ("late", "random")):
        assert report.ok, report
        assert np.array_equal(report.outputs[0].reshape(448, 64)[: 64 * steps], a[: 64 * steps])


@pytest.mark.parametrize(("kind", "count"), [(sync.WaitPhaseOp, 2), (sync.ArriveOp, 4), (sync.WaitOp, 2), (sync.CommitOp, 1)])
def test_every_operation_of_a_late_fill_is_needed(kind: type[Operation], count: int) -> None:
    text = late(7, 4, 2)
    assert count == sum(isinstance(op, kind) for op in synchronised(text).walk())
    for number in range(count):
        made = synchronised(text)
        op = [op for op in made.walk() if isinstance(op, kind)][number]
        op.detach()
        op.erase()
        assert prove(made).findings


def test_each_group_hands_the_slot_back() -> None:
    made = synchronised(relay(7, 3, groups=2))
    assert [op.arrivals.value.data for op in made.walk() if isinstance(op, sync.MbarrierAllocOp)] == [1, 2]
    assert all(f.rule == "V8" for f in prove(made).findings), "both groups store the same"


def test_a_slot_that_does_not_go_around_is_the_users_error() -> None:
    with pytest.raises(TreadleError, match="does not go around a ring") as raised:
        synchronised(relay(5, 3).replace("pipe.advance %s by %c1 of 3 : i64", "arith.muli %s, %c1 : index"))
    assert raised.value.entry.code == "TR301"
