"""decompose-tensor-ops: pad, concat and splat become fills and slice insertions; single elements become generics; casts disappear.

Zeros around the image of a convolution become a generic (`zero_padding.py`), which is computed where the convolution reads it.

Level: tensor. Reads: `tensor.pad` of one value, `tensor.concat`, `tensor.splat`, `tensor.from_elements`, `tensor.insert`, `tensor.rank`,
`tensor.cast` before generics.
Writes: `tensor.empty`, `linalg.fill`, `tensor.insert_slice`, index arithmetic, and the generics of `single_elements.py`.
Leaves alone: everything else (what it cannot decompose is refused by form-dispatches).
"""

from typing import ClassVar

from treadle.analysis.indexing import structured
from treadle.dialects.mlir_ext.shapes import RankOp
from treadle.ir.core import Operation, Use
from treadle.ir.dialects import arith, func, tensor
from treadle.ir.emitter import Index
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, mixed, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import give_way, replace
from treadle.transforms.tensor.single_elements import collected_elements, inserted_element
from treadle.transforms.tensor.zero_padding import is_image_of_convolutions, padded_image, unmark


def decompose_pad(op: tensor.PadOp) -> bool:
    """`fill`, then the source inserted; False where the padding value is not one value for all elements."""
    last = op.region.block.last_op
    if not isinstance(last, tensor.YieldOp) or len(last.operands) != 1:
        return False
    scalar, emit = last.operands[0], TensorEmitter(op)
    owner = scalar.owner
    if isinstance(owner, Operation) and owner.parent_block() is op.region.block:
        if not isinstance(owner, arith.ConstantOp):
            return False
        scalar = emit.insert(owner.clone())
    elif owner is op.region.block:
        return False
    low, high = mixed(op.static_low.get_values(), op.low), mixed(op.static_high.get_values(), op.high)
    sizes = [emit.add(emit.add(*ends), size) for *ends, size in zip(low, emit.sizes(op.source), high, strict=True)]
    type_ = tensor_type(op.result)
    destination = emit.fill(scalar, emit.empty(sizes, type_.element_type, type_.get_shape()))
    give_way(op, [emit.insert_slice(op.source, destination, low)])
    return True


def decompose_concat(op: tensor.ConcatOp) -> None:
    """An empty tensor, then each operand inserted where it belongs."""
    axis, emit = int(op.dim.value.data), TensorEmitter(op)
    starts: list[Index] = [0]
    for value in op.inputs:
        starts.append(emit.add(starts[-1], emit.size(value, axis)))
    type_ = tensor_type(op.result)
    sizes, origin = emit.sizes(op.inputs[0]), [0] * type_.get_num_dims()
    result = emit.empty([*sizes[:axis], starts[-1], *sizes[axis + 1 :]], type_.element_type, type_.get_shape())
    for value, start in zip(op.inputs, starts, strict=False):
        result = emit.insert_slice(value, result, [*origin[:axis], start, *origin[axis + 1 :]])
    give_way(op, [result])


def _is_input(use: Use) -> bool:
    view = structured(use.operation)
    return view is not None and use.index < len(view.inputs)


@register_pass
@dataclass(frozen=True)
class DecomposeTensorOpsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "decompose-tensor-ops"

    def run(self, function: func.FuncOp) -> None:
        """Decompose every operation of the top block."""
        unmark(function)
        for op in list(function.body.block.ops):
            emit = TensorEmitter(op)
            match op:
                case tensor.PadOp() if is_image_of_convolutions(op):
                    replace(op, padded_image(op))
                case tensor.PadOp():
                    decompose_pad(op)
                case tensor.ConcatOp():
                    decompose_concat(op)
                case tensor.SplatOp():
                    empty = tensor.EmptyOp(list(op.dynamicSizes), op.result.type)
                    give_way(op, [emit.fill(op.input, emit.insert(empty))])
                case tensor.FromElementsOp() if len(op.elements) == 1:
                    empty = tensor.EmptyOp([], op.result.type)
                    give_way(op, [emit.fill(op.elements[0], emit.insert(empty))])
                case tensor.FromElementsOp():
                    replace(op, collected_elements(op))
                case tensor.InsertOp():
                    replace(op, inserted_element(op))
                case RankOp():
                    give_way(op, [emit.constant(tensor_type(op.source).get_num_dims())])
                case tensor.CastOp():
                    # The loops of the reader still require the sizes to agree, so nothing is lost.
                    op.dest.replace_uses_with_if(op.source, _is_input)
                case _:
                    pass
