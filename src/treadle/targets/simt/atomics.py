"""`tile.atomic`: updates at computed places, by the first of several threads that hold an element."""

from treadle.codegen.llvm_text import I64, i64, is_float
from treadle.dialects.tile import AtomicOp
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.threads import holds_first_copy
from treadle.targets.simt.types import element_bytes, memory_type

_OF_FLOATS = {"add": "fadd", "max": "fmaximum", "min": "fminimum"}


def emit_atomic(ctx: KernelContext, op: AtomicOp) -> None:
    """One update for each element that a thread holds; none where an index lies outside."""
    b, view, layout = ctx.b, ctx.view(op.view), ctx.layout(op.value)
    kind, align = memory_type(view.element), element_bytes(view.element)
    name = _OF_FLOATS[op.kind.data] if is_float(kind) else op.kind.data
    first = holds_first_copy(ctx, layout)
    registers = {key: register for register, key in reversed(list(enumerate(layout.register_keys())))}  # of copies in a thread one
    values, columns = ctx.tile(op.value), [ctx.tile(index) for index in op.indices]
    for register in sorted(registers.values()):
        condition, distance = first, i64(0)
        for column, size, stride in zip(columns, view.sizes, view.strides, strict=True):
            place = b.resize(column[register], size.type)
            condition = b.and_(condition, b.icmp("ult", place, size))
            distance = b.add(distance, b.mul(place if place.type == I64 else b.sext(place, I64), stride))
        address = b.gep(view.pointer, distance, kind, flags="")
        ctx.hooks.update_global(b, name, address, values[register], align, condition)
