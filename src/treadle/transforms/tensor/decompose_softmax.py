"""decompose-softmax: `linalg.softmax` becomes a maximum, an exponential of the difference, a sum and a quotient.

Level: tensor. Reads: `linalg.softmax`. Writes: generics of the origin `softmax`; elements narrower than 32 bits are computed in f32 and
rounded at the end. Leaves alone: everything else.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from treadle.analysis.indexing import dim_map
from treadle.dialects.mlir_ext.linalg_base import cast_scalar
from treadle.dialects.mlir_ext.softmax import SoftmaxOp
from treadle.ir.builtin import AnyFloat, FloatAttr, f32
from treadle.ir.core import AffineMap, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, func, linalg, math
from treadle.ir.emitter import Emitter, at_end
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, give_way

Combine = Callable[[Emitter, Sequence[SSAValue]], Operation]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of one softmax: all work over the dimensions of its input, inserted before it, in the type `compute`."""

    op: SoftmaxOp
    emit: TensorEmitter
    compute: AnyFloat

    def step(self, inputs: Sequence[SSAValue], out: SSAValue, combine: Combine) -> SSAValue:
        """One generic of tensors with or without the dimension of the softmax. `combine` makes an element of those of its operands."""
        rank, axis = tensor_type(self.op.input).get_num_dims(), self.op.axis
        block = Block(arg_types=[tensor_type(value).element_type for value in (*inputs, out)])
        elements = [cast_scalar(block, argument, self.compute) for argument in block.args[:-1]]
        result = at_end(block).insert(combine(at_end(block), [*elements, block.args[-1]]))
        block.add_op(linalg.ops.YieldOp(cast_scalar(block, result, tensor_type(out).element_type)))
        whole, kept = AffineMap.identity(rank), dim_map(rank, [d for d in range(rank) if d != axis])
        maps = [whole if tensor_type(value).get_num_dims() == rank else kept for value in (*inputs, out)]
        iterators = ["reduction" if d == axis and maps[-1] == kept else "parallel" for d in range(rank)]
        return self.emit.insert(build_generic(inputs, [out], maps, iterators, Region(block), self.op))

    def reduced(self, source: SSAValue, start: float, combine: type[arith.MaximumfOp | arith.AddfOp]) -> SSAValue:
        """`source` combined along the dimension, from `start`."""
        sizes, number = self.emit.sizes(source), self.emit.insert(arith.ConstantOp(FloatAttr(start, self.compute)))
        del sizes[self.op.axis]
        initial = self.emit.fill(number, self.emit.empty(sizes, self.compute))
        return self.step([source], initial, lambda _, x: combine(x[1], x[0]))


def decompose(op: SoftmaxOp) -> None:
    """Put the four steps in place of `op`."""
    element, emit = tensor_type(op.input).element_type, TensorEmitter(op)
    compute = element if isinstance(element, AnyFloat) and element.bitwidth >= f32.bitwidth else f32
    steps = _Steps(op, emit, compute)
    top = steps.reduced(op.input, float("-inf"), arith.MaximumfOp)
    out = emit.empty_like(op.input, compute)
    values = steps.step([op.input, top], out, lambda inner, x: math.ExpOp(inner.insert(arith.SubfOp(x[0], x[1]))))
    total = steps.reduced(values, 0.0, arith.AddfOp)
    give_way(op, [steps.step([values, total], emit.empty_like(op.output), lambda _, x: arith.DivfOp(x[0], x[1]))])


@register_pass
@dataclass(frozen=True)
class DecomposeSoftmaxPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "decompose-softmax"

    def run(self, function: func.FuncOp) -> None:
        """Decompose every softmax."""
        for op in list(function.walk()):
            if isinstance(op, SoftmaxOp) and op.result is not None:
                decompose(op)
