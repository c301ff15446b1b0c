"""`stamp`: an agent's records of what it does when, written by one thread of it (docs/timeline.md; the array's form: dialects/stamp.py).

The cursor is an i32: the word for the next event, or -1 where nothing is written (other threads, other workgroups, no room left).
"""

from treadle.codegen.llvm_text import I64, Value, i32, i64
from treadle.dialects.agents import role_of
from treadle.dialects.stamp import CLOCK_BITS, HEADER, BeginOp, EndOp, EventOp
from treadle.ir.core import Operation, SSAValue
from treadle.targets.simt.context import KernelContext

_NOWHERE = -1
_WORD_BYTES = 8


def _store(ctx: KernelContext, records: SSAValue, word: Value, value: Value, condition: Value | None) -> None:
    address = ctx.b.gep(ctx.view(records).pointer, ctx.b.mul(ctx.b.zext(word, I64), i64(_WORD_BYTES)), flags="")
    ctx.hooks.store_global(ctx.b, address, value, _WORD_BYTES, condition)


def _place(ctx: KernelContext, op: "BeginOp | EndOp") -> tuple[Value, Value]:
    """The executing agent's first word, and whether this thread writes its records."""
    b = ctx.b
    workgroup, limit = ctx.small_index(op.workgroup), i32(op.workgroups.value.data)
    in_role = role_of(op) is not None
    agent = b.add(ctx.group if in_role else ctx.warp, i32(op.first.value.data))
    word = b.mul(b.add(b.mul(workgroup, i32(op.agents.value.data)), agent), i32(op.capacity.value.data))
    is_leader = b.icmp("eq", ctx.thread if in_role else ctx.lane, i32(0))
    return word, b.and_(is_leader, b.icmp("ult", workgroup, limit))


def _header(ctx: KernelContext, op: "BeginOp | EndOp", at: int, third: Value) -> None:
    b = ctx.b
    word, writes = _place(ctx, op)
    for offset, value in enumerate((ctx.hooks.steady_clock(b), ctx.hooks.clock(b), third)):
        _store(ctx, op.records, b.add(word, i32(at + offset)), value, writes)


def emit_stamp(ctx: KernelContext, op: Operation) -> None:
    """Any operation of the dialect."""
    b = ctx.b
    match op:
        case BeginOp():
            _header(ctx, op, 0, b.zext(ctx.hooks.compute_unit(b), I64))
            word, writes = _place(ctx, op)
            ctx.bind(op.result, b.select(writes, b.add(word, i32(HEADER)), i32(_NOWHERE)))
        case EventOp():
            _event(ctx, op)
        case EndOp():
            capacity = op.capacity.value.data
            cursor = ctx.scalar(op.cursor)
            count = b.sub(b.and_(cursor, i32(capacity - 1)), i32(HEADER))
            full = b.icmp("slt", cursor, i32(0))
            _header(ctx, op, 3, b.zext(b.select(full, i32(capacity - HEADER), count), I64))
        case _:
            pass


def _event(ctx: KernelContext, op: EventOp) -> None:
    b = ctx.b
    cursor = ctx.scalar(op.cursor)
    writes = b.icmp("sge", cursor, i32(0))
    time = b.and_(ctx.hooks.clock(b), i64((1 << CLOCK_BITS) - 1))
    number = op.number.value.data << CLOCK_BITS
    record = b.or_(time, i64(number - (1 << 64) if number >> 63 else number))
    _store(ctx, op.records, cursor, record, writes)
    following = b.add(cursor, i32(1))
    has_room = b.icmp("ne", b.and_(following, i32(op.capacity.value.data - 1)), i32(0))
    ctx.bind(op.result, b.select(b.and_(writes, has_room), following, i32(_NOWHERE)))
