"""generalize-named-ops: every named linalg operation, and arithmetic on whole tensors, becomes `linalg.generic`.

Level: tensor. Reads: named linalg operations on tensors, `arith` and `math` operations whose result is a tensor, `tensor.bitcast`.
Writes: `linalg.generic` with the attribute `treadle.origin` naming the operation it was, and its `dispatch.group`.
Refuses with TR305 a `dispatch.group` of anything else: what moves data is decomposed or left to the host next.
Leaves alone: `linalg.fill` (an initial value that kernels keep as such), constants, generics, operations on memrefs.
"""

from typing import ClassVar

from treadle.analysis.indexing import structured
from treadle.dialects.mlir_ext.shapes import BitcastOp
from treadle.ir.builtin import is_tensor
from treadle.ir.core import AffineMap, Block, Operation, Region
from treadle.ir.dialects import arith, func, linalg
from treadle.ir.elementwise import element_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import ASKED, build_generic, clone_body, replace
from treadle.transforms.tensor.group_attributes import check_places


def generalize_arithmetic(op: Operation) -> None:
    """An operation on tensors of one shape, element by element, as a generic around the scalar operation."""
    first = next(value for value in op.operands if is_tensor(value.type))
    elements = [element_of(result.type) for result in op.results]
    outputs = [TensorEmitter(op).empty_like(first, element) for element in elements]
    block = Block(arg_types=[*(element_of(value.type) for value in op.operands), *elements])
    kind = arith.BitcastOp if isinstance(op, BitcastOp) else type(op)
    scalar = kind.create(
        operands=list(block.args[: len(op.operands)]),
        result_types=elements,
        properties=dict(op.properties),
        attributes={name: value for name, value in op.attributes.items() if name not in ASKED},
    )
    block.add_ops([scalar, linalg.ops.YieldOp(*scalar.results)])
    rank = tensor_type(first).get_num_dims()
    maps = [AffineMap.identity(rank) if is_tensor(value.type) else AffineMap(rank, 0, ()) for value in (*op.operands, *outputs)]
    replace(op, build_generic(list(op.operands), outputs, maps, ["parallel"] * rank, Region(block), op))


def _is_elementwise(op: Operation) -> bool:
    return op.name.split(".")[0] in ("arith", "math") or isinstance(op, BitcastOp)


@register_pass
@dataclass(frozen=True)
class GeneralizeNamedOpsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "generalize-named-ops"

    def run(self, function: func.FuncOp) -> None:
        """Generalise every named operation and every operation on whole tensors."""
        for op in list(function.walk()):
            if isinstance(op, linalg.ops.GenericOp | linalg.ops.FillOp | arith.ConstantOp) or not op.results:
                continue
            if (view := structured(op)) is not None:
                maps = (*view.input_maps, *view.output_maps)
                replace(op, build_generic(view.inputs, view.outputs, maps, view.iterators, clone_body(view), op))
            elif _is_elementwise(op) and is_tensor(op.results[0].type):
                generalize_arithmetic(op)
        check_places(function, linalg.ops.FillOp)
