"""What stamps write, executed thread by thread on the CPU: who writes, where, how many, and what stops at the end of the room."""

import numpy as np
import pytest
from numpy.typing import NDArray
from targets.host import HostHooks, run_kernel
from targets.tile_kernels import finish, index, kernel_block

from treadle.codegen.llvm_text import I64, Builder, Value
from treadle.dialects import tile
from treadle.dialects.stamp import HEADER, EventOp
from treadle.dialects.tile import KernelOp, LoadOp, ProgramIdOp, StoreOp, ViewOp, tile_of
from treadle.ir.core import Block, ImplicitBuilder
from treadle.ir.dialects import arith, builtin, scf
from treadle.layout.tile_layout import blocked
from treadle.timeline.records import Recording, read_records
from treadle.transforms.kernel.insert_stamps import stamp_kernel

EXTENT, TRIPS, GROUPS, LANES, WARPS = 64, 5, 3, 32, 2


def _copies() -> KernelOp:
    """Each workgroup copies `TRIPS` tiles, every second one also a second time, under a condition."""
    size = EXTENT * TRIPS * GROUPS
    block = kernel_block([builtin.f32, builtin.f32])
    layout = blocked([EXTENT], [0], elements_per_thread=1, lanes=LANES, warps=WARPS)
    with ImplicitBuilder(block):
        source, target = (ViewOp(argument, [size], [1], align=16).result for argument in block.args)
        first = arith.MuliOp(ProgramIdOp(0).result, index(EXTENT * TRIPS)).result
        body = Block(arg_types=[builtin.IndexType()])
        zero, step, end = index(0), index(EXTENT), index(EXTENT * TRIPS)
        with ImplicitBuilder(body):
            at = arith.AddiOp(first, body.args[0]).result
            value = LoadOp(source, [at], [0], tile_of([EXTENT], builtin.f32, layout)).result
            StoreOp(value, target, [at], [0])
            again = Block()
            with ImplicitBuilder(again):
                StoreOp(value, target, [at], [0])
                scf.YieldOp()
            odd = arith.CmpiOp(arith.RemUIOp(body.args[0], index(2 * EXTENT)).result, zero, "ne").result
            scf.IfOp(odd, [], [again])
            scf.YieldOp()
        scf.ForOp(zero, end, step, [], body)
        tile.ReturnOp()
    return finish("copies", block, grid=[str(GROUPS), "1", "1"], warps=WARPS)


def _run(monkeypatch: pytest.MonkeyPatch, workgroups: int, capacity: int) -> tuple[NDArray[np.int64], Recording]:
    def counter(_: HostHooks, b: Builder) -> Value:
        return b.intrinsic("llvm.readcyclecounter", I64)

    monkeypatch.setattr(HostHooks, "steady_clock", counter)
    kernel = _copies()
    layout = stamp_kernel(kernel, workgroups, capacity)
    kernel.verify()
    events = {
        op.number.value.data: (op.ends.data if op.ends else None, op.begins.data if op.begins else None)
        for op in kernel.body.walk()
        if isinstance(op, EventOp)
    }
    words = np.full(layout.words, -1, np.int64)
    x = np.arange(EXTENT * TRIPS * GROUPS, dtype=np.float32)
    y = np.zeros_like(x)
    run_kernel(kernel, [x, y, words], lanes=LANES)
    np.testing.assert_array_equal(x, y)
    return words.reshape(workgroups, WARPS, capacity), Recording("k", "host", layout.lanes, workgroups, capacity, 1000, events)


def test_every_recorded_warp_writes_its_events_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    words, recording = _run(monkeypatch, 2, 32)
    per_trip, per_second_trip = 3, 2  # load begins, store begins, store ends; under the condition one more store
    count = TRIPS * per_trip + TRIPS // 2 * per_second_trip
    for agent in words.reshape(-1, 32):
        assert agent[5] == count
        assert (agent[HEADER : HEADER + count] != -1).all()
        assert (agent[HEADER + count :] == -1).all()
        assert agent[0] <= agent[3]
        assert agent[1] <= agent[4]
    found = read_records(words.reshape(-1), recording)
    assert found.agents == ("wg0 warp 0", "wg0 warp 1", "wg1 warp 0", "wg1 warp 1")
    for lane in found.agents:
        labels = [span.label for span in found.outcome.spans if span.lane == lane]
        assert labels.count(f"load {EXTENT}") == TRIPS
        assert labels.count(f"store {EXTENT}") == TRIPS + TRIPS // 2
    assert not found.outcome.is_cut


def test_records_end_with_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    words, recording = _run(monkeypatch, 3, 16)
    assert (words[:, :, 5] == 16 - HEADER).all()
    assert (words[:, :, HEADER:] != -1).all()
    found = read_records(words.reshape(-1), recording)
    assert found.outcome.is_cut
    assert found.workgroups == 3
