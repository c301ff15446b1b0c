"""Intervals of shared buffers, and packing them."""

import random

from generators import tile_kernel_texts as kernel_texts

from treadle.analysis.liveness import Interval, buffer_intervals
from treadle.dialects import tile
from treadle.ir.text import parse_module
from treadle.plan.shared_packing import BufferDemand, pack_buffers

LAYOUT = "#tile.shared_layout<offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], repeat = [1, 1]>"
BUFFER = f"memref<8x32xf32, {LAYOUT}, #tile.shared>"
TILE = "tensor<8x32xf32>"


def store(buffer: str) -> str:
    return f"tile.local_store %t, {buffer} array<i64: 0, 0> : {TILE}, {BUFFER}"


def load(name: str, buffer: str) -> str:
    return f"{name} = tile.local_load {buffer} array<i64: 0, 0> : {BUFFER} -> {TILE}"


def intervals(body: str) -> list[Interval]:
    header = f"  %t = arith.constant dense<0.000000e+00> : {TILE}\n  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
    text = kernel_texts.kernel("k", "%a: !tile.ptr<f32>", header + body, warps=4, target="sm_90a", pointers=1)
    (kernel,) = (op for op in parse_module(text, "test").walk() if isinstance(op, tile.KernelOp))
    found = buffer_intervals(kernel)
    return [found[op] for op in kernel.body.walk() if isinstance(op, tile.AllocOp)]


def test_straight_line_intervals() -> None:
    a, b = intervals(
        f"  %a0 = tile.alloc : {BUFFER}\n  %b0 = tile.alloc : {BUFFER}\n"
        f"  {store('%a0')}\n  {load('%x', '%a0')}\n  {store('%b0')}\n  {load('%y', '%b0')}"
    )
    assert not a.overlaps(b)
    c, d = intervals(
        f"  %a0 = tile.alloc : {BUFFER}\n  %b0 = tile.alloc : {BUFFER}\n"
        f"  {store('%a0')}\n  {store('%b0')}\n  {load('%x', '%a0')}\n  {load('%y', '%b0')}"
    )
    assert c.overlaps(d)


def test_loops_keep_outer_buffers_alive_and_inner_ones_not() -> None:
    outer, first, second = intervals(
        f"  %o = tile.alloc : {BUFFER}\n  scf.for %i = %c0 to %c1 step %c1 {{\n"
        f"    %p = tile.alloc : {BUFFER}\n    {load('%x', '%o')}\n    {store('%p')}\n    {load('%y', '%p')}\n"
        f"    %q = tile.alloc : {BUFFER}\n    {store('%q')}\n    {load('%z', '%q')}\n  }}"
    )
    assert outer.overlaps(first) and outer.overlaps(second) and not first.overlaps(second)


def test_packing_never_overlaps_what_is_live_together() -> None:
    rng = random.Random(5)
    for _ in range(200):
        demands = [
            BufferDemand(rng.choice((16, 48, 1000, 4096)), rng.choice((16, 1024)), start := rng.randrange(20), start + rng.randrange(10))
            for _ in range(rng.randrange(1, 8))
        ]
        offsets, total = pack_buffers(demands)
        for i, (at, one) in enumerate(zip(offsets, demands, strict=True)):
            assert at % one.align == 0 and at + one.byte_count <= total
            for other_at, other in list(zip(offsets, demands, strict=True))[:i]:
                if one.start <= other.end and other.start <= one.end:
                    assert at + one.byte_count <= other_at or other_at + other.byte_count <= at


def test_packing_reuses_bytes() -> None:
    assert pack_buffers([BufferDemand(64, 16, 0, 3), BufferDemand(64, 16, 4, 5)]) == ((0, 0), 64)
    assert pack_buffers([BufferDemand(64, 16, 0, 3), BufferDemand(64, 16, 3, 5)]) == ((0, 64), 128)
    assert pack_buffers([BufferDemand(16, 16, 0, 9), BufferDemand(2048, 1024, 0, 9)]) == ((2048, 0), 2064)
    assert pack_buffers([]) == ((), 0)
