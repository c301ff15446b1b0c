"""set-size-bounds: sizes that only the runtime knows may be of any 64-bit value.

Level: dispatch. Reads: the kernels' symbols. Writes: the unit attribute `any_size` on every `dispatch.kernel` that has some.
Leaves alone: kernels of static sizes. Without this pass runtime sizes are checked to be within 32 bits (see set-index-width).
"""

from typing import ClassVar

from treadle.dialects import dispatch
from treadle.ir.context import Context
from treadle.ir.dialects import builtin
from treadle.ir.passes import ModulePass, register_pass
from treadle.records import dataclass


@register_pass
@dataclass(frozen=True)
class SetSizeBoundsPass(ModulePass):
    """See the module's docstring."""

    name: ClassVar[str] = "set-size-bounds"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        for kernel in op.body.block.ops:
            if isinstance(kernel, dispatch.KernelOp) and len(kernel.symbols):
                kernel.attributes[dispatch.ANY_SIZE] = builtin.UnitAttr()
