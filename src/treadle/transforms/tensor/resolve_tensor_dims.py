"""resolve-tensor-dims: sizes of computed tensors become sizes of what they were computed from.

Level: tensor. Reads: `tensor.dim` at constant axes.
Writes: constants, operands of `tensor.empty` and of slices, `tensor.dim` of arguments: no size waits for a computation any more, so
form-dispatches sees the dependences of the data only.
Leaves alone: sizes of arguments, of collapsed and reshaped tensors, and axes that are not constant.
"""

from typing import ClassVar

from treadle.analysis.indexing import structured, tensor_of
from treadle.analysis.shapes import kept_axes
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue
from treadle.ir.dialects import func, tensor
from treadle.ir.emitter import Index, before
from treadle.ir.passes import register_pass
from treadle.ir.tensors import mixed, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import erase_dead


def size_of(value: SSAValue, axis: int) -> Index | tuple[SSAValue, int]:
    """The size of an axis: a number, an index value, or (tensor, axis) of the tensor that it is the size of."""
    while True:
        static = list(tensor_type(value).get_shape())
        if static[axis] != DYNAMIC_INDEX:
            return static[axis]
        owner = value.owner
        view = structured(owner) if isinstance(owner, Operation) else None
        match owner:
            case _ if view is not None and isinstance(owner, Operation):
                value = view.outputs[owner.results.index(value)]
            case tensor.EmptyOp():
                return mixed(static, owner.dynamic_sizes)[axis]
            case tensor.CastOp():
                value = owner.source
            case tensor.InsertSliceOp():
                value = owner.dest
            case tensor.ExpandShapeOp():
                return mixed(owner.static_output_shape.get_values(), owner.dynamic_output_shape)[axis]
            case tensor.ExtractSliceOp():
                return mixed(owner.static_sizes.get_values(), owner.sizes)[kept_axes(owner, value)[axis]]
            case _:
                return value, axis


def _resolve(op: tensor.DimOp) -> None:
    emit, type_ = before(op), tensor_of(op.source)
    axis = emit.static(op.index)
    if type_ is None or axis is None or not 0 <= axis < type_.get_num_dims():
        return
    found = size_of(op.source, axis)
    if isinstance(found, int):
        found = emit.constant(found)
    elif isinstance(found, tuple):
        if found[0] is op.source:
            return
        found = emit.insert(tensor.DimOp(found[0], emit.constant(found[1])))
    op.result.replace_all_uses_with(found)


@register_pass
@dataclass(frozen=True)
class ResolveTensorDimsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "resolve-tensor-dims"

    def run(self, function: func.FuncOp) -> None:
        """Resolve every size of the top block."""
        for op in list(function.body.block.ops):
            if isinstance(op, tensor.DimOp):
                _resolve(op)
        erase_dead(function)
