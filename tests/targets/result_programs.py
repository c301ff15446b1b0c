"""Hand-written schedule-level programs about results: of matrix instructions in flight, through stmatrix, from group to group."""

from targets.schedule_vocabulary import BF16, DEPTH, F32, MMA, Ring, accumulator, add, for_loop, i32, mul, role, slot, slotted, when
from targets.tile_kernels import finish, index, kernel_block, splat

from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile import (
    AllocOp,
    ContractOp,
    CopyOp,
    CopyOutOp,
    KernelOp,
    LoadOp,
    LocalLoadOp,
    LocalStoreOp,
    ProgramIdOp,
    StoreOp,
    ViewOp,
    shared_buffer_type,
    tile_of,
)
from treadle.ir.core import Attribute, ImplicitBuilder, SSAValue
from treadle.ir.dialects import arith
from treadle.layout.shared_layout import swizzled
from treadle.layout.tile_layout import blocked

# --- the shapes of matrix instructions and what reads their results: A (128 x k), B1 and B2 (n x k)


def two_products(m: int, k: int, *, shape: str, stages: int = 3) -> KernelOp:
    """D1 = A B1^T and D2 = A B2^T, 128 x 128 each.

    `shape`: "apart" (one after the other, each with its own epilogue: the first overlaps the second product), "fused" (both in one loop,
    one group a trip), "branch" (D2 in a branch that not every workgroup takes), "long" (D1 alone, with a long epilogue).
    """
    bm, bn = 128, 128
    steps = -(-k // DEPTH)
    block = kernel_block([BF16, BF16, BF16, F32, F32])
    block_args = block.args
    with ImplicitBuilder(block):
        pid = ProgramIdOp(0).result
        mm = mul(pid, index(bm))
        va = ViewOp(block_args[0], [m, k], [k, 1], align=16).result
        vb = [ViewOp(p, [k, bn], [1, k], align=16).result for p in block_args[1:3]]
        vd = [ViewOp(p, [m, bn], [bn, 1], align=16).result for p in block_args[3:5]]
        depth = stages if shape == "fused" else steps
        a = slotted([bm, DEPTH], (1, 0), depth)
        b = [slotted([DEPTH, bn], (0, 1), depth) for _ in range(2)]
        full = sync.MbarrierAllocOp(1, depth).result
        kind = tile_of([bm, bn], F32, accumulator((bm, bn), (2, 1)))
        zero = index(0)

        def fetch(step: SSAValue, at: SSAValue) -> None:
            barrier, kk = sync.MbarrierSlotOp(full, at).result, mul(step, index(DEPTH))
            sync.MbarrierExpectOp(barrier, (bm + 2 * bn) * DEPTH * 2)
            CopyOp(va, [mm, kk], [0, 1], slot(a, at), path="bulk_tensor", barrier=barrier)
            for which in range(2):
                CopyOp(vb[which], [kk, zero], [0, 1], slot(b[which], at), path="bulk_tensor", barrier=barrier)

        def multiply(which: int, acc: SSAValue, at: SSAValue) -> SSAValue:
            return ContractOp(slot(a, at), slot(b[which], at), acc, MMA).result

        def chain(which: int) -> SSAValue:
            acc = splat(0.0, kind)
            for s in range(steps):
                acc = multiply(which, acc, index(s))
            sync.CommitOp("wgmma")
            return acc

        def store(which: int, value: SSAValue) -> None:
            StoreOp(value, vd[which], [mm, zero], [0, 1], vector=2)

        for s in range(min(depth, steps)):
            fetch(index(s), index(s))
        if shape != "fused":
            for s in range(steps):
                sync.WaitPhaseOp(sync.MbarrierSlotOp(full, index(s)).result, i32(0))
        if shape == "apart":
            d1, d2 = chain(0), chain(1)
            sync.WaitOp("wgmma", 1)
            store(0, arith.MulfOp(d1, d1).result)
            sync.WaitOp("wgmma", 0)
            store(1, d2)
        elif shape == "branch":
            d1, d2 = chain(0), chain(1)
            even = arith.CmpiOp(arith.RemUIOp(pid, index(2)).result, zero, "eq").result

            def early() -> None:
                sync.WaitOp("wgmma", 1)
                store(0, d1)

            when(even, early)
            sync.WaitOp("wgmma", 0)
            store(0, d1)
            store(1, d2)
        elif shape == "long":
            d1 = chain(0)
            sync.WaitOp("wgmma", 0)
            value = d1
            for _ in range(6):
                value = arith.AddfOp(arith.MulfOp(value, splat(0.5, kind)).result, splat(1.0, kind)).result
            store(0, value)
            store(1, d1)
        else:
            ring = Ring(depth)

            def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
                d1, d2, at, phase, free = carried
                sync.WaitPhaseOp(sync.MbarrierSlotOp(full, at).result, phase)
                d1, d2 = multiply(0, d1, at), multiply(1, d2, at)
                sync.CommitOp("wgmma")
                sync.WaitOp("wgmma", 1)
                sync.BarrierOp()
                later = add(i, index(depth - 1))
                ready = arith.CmpiOp(i, zero, "ne").result
                there = arith.AndIOp(ready, arith.CmpiOp(later, index(steps), "slt").result).result
                when(there, lambda: fetch(later, free))
                return [d1, d2, *ring.advance(at, phase), at]

            start = [splat(0.0, kind), splat(0.0, kind), *ring.state(), zero]
            d1, d2 = for_loop(zero, index(steps), 1, start, body)[:2]
            sync.WaitOp("wgmma", 0)
            store(0, arith.MulfOp(d1, d1).result)
            store(1, d2)
        tile.ReturnOp()
    return finish(f"products_{shape}", block, outputs=2, grid=[str(-(-m // bm)), "1", "1"], warps=8)


def added_product(m: int) -> KernelOp:
    """D = (X + A B^T) + X with K = 64: the accumulator starts as a tile that is read again afterwards."""
    bm, bn = 128, 128
    block = kernel_block([BF16, BF16, F32, F32])
    pa, pb, px, pd = block.args
    with ImplicitBuilder(block):
        mm, zero = mul(ProgramIdOp(0).result, index(bm)), index(0)
        va, vb = ViewOp(pa, [m, DEPTH], [DEPTH, 1], align=16).result, ViewOp(pb, [DEPTH, bn], [1, DEPTH], align=16).result
        vx, vd = (ViewOp(p, [m, bn], [bn, 1], align=16).result for p in (px, pd))
        a, b = slotted([bm, DEPTH], (1, 0)), slotted([DEPTH, bn], (0, 1))
        full = sync.MbarrierAllocOp(1).result
        sync.MbarrierExpectOp(full, (bm + bn) * DEPTH * 2)
        CopyOp(va, [mm, zero], [0, 1], a[0], path="bulk_tensor", barrier=full)
        CopyOp(vb, [zero, zero], [0, 1], b[0], path="bulk_tensor", barrier=full)
        x = LoadOp(vx, [mm, zero], [0, 1], tile_of([bm, bn], F32, accumulator((bm, bn), (2, 1))), vector=2).result
        sync.WaitPhaseOp(full, i32(0))
        total = ContractOp(a[0], b[0], x, MMA).result
        sync.CommitOp("wgmma")
        sync.WaitOp("wgmma", 0)
        StoreOp(arith.AddfOp(total, x).result, vd, [mm, zero], [0, 1], vector=2)
        tile.ReturnOp()
    return finish("added_product", block, grid=[str(-(-m // bm)), "1", "1"], warps=8)


def matrix_stores(shape: tuple[int, int], order: tuple[int, int], *, warps: tuple[int, int] = (1, 1), row_bytes: int = 128) -> KernelOp:
    """A bf16 tile in an accumulator's layout through a swizzled buffer: stored there, read back plainly."""
    count = 4 * warps[0] * warps[1]
    layout = accumulator(shape, warps)
    block = kernel_block([BF16, BF16])
    with ImplicitBuilder(block):
        vx, vy = (ViewOp(p, list(shape), [shape[1], 1], align=16).result for p in block.args)
        zero = index(0)
        x = LoadOp(vx, [zero, zero], [0, 1], tile_of(shape, BF16, layout), vector=2).result
        buffer = AllocOp(shared_buffer_type(shape, BF16, swizzled(shape, order, 2, row_bytes))).result
        LocalStoreOp(x, buffer, [0, 0])
        sync.BarrierOp()
        plain = tile_of(shape, BF16, blocked(shape, (1, 0), 2, 32, count))
        StoreOp(LocalLoadOp(buffer, [0, 0], plain).result, vy, [zero, zero], [0, 1], vector=2)
        tile.ReturnOp()
    return finish("matrix_stores", block, grid=["1", "1", "1"], warps=count)


def matrix_loads(shape: tuple[int, int], order: tuple[int, int], *, warps: tuple[int, int] = (1, 1), row_bytes: int = 128) -> KernelOp:
    """The inverse of `matrix_stores`: the tile is stored plainly, and read back in an accumulator's layout."""
    count = 4 * warps[0] * warps[1]
    layout, plain = accumulator(shape, warps), blocked(shape, (1, 0), 2, 32, count)
    block = kernel_block([BF16, BF16])
    with ImplicitBuilder(block):
        vx, vy = (ViewOp(p, list(shape), [shape[1], 1], align=16).result for p in block.args)
        zero = index(0)
        x = LoadOp(vx, [zero, zero], [0, 1], tile_of(shape, BF16, plain), vector=2).result
        buffer = AllocOp(shared_buffer_type(shape, BF16, swizzled(shape, order, 2, row_bytes))).result
        LocalStoreOp(x, buffer, [0, 0])
        sync.BarrierOp()
        StoreOp(LocalLoadOp(buffer, [0, 0], tile_of(shape, BF16, layout)).result, vy, [zero, zero], [0, 1], vector=2)
        tile.ReturnOp()
    return finish("matrix_loads", block, grid=["1", "1", "1"], warps=count)


def group_turns(rounds: int, *, use: Attribute = F32) -> KernelOp:
    """Y = X + X by one role of two groups that run the same code a barrier apart (a conditional barrier before and one after).

    Every second trip group 0 writes X to a shared buffer and group 1, one interval later, reads it.
    """
    side, warps = 32, 4
    layout = blocked([side, side], (1, 0), 4, 32, warps)
    kind = tile_of([side, side], use, layout)
    block = kernel_block([use, use])
    with ImplicitBuilder(block):
        vx, vy = (ViewOp(p, [side, side], [side, 1], align=16).result for p in block.args)
        zero = index(0)
        buffer = AllocOp(shared_buffer_type([side, side], use, swizzled([side, side], (1, 0), 4, 128))).result

        def body() -> None:
            group = pipe.GroupIdOp().result
            is_first = arith.CmpiOp(group, zero, "eq").result

            def write() -> None:
                LocalStoreOp(LoadOp(vx, [zero, zero], [0, 1], kind, vector=4).result, buffer, [0, 0])

            def double() -> None:
                x = LocalLoadOp(buffer, [0, 0], kind).result
                StoreOp(arith.AddfOp(x, x).result, vy, [zero, zero], [0, 1], vector=4)

            sync.BarrierOp(groups=[1])

            def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
                acts = arith.CmpiOp(arith.RemUIOp(i, index(2)).result, zero, "eq").result
                when(acts, lambda: when(is_first, write, double))
                sync.BarrierOp()
                return []

            for_loop(zero, index(rounds), 1, [], step)
            sync.BarrierOp(groups=[0])

        pipe.RolesOp(["worker"], [warps], [2], [role(body)])
        tile.ReturnOp()
    return finish("group_turns", block, grid=["1", "1", "1"], warps=2 * warps)


def store_ring(m: int, n: int, slots: int = 2) -> KernelOp:
    """Y = X + X in bf16, 64 x 64 at a time through `slots` buffers and bulk stores; the wait stands before a buffer is used again."""
    side = 64
    block = kernel_block([BF16, BF16])
    with ImplicitBuilder(block):
        mm = mul(ProgramIdOp(0).result, index(side))
        vx, vy = (ViewOp(p, [m, n], [n, 1], align=16).result for p in block.args)
        c = slotted([side, side], (1, 0), slots)
        kind = tile_of([side, side], BF16, blocked([side, side], (1, 0), 8, 32, 4))

        def body(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            at = arith.RemUIOp(arith.DivUIOp(i, index(side)).result, index(slots)).result
            x = LoadOp(vx, [mm, i], [0, 1], kind, vector=8).result
            sync.WaitOp("bulk_store", slots - 1, read=True)
            sync.BarrierOp()
            LocalStoreOp(arith.AddfOp(x, x).result, slot(c, at), [0, 0])
            sync.FenceOp("async_shared")
            sync.BarrierOp()
            CopyOutOp(slot(c, at), vy, [mm, i], [0, 1], path="bulk_tensor")
            sync.CommitOp("bulk_store")
            return []

        for_loop(index(0), index(n), side, [], body)
        sync.WaitOp("bulk_store", 0)
        tile.ReturnOp()
    return finish("store_ring", block, grid=[str(-(-m // side)), "1", "1"], warps=4)
