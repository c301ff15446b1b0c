"""Rounding of f32 operands to tf32, to nearest, ties to even: by the copy engine, or by the threads that store them.

The matrix instructions ignore the low 13 bits of an element, which would cut it. A tensor map of type TFLOAT32 rounds what it copies (as
CUTLASS and Triton use it); elements that threads store are converted one by one.
"""

from collections.abc import Sequence

from treadle.codegen.llvm_text import F32, I32, Value
from treadle.dialects.pipe import PartOp, SlotOp
from treadle.dialects.tile import AllocOp, ContractOp, KernelOp
from treadle.ir.core import SSAValue
from treadle.machine import TargetSpec
from treadle.targets.simt.context import KernelContext


def allocation(buffer: SSAValue) -> AllocOp | None:
    """The allocation that a buffer is, or is a slot of."""
    op = buffer.owner
    while isinstance(op, SlotOp | PartOp):
        op = op.source.owner
    return op if isinstance(op, AllocOp) else None


def tf32_buffers(kernel: KernelOp, spec: TargetSpec) -> frozenset[AllocOp]:
    """The buffers that matrix instructions read as tf32."""
    names = {row.name for row in spec.matrix_instructions if row.a_type == "tf32"}
    found: set[AllocOp] = set()
    for op in kernel.body.walk():
        if isinstance(op, ContractOp) and op.instruction.data in names:
            found.update(alloc for buffer in (op.a, op.b) if (alloc := allocation(buffer)) is not None)
    return frozenset(found)


def rounded(ctx: KernelContext, values: Sequence[Value]) -> list[Value]:
    """The f32 values rounded to tf32; each is converted once."""
    b, done = ctx.b, dict[str, Value]()
    for value in values:
        if value.text not in done:
            done[value.text] = b.bitcast(b.asm("cvt.rn.tf32.f32 $0, $1;", "=r,f", [value], I32, side_effect=False, convergent=False), F32)
    return [done[value.text] for value in values]
