"""Arrivals of workgroups at counters, and turns there, by one thread of each; `tile.local_flag` by all."""

from treadle.codegen.llvm_text import I32, I64, Value, i32, i64
from treadle.dialects.tile import AwaitTurnOp, CounterOp, CountInOp, LocalFlagOp, PassTurnOp
from treadle.targets.simt.context import KernelContext

_COUNTER_BYTES = 4


def _counter(ctx: KernelContext, op: CounterOp) -> Value:
    """The address of the counter."""
    b, view = ctx.b, ctx.view(op.counters)
    place = i64(0)
    for offset, stride in zip(op.offsets, view.strides, strict=True):
        place = b.add(place, b.mul(b.sext(ctx.scalar(offset), I64), stride))
    return b.gep(view.pointer, place, I32, flags="")


def emit_count_in(ctx: KernelContext, op: CountInOp) -> None:
    """The first thread counts, and leaves in shared memory whether it was the last."""
    b = ctx.b
    with b.when(b.icmp("eq", ctx.thread, i32(0))):
        largest = b.sub(b.resize(ctx.scalar(op.count), I32), i32(1))
        before = ctx.hooks.counters.count_in(b, _counter(ctx, op), largest, op.order.data)
        b.store(b.zext(b.icmp("eq", before, largest), I32), ctx.buffer(op.flag).address, _COUNTER_BYTES)


def emit_await_turn(ctx: KernelContext, op: AwaitTurnOp) -> None:
    """The first thread waits until the counter is the turn."""
    b = ctx.b
    with b.when(b.icmp("eq", ctx.thread, i32(0))):
        ctx.hooks.counters.await_turn(b, _counter(ctx, op), b.resize(ctx.scalar(op.turn), I32), op.order.data)


def emit_pass_turn(ctx: KernelContext, op: PassTurnOp) -> None:
    """The first thread makes the counter the next turn, or zero behind the last one."""
    b = ctx.b
    with b.when(b.icmp("eq", ctx.thread, i32(0))):
        behind = b.add(b.resize(ctx.scalar(op.turn), I32), i32(1))
        is_last = b.icmp("eq", behind, b.resize(ctx.scalar(op.count), I32))
        ctx.hooks.counters.pass_turn(b, _counter(ctx, op), b.select(is_last, i32(0), behind), op.order.data)


def emit_local_flag(ctx: KernelContext, op: LocalFlagOp) -> None:
    """Every thread reads what the first one left."""
    b = ctx.b
    value = ctx.hooks.uniform(b, b.load(I32, ctx.buffer(op.flag).address, _COUNTER_BYTES))
    ctx.bind(op.result, b.icmp("ne", value, i32(0)))
