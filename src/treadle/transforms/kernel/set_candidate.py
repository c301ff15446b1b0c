"""set-candidate: which of the ways to compute a kernel is taken: the best, or one behind it.

Level: dispatch. Reads: nothing. Writes: attribute `candidate` on the `dispatch.kernel` of the name, which set-kernel-form reads.
Leaves alone: all other kernels.

Only the tools know whether machine code fits the registers; where they say no, the driver lowers the program again with the next number.
"""

from treadle.dialects import dispatch
from treadle.ir.dialects import builtin
from treadle.ir.passes import Context, Pass, register_pass
from treadle.records import dataclass


@register_pass
@dataclass(frozen=True)
class SetCandidatePass(Pass):
    """`kernel`: its name; `candidate`: 0 is the best, numbers behind the last mean the last."""

    name = "set-candidate"
    kernel: str
    candidate: int = 0

    def apply(self, ctx: Context, module: builtin.ModuleOp) -> None:
        for op in module.body.block.ops:
            if isinstance(op, dispatch.KernelOp) and op.sym_name.data == self.kernel:
                op.attributes[dispatch.CANDIDATE] = builtin.IntegerAttr(self.candidate, builtin.i64)
