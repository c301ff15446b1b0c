"""Which waits make which tiles ready: straight on, around loops, in branches."""

from typing import Any

import pytest
from targets.schedule_vocabulary import F32, MMA, accumulator, for_loop, slotted, when
from targets.tile_kernels import finish, index, kernel_block, splat

from treadle.dialects import sync, tile
from treadle.dialects.tile import ContractOp, KernelOp, StoreOp, ViewOp, tile_of
from treadle.errors import InternalError
from treadle.ir.core import ImplicitBuilder, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.targets.simt.in_flight import analyse


def kernel(body: Any) -> KernelOp:
    """`body(multiply, start, store)`: a contraction on an accumulator, a zero accumulator, a store of a tile."""
    block = kernel_block([F32])
    with ImplicitBuilder(block):
        view = ViewOp(block.args[0], [64, 64], [64, 1], align=16).result
        a, b = slotted([64, 64], (1, 0)), slotted([64, 64], (0, 1))
        start = splat(0.0, tile_of([64, 64], F32, accumulator((64, 64))))

        def multiply(acc: SSAValue) -> SSAValue:
            return ContractOp(a[0], b[0], acc, MMA).result

        def store(value: SSAValue) -> None:
            StoreOp(value, view, [index(0), index(0)], [0, 1])

        body(multiply, start, store)
        tile.ReturnOp()
    return finish("in_flight", block, grid=["1", "1", "1"], warps=4)


def waits(made: KernelOp) -> list[int]:
    """How many tiles each wait makes ready, in order."""
    found = analyse(made)
    return [len(found.retired[op]) for op in made.body.walk() if isinstance(op, sync.WaitOp)]


def test_groups_retire_oldest_first() -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        d1 = multiply(start)
        sync.CommitOp("wgmma")
        d2 = multiply(start)
        sync.CommitOp("wgmma")
        sync.WaitOp("wgmma", 2)
        sync.WaitOp("wgmma", 1)
        store(d1)
        sync.WaitOp("wgmma", 0)
        store(d2)

    assert waits(kernel(body)) == [0, 1, 1]


def test_chained_accumulators_are_one_tile() -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        d = multiply(start)
        sync.CommitOp("wgmma")
        d = multiply(d)
        sync.CommitOp("wgmma")
        sync.WaitOp("wgmma", 1)  # the first group only: its tile is being written again
        sync.WaitOp("wgmma", 0)
        store(d)

    assert waits(kernel(body)) == [0, 1]


def test_uncommitted_work_is_retired_by_no_wait() -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        d = multiply(start)
        sync.WaitOp("wgmma", 0)
        store(d)

    with pytest.raises(InternalError, match=r"tile\.store reads a tile"):
        analyse(kernel(body))


@pytest.mark.parametrize(("pending", "expected"), [(0, [1, 0]), (1, [0, 1])])
def test_loops_carry_what_is_pending(pending: int, expected: list[int]) -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            done = multiply(carried[0])
            sync.CommitOp("wgmma")
            sync.WaitOp("wgmma", pending)
            return [done]

        total = for_loop(index(0), index(5), 1, [start], step)[0]
        sync.WaitOp("wgmma", 0)
        store(total)

    assert waits(kernel(body)) == expected


def test_a_loop_that_may_not_run_leaves_its_start_in_flight() -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        first = multiply(start)
        sync.CommitOp("wgmma")

        def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            done = multiply(carried[0])
            sync.CommitOp("wgmma")
            sync.WaitOp("wgmma", 0)
            return [done]

        store(for_loop(index(0), index(5), 1, [first], step)[0])

    with pytest.raises(InternalError, match="still writing"):
        analyse(kernel(body))


def test_a_tile_from_outside_is_renewed_by_loop_and_branch() -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        d1 = multiply(start)
        sync.CommitOp("wgmma")
        condition = arith.CmpiOp(index(0), index(1), "eq").result

        def early() -> None:
            sync.WaitOp("wgmma", 0)
            store(d1)

        when(condition, early)

        def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            sync.WaitOp("wgmma", 0)
            store(d1)
            return []

        for_loop(index(0), index(5), 1, [], step)
        sync.WaitOp("wgmma", 0)
        store(d1)

    made = kernel(body)
    assert waits(made) == [1, 1, 1]
    renewed = analyse(made).renewed
    assert [len(renewed[op]) for op in made.body.walk() if isinstance(op, scf.IfOp | scf.ForOp)] == [1, 1]


def test_both_branches_must_wait() -> None:
    def body(multiply: Any, start: SSAValue, store: Any) -> None:
        d1 = multiply(start)
        sync.CommitOp("wgmma")
        when(arith.CmpiOp(index(0), index(1), "eq").result, lambda: sync.WaitOp("wgmma", 0))
        store(d1)

    with pytest.raises(InternalError, match="still writing"):
        analyse(kernel(body))
