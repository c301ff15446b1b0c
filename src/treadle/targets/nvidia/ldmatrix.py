"""`tile.local_load` by ldmatrix, the inverse of stmatrix: the same rows, addresses and registers (see stmatrix.py)."""

from treadle.codegen.llvm_text import I32, Value, i32, structure, vector
from treadle.dialects.tile import LocalLoadOp, ints
from treadle.targets.nvidia.stmatrix import row_addresses, stmatrix_plan
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.types import element_bytes, memory_type

_ELEMENT_BYTES = 2


def emit_ldmatrix(ctx: KernelContext, op: LocalLoadOp) -> bool:
    """Read a tile by ldmatrix where that can be; False where it cannot."""
    layout, buffer = ctx.layout(op.result), ctx.buffer(op.source)
    plan = stmatrix_plan(layout, buffer.layout, ints(op.offsets)) if element_bytes(buffer.element) == _ELEMENT_BYTES else None
    if plan is None:
        return False
    b, pair = ctx.b, vector(2, memory_type(buffer.element))
    names = ", ".join(f"${i}" for i in range(plan.count))
    text = f"ldmatrix.sync.aligned.m8n8.x{plan.count}{'.trans' if plan.is_transposed else ''}.shared.b16 {{{names}}}, [${plan.count}];"
    constraints = ",".join([*["=r"] * plan.count, "r", "~{memory}"])
    registers: list[Value] = [i32(0)] * layout.num_registers
    for load, address in zip(plan.stores, row_addresses(ctx, buffer, plan), strict=True):
        found = b.asm(text, constraints, [address], I32 if plan.count == 1 else structure([I32] * plan.count))
        for number, (low, high) in enumerate(load.pairs):
            word = found if plan.count == 1 else b.extract_value(found, number)
            registers[low], registers[high] = ctx.unpack(b.bitcast(word, pair))
    ctx.bind(op.result, registers)
    return True
