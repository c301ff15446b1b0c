"""generalize-named-ops: every named linalg operation becomes `linalg.generic`.

Level: tensor. Reads: named linalg operations on tensors. Writes: `linalg.generic` with the attribute `treadle.origin` naming the operation it was.
Leaves alone: `linalg.fill` (an initial value that kernels keep as such), generics, operations on memrefs.
"""

from dataclasses import dataclass
from typing import ClassVar

from treadle.analysis.indexing import structured
from treadle.ir.context import Context
from treadle.ir.dialects import builtin, linalg
from treadle.ir.passes import ModulePass, register_pass
from treadle.transforms.tensor.generics import build_generic, clone_body, functions, replace


def generalize_named_ops(module: builtin.ModuleOp) -> None:
    """Rewrite every named operation in the functions of `module`."""
    for function in functions(module):
        for op in list(function.walk()):
            if isinstance(op, linalg.ops.GenericOp | linalg.ops.FillOp) or not op.results:
                continue
            if (view := structured(op)) is not None:
                maps = (*view.input_maps, *view.output_maps)
                replace(op, build_generic(view.inputs, view.outputs, maps, view.iterators, clone_body(view), op))


@register_pass
@dataclass(frozen=True)
class GeneralizeNamedOpsPass(ModulePass):
    """See the module's docstring."""

    name: ClassVar[str] = "generalize-named-ops"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        generalize_named_ops(op)
