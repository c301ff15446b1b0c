"""Hand-written schedule-level programs of every queue and role form, for the tests of the NVIDIA target and for a device."""

from collections.abc import Sequence
from typing import Any

from targets.schedule_vocabulary import (
    BF16,
    DEPTH,
    F32,
    I32,
    MMA,
    Ring,
    accumulator,
    add,
    for_loop,
    i32,
    matmul_views,
    mul,
    narrowed,
    role,
    slot,
    slotted,
    when,
)
from targets.tile_kernels import finish, index, kernel_block, splat

from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile import (
    ContractOp,
    CopyOp,
    CopyOutOp,
    KernelOp,
    LocalStoreOp,
    ProgramIdOp,
    StoreOp,
    tile_of,
)
from treadle.ir.core import ImplicitBuilder, SSAValue
from treadle.ir.dialects import arith


def tma_ring(m: int, n: int, k: int, stages: int = 4, pending: int = 0) -> KernelOp:
    """C = A B^T without roles: copies `stages` ahead; with `pending` 1 the matrix instructions of two trips overlap."""
    bm, bn = 128, 128
    steps = -(-k // DEPTH)
    ahead = stages - pending
    block = kernel_block([BF16, BF16, F32])
    with ImplicitBuilder(block):
        mm, nn = mul(ProgramIdOp(0).result, index(bm)), mul(ProgramIdOp(1).result, index(bn))
        va, vb, vc = matmul_views(block.args, m, n, k)
        a, b = slotted([bm, DEPTH], (1, 0), stages), slotted([DEPTH, bn], (0, 1), stages)
        full = sync.MbarrierAllocOp(1, stages).result
        ring = Ring(stages)

        def fetch(step: SSAValue, at: SSAValue) -> None:
            barrier = sync.MbarrierSlotOp(full, at).result
            kk = mul(step, index(DEPTH))
            sync.MbarrierExpectOp(barrier, (bm + bn) * DEPTH * 2)
            CopyOp(va, [mm, kk], [0, 1], slot(a, at), path="bulk_tensor", barrier=barrier)
            CopyOp(vb, [kk, nn], [0, 1], slot(b, at), path="bulk_tensor", barrier=barrier)

        for s in range(min(ahead, steps)):
            fetch(index(s), index(s))

        def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            acc, at, phase, free = carried
            sync.WaitPhaseOp(sync.MbarrierSlotOp(full, at).result, phase)
            done = ContractOp(slot(a, at), slot(b, at), acc, MMA).result
            sync.CommitOp("wgmma")
            sync.WaitOp("wgmma", pending)
            sync.BarrierOp()
            later = add(i, index(ahead))
            when(arith.CmpiOp(later, index(steps), "slt").result, lambda: fetch(later, free))
            return [done, *ring.advance(at, phase), ring.advance(free, phase)[0]]

        kind = tile_of([bm, bn], F32, accumulator((bm, bn), (2, 1)))
        # With one group pending, the slot that is free is the one behind: it was read a trip ago.
        free = index(ahead % stages)
        total = for_loop(index(0), index(steps), 1, [splat(0.0, kind), *ring.state(), free], body)[0]
        if pending:
            sync.WaitOp("wgmma", 0)
        StoreOp(total, vc, [mm, nn], [0, 1], vector=2 if n % 2 == 0 else 1)
        tile.ReturnOp()
    return finish("tma_ring", block, grid=[str(-(-m // bm)), str(-(-n // bn)), "1"], warps=8)


def consumers(
    m: int, n: int, k: int, *, stages: int = 4, peeled: bool = True, stored: bool = False, cooperative: bool = False, pending: int = 0
) -> KernelOp:
    """128 x 256 x 64 tiles, persistent: one producer, two consumer warpgroups of 64 x 256 (or one group of both), a ring of mbarriers.

    `stored`: C in bf16 through shared memory by bulk stores, else in f32 straight from registers.
    """
    bm, bn, groups = 128, 256, 1 if cooperative else 2
    rows, warps = bm // groups, 8 // groups
    steps = -(-k // DEPTH)
    tiles_m, tiles_n = -(-m // bm), -(-n // bn)
    launched = min(132, tiles_m * tiles_n)
    block = kernel_block([BF16, BF16, BF16 if stored else F32])
    with ImplicitBuilder(block):
        va, vb, vc = matmul_views(block.args, m, n, k)
        a, b = slotted([rows, DEPTH], (1, 0), stages, groups), slotted([DEPTH, bn], (0, 1), stages)
        c = slotted([rows, bn], (1, 0), groups) if stored else None
        full, empty = sync.MbarrierAllocOp(1, stages).result, sync.MbarrierAllocOp(groups, stages).result
        first = ProgramIdOp(0).result
        ring = Ring(stages)

        def origin(number: SSAValue) -> tuple[SSAValue, SSAValue]:
            return (
                mul(arith.RemUIOp(number, index(tiles_m)).result, index(bm)),
                mul(arith.DivUIOp(number, index(tiles_m)).result, index(bn)),
            )

        def each_tile(body: Any, start: Sequence[SSAValue]) -> None:
            for_loop(first, index(tiles_m * tiles_n), launched, start, body)

        def produce() -> None:
            def tile_body(number: SSAValue, state: list[SSAValue]) -> list[SSAValue]:
                mm, nn = origin(number)

                def step(i: SSAValue, inner: list[SSAValue]) -> list[SSAValue]:
                    at, phase = inner
                    kk = mul(i, index(DEPTH))
                    barrier = sync.MbarrierSlotOp(full, at).result
                    sync.WaitPhaseOp(sync.MbarrierSlotOp(empty, at).result, arith.XOrIOp(phase, i32(1)).result)
                    sync.MbarrierExpectOp(barrier, (bm + bn) * DEPTH * 2)
                    for g in range(groups):
                        offset = add(mm, index(g * rows)) if g else mm
                        CopyOp(va, [offset, kk], [0, 1], slot(a, at, index(g)), path="bulk_tensor", barrier=barrier)
                    CopyOp(vb, [kk, nn], [0, 1], slot(b, at), path="bulk_tensor", barrier=barrier)
                    return ring.advance(at, phase)

                return for_loop(index(0), index(steps), 1, state, step)

            each_tile(tile_body, ring.state())

        def consume() -> None:
            group = pipe.GroupIdOp().result
            kind = tile_of([rows, bn], F32, accumulator((rows, bn), (2 // groups, 1)))

            def tile_body(number: SSAValue, state: list[SSAValue]) -> list[SSAValue]:
                def multiply(acc: SSAValue, at: SSAValue, phase: SSAValue) -> SSAValue:
                    sync.WaitPhaseOp(sync.MbarrierSlotOp(full, at).result, phase)
                    done = ContractOp(slot(a, at, group), slot(b, at), acc, MMA).result
                    sync.CommitOp("wgmma")
                    return done

                def step(i: SSAValue, inner: list[SSAValue]) -> list[SSAValue]:
                    acc, at, phase, before = inner
                    done = multiply(acc, at, phase)
                    sync.WaitOp("wgmma", pending)
                    sync.ArriveOp(sync.MbarrierSlotOp(empty, before if pending else at).result)
                    return [done, *ring.advance(at, phase), at]

                at, phase = state
                acc = splat(0.0, kind)
                start = 0
                if peeled:
                    acc = multiply(acc, at, phase)
                    if not pending:
                        sync.WaitOp("wgmma", 0)
                        sync.ArriveOp(sync.MbarrierSlotOp(empty, at).result)
                    state, start = ring.advance(at, phase), 1
                acc, at, phase, last = for_loop(index(start), index(steps), 1, [acc, *state, at], step)
                if pending:
                    sync.WaitOp("wgmma", 0)
                    sync.ArriveOp(sync.MbarrierSlotOp(empty, last).result)
                mm, nn = origin(number)
                offset = add(mm, mul(group, index(rows)))
                if c is None:
                    StoreOp(acc, vc, [offset, nn], [0, 1], vector=2)
                    return [at, phase]

                def meet() -> None:
                    if cooperative:
                        sync.NamedBarrierOp(1, 8)
                        return
                    is_first = arith.CmpiOp(group, index(0), "eq").result
                    when(is_first, lambda: sync.NamedBarrierOp(1, 4), lambda: sync.NamedBarrierOp(2, 4))

                sync.WaitOp("bulk_store", 0, read=True)
                meet()
                LocalStoreOp(narrowed(acc), slot(c, group), [0, 0])
                sync.FenceOp("async_shared")
                meet()
                CopyOutOp(slot(c, group), vc, [offset, nn], [0, 1], path="bulk_tensor")
                sync.CommitOp("bulk_store")
                return [at, phase]

            each_tile(tile_body, ring.state())
            if stored:
                sync.WaitOp("bulk_store", 0)

        pipe.RolesOp(["producer", "consumer"], [4, warps], [1, groups], [role(produce), role(consume)], [40, 232])
        tile.ReturnOp()
    return finish("consumers", block, grid=[str(launched), "1", "1"], warps=12)


def ping_pong(m: int, n: int, k: int, stages: int = 4) -> KernelOp:
    """128 x 128 tiles, two consumer warpgroups on alternate tiles: named barriers give them turns at the matrix units."""
    bm, bn = 128, 128
    steps = -(-k // DEPTH)
    tiles_m, tiles_n = -(-m // bm), -(-n // bn)
    tiles = tiles_m * tiles_n
    pairs = -(-tiles // 2)
    launched = min(132, pairs)
    block = kernel_block([BF16, BF16, F32])
    with ImplicitBuilder(block):
        va, vb, vc = matmul_views(block.args, m, n, k)
        a, b = slotted([bm, DEPTH], (1, 0), stages), slotted([DEPTH, bn], (0, 1), stages)
        full, empty = sync.MbarrierAllocOp(1, stages).result, sync.MbarrierAllocOp(1, stages).result
        first = ProgramIdOp(0).result

        def origin(number: SSAValue) -> tuple[SSAValue, SSAValue]:
            # A pair of tiles may end with one outside: it reads zeros and stores nothing.
            return (
                mul(arith.RemUIOp(number, index(tiles_m)).result, index(bm)),
                mul(arith.DivUIOp(number, index(tiles_m)).result, index(bn)),
            )

        def place(count: SSAValue) -> tuple[SSAValue, SSAValue]:
            phase = arith.RemUIOp(arith.DivUIOp(count, index(stages)).result, index(2)).result
            return arith.RemUIOp(count, index(stages)).result, arith.IndexCastOp(phase, I32).result

        def produce() -> None:
            def pair(number: SSAValue, state: list[SSAValue]) -> list[SSAValue]:
                count = state[0]
                for which in range(2):
                    mm, nn = origin(add(mul(number, index(2)), index(which)))

                    def step(i: SSAValue, inner: list[SSAValue], mm: SSAValue = mm, nn: SSAValue = nn) -> list[SSAValue]:
                        at, phase = place(inner[0])
                        kk = mul(i, index(DEPTH))
                        barrier = sync.MbarrierSlotOp(full, at).result
                        sync.WaitPhaseOp(sync.MbarrierSlotOp(empty, at).result, arith.XOrIOp(phase, i32(1)).result)
                        sync.MbarrierExpectOp(barrier, (bm + bn) * DEPTH * 2)
                        CopyOp(va, [mm, kk], [0, 1], slot(a, at), path="bulk_tensor", barrier=barrier)
                        CopyOp(vb, [kk, nn], [0, 1], slot(b, at), path="bulk_tensor", barrier=barrier)
                        return [add(inner[0], index(1))]

                    count = for_loop(index(0), index(steps), 1, [count], step)[0]
                return [count]

            for_loop(first, index(pairs), launched, [index(0)], pair)

        def consume(which: int) -> None:
            mine, other = 1 + which, 2 - which
            if which == 1:
                sync.NamedBarrierOp(other, 8, arrive=True)
            kind = tile_of([bm, bn], F32, accumulator((bm, bn)))

            def pair(number: SSAValue, state: list[SSAValue]) -> list[SSAValue]:
                start = add(state[0], index(which * steps))

                def step(i: SSAValue, inner: list[SSAValue]) -> list[SSAValue]:
                    at, phase = place(add(start, i))
                    sync.WaitPhaseOp(sync.MbarrierSlotOp(full, at).result, phase)
                    done = ContractOp(slot(a, at), slot(b, at), inner[0], MMA).result
                    sync.CommitOp("wgmma")
                    sync.WaitOp("wgmma", 0)
                    sync.ArriveOp(sync.MbarrierSlotOp(empty, at).result)
                    return [done]

                sync.NamedBarrierOp(mine, 8)
                total = for_loop(index(0), index(steps), 1, [splat(0.0, kind)], step)[0]

                def hand_over() -> None:
                    sync.NamedBarrierOp(other, 8, arrive=True)

                if which == 0:
                    hand_over()
                else:
                    when(arith.CmpiOp(add(number, index(launched)), index(pairs), "slt").result, hand_over)
                mm, nn = origin(add(mul(number, index(2)), index(which)))
                StoreOp(total, vc, [mm, nn], [0, 1], vector=2)
                return [add(state[0], index(2 * steps))]

            for_loop(first, index(pairs), launched, [index(0)], pair)

        regions = [role(produce), role(lambda: consume(0)), role(lambda: consume(1))]
        pipe.RolesOp(["producer", "ping", "pong"], [4, 4, 4], [1, 1, 1], regions, [40, 232, 232])
        tile.ReturnOp()
    return finish("ping_pong", block, grid=[str(launched), "1", "1"], warps=12)


def cp_async_ring(m: int, n: int, k: int, stages: int = 3, pitch: int = 0) -> KernelOp:
    """C = A B^T with copies by all threads, `stages - 1` groups ahead. Rows of A and B are `k` elements, and `pitch` apart if not k."""
    bm, bn = 128, 128
    steps = -(-k // DEPTH)
    block = kernel_block([BF16, BF16, F32])
    with ImplicitBuilder(block):
        mm, nn = mul(ProgramIdOp(0).result, index(bm)), mul(ProgramIdOp(1).result, index(bn))
        va, vb, vc = matmul_views(block.args, m, n, k, pitch)
        a, b = slotted([bm, DEPTH], (1, 0), stages), slotted([DEPTH, bn], (0, 1), stages)

        def fetch(step: SSAValue) -> None:
            at = arith.RemUIOp(step, index(stages)).result
            kk = mul(step, index(DEPTH))
            CopyOp(va, [mm, kk], [0, 1], slot(a, at), path="cp_async")
            CopyOp(vb, [kk, nn], [0, 1], slot(b, at), path="cp_async")
            sync.CommitOp("cp_async")

        for s in range(stages - 1):
            fetch(index(s))

        def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            sync.WaitOp("cp_async", stages - 2)
            sync.FenceOp("async_shared")
            sync.BarrierOp()
            at = arith.RemUIOp(i, index(stages)).result
            done = ContractOp(slot(a, at), slot(b, at), carried[0], MMA).result
            sync.CommitOp("wgmma")
            # The slot of the trip before: all have passed the barrier, so nobody reads it any more.
            fetch(add(i, index(stages - 1)))
            sync.WaitOp("wgmma", 0)
            return [done]

        kind = tile_of([bm, bn], F32, accumulator((bm, bn), (2, 1)))
        total = for_loop(index(0), index(steps), 1, [splat(0.0, kind)], body)[0]
        sync.WaitOp("cp_async", 0)
        StoreOp(total, vc, [mm, nn], [0, 1], vector=2 if n % 2 == 0 else 1)
        tile.ReturnOp()
    return finish("cp_async_ring", block, grid=[str(-(-m // bm)), str(-(-n // bn)), "1"], warps=8)
