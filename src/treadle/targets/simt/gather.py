"""`tile.gather`: loads at computed places, each brought inside the view first, so that none can fault."""

from treadle.codegen.llvm_text import I64, Builder, Value, i32, i64, zero
from treadle.dialects.tile import GatherOp, tile_type
from treadle.ir.dialects import builtin
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.types import element_bytes, memory_type


def _inside(b: Builder, index: Value, size: Value) -> Value:
    """The index, or the nearest one that is at least 0 and below `size`, as i64."""
    one, none = (i64(1), i64(0)) if size.type == I64 else (i32(1), i32(0))
    last = b.sub(size, one)
    below = b.select(b.icmp("slt", index, last), index, last)
    inside = b.select(b.icmp("sgt", below, none), below, none)
    return inside if size.type == I64 else b.sext(inside, I64)


def emit_gather(ctx: KernelContext, op: GatherOp) -> None:
    """One load a register."""
    b, view = ctx.b, ctx.view(op.view)
    kind = memory_type(view.element)
    indices = [ctx.tile(value) for value in op.indices]
    addresses: list[Value] = []
    for places in zip(*indices, strict=True):
        distance = i64(0)
        for place, size, stride in zip(places, view.sizes, view.strides, strict=True):
            distance = b.add(distance, b.mul(_inside(b, place, size), stride))
        addresses.append(b.gep(view.pointer, distance, kind, flags=""))
    align = element_bytes(view.element)
    loaded = [ctx.hooks.load_global(b, address, kind, align, None, zero(kind), view.reading) for address in addresses]
    is_bool = tile_type(op.result).element_type == builtin.i1
    ctx.bind(op.result, [b.trunc(value, "i1") if is_bool else value for value in loaded])
