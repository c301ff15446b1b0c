"""Registers of accumulators on their way out of a loop of multiply-adds: the assembler may choose those inside the loop freely.

A multiply-add that reads three registers of one bank takes a clock more (banks are even and odd registers here). What was read last for
the same place of an instruction comes from beside the register file, unless another warp's instruction ran in between. A store of four
neighbours wants four registers in a row, as does a load of four elements of B: without anything between the loop and the store the
assembler gives a column's accumulator and B's element of that column registers of one bank, and each A of that bank meets them there.
Behind an instruction that the assembler cannot see through it keeps them apart: 4096^3 in f32, 256 x 128 a workgroup, had 981 of 2048
multiply-adds of a step whose operands are of one bank, and has none.
"""

from treadle.codegen.llvm_text import F32, I32
from treadle.dialects.tile import ContractOp
from treadle.ir.core import SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.targets.simt.context import KernelContext


def free_accumulators(ctx: KernelContext, loop: scf.ForOp) -> None:
    """Give the f32 accumulators of a loop's multiply-adds other registers behind it than in it."""
    found = [result for result, summed in zip(loop.results, _yielded(loop), strict=True) if _is_multiplied_up(summed)]
    if not found or ctx.kernel.grid_text()[2] != "1":
        return
    b = ctx.b
    unseen = ctx.hooks.program_id(b, 2)  # 0, which only the launch knows
    for result in found:
        values = ctx.tile(result)
        if all(value.type == F32 for value in values):
            ctx.bind(result, [b.bitcast(b.xor(b.bitcast(value, I32), unseen), F32) for value in values])


def _yielded(loop: scf.ForOp) -> list[SSAValue]:
    last = loop.body.block.last_op
    return list(last.operands) if last is not None else []


def _is_multiplied_up(value: SSAValue) -> bool:
    return isinstance(value.owner, ContractOp) and value.owner.instruction.data == "fma" and isinstance(value.type, builtin.TensorType)
