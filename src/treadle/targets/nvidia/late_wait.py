"""What is computed while matrix instructions run is computed ahead of the wait for them.

ptxas orders a wait against the registers of the instructions alone, and moves it up in its block, ahead of arithmetic that was written to
run under them: it then has fewer registers alive. So the wait stands behind an instruction that needs what was computed last, and that no
assembler moves a wait across: a sleep of no time, which happens where a sum is one certain number.
"""

from treadle.codegen.llvm_text import F32
from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.targets.simt.context import KernelContext

_CERTAIN = "0f3F8CCCCD"  # not a bound that ranges of sums would exclude


def computed_under(wait: Operation) -> tile.ReduceOp | None:
    """The last reduction between the matrix instructions in flight and a wait for them, in its block; None where nothing is reduced."""
    if not isinstance(wait, sync.WaitOp) or wait.queue.data != "wgmma":
        return None
    op = wait.prev_op
    while op is not None and not isinstance(op, tile.ContractOp | sync.CommitOp):
        if isinstance(op, tile.ReduceOp):
            return op
        op = op.prev_op
    return None


def hold_back(ctx: KernelContext, wait: Operation) -> None:
    """Emit what keeps a wait behind the last reduction ahead of it."""
    reduction = computed_under(wait)
    if reduction is None:
        return
    value = ctx.tile(reduction.results[0])[0]
    if value.type == F32:
        ctx.b.asm(f"{{ .reg .pred p;\nsetp.eq.f32 p, $0, {_CERTAIN};\n@p nanosleep.u32 0; }}", "f,~{memory}", [value])
