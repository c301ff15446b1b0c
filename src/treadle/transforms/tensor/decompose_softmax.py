"""decompose-softmax: `linalg.softmax` becomes a maximum, an exponential of the difference, a sum and a quotient.

Level: tensor. Reads: `linalg.softmax`. Writes: generics of the origin `softmax`; elements narrower than 32 bits are computed in f32 and
rounded at the end. Leaves alone: everything else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from treadle.analysis.indexing import dim_map
from treadle.dialects.mlir_ext.linalg_base import cast_scalar
from treadle.dialects.mlir_ext.softmax import SoftmaxOp
from treadle.ir.builtin import AnyFloat, FloatAttr, f32
from treadle.ir.core import DYNAMIC_INDEX, AffineMap, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, math, tensor
from treadle.ir.passes import register_pass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, empty_like, insert_before, replace, tensor_type

Scalars = Sequence[SSAValue]


def _insert(anchor: Operation, op: Operation) -> SSAValue:
    insert_before(anchor, op)
    return op.results[0]


def _filled_without(value: SSAValue, axis: int, scalar: FloatAttr[AnyFloat], anchor: Operation) -> SSAValue:
    """A tensor of the shape of `value` without `axis`, filled with a number."""
    shape = list(tensor_type(value).get_shape())
    sizes = [
        _insert(anchor, tensor.DimOp(value, _insert(anchor, arith.ConstantOp(builtin.IntegerAttr(other, builtin.IndexType())))))
        for other, size in enumerate(shape)
        if other != axis and size == DYNAMIC_INDEX
    ]
    del shape[axis]
    empty = _insert(anchor, tensor.EmptyOp(sizes, builtin.TensorType(scalar.type, shape)))
    number = _insert(anchor, arith.ConstantOp(scalar))
    return _insert(anchor, linalg.ops.FillOp([number], [empty], [empty.type]))


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of one softmax: all work over the dimensions of its input, inserted before it, in the type `compute`."""

    op: SoftmaxOp
    compute: AnyFloat

    @property
    def rank(self) -> int:
        """Dimensions of the input."""
        return tensor_type(self.op.input).get_num_dims()

    @property
    def kept(self) -> AffineMap:
        """The map to the dimensions but the one of the softmax."""
        return dim_map(self.rank, [d for d in range(self.rank) if d != self.op.axis])

    def _generic(
        self, inputs: Scalars, maps: Sequence[AffineMap], out: SSAValue, body: Callable[[Block, Scalars], SSAValue]
    ) -> linalg.ops.GenericOp:
        block = Block(arg_types=[tensor_type(value).element_type for value in (*inputs, out)])
        result = body(block, [cast_scalar(block, argument, self.compute) for argument in block.args[: len(inputs)]])
        block.add_op(linalg.ops.YieldOp(cast_scalar(block, result, tensor_type(out).element_type)))
        iterators = ["reduction" if d == self.op.axis and maps[-1] == self.kept else "parallel" for d in range(self.rank)]
        return build_generic(inputs, [out], maps, iterators, Region(block), self.op)

    def reduced(self, source: SSAValue, start: float, combine: type[arith.MaximumfOp | arith.AddfOp]) -> SSAValue:
        """`source` combined along the dimension, from `start`."""
        initial = _filled_without(source, self.op.axis, FloatAttr(start, self.compute), self.op)
        maps = [AffineMap.identity(self.rank), self.kept]
        return _insert(self.op, self._generic([source], maps, initial, lambda block, x: _scalar(block, combine(block.args[-1], x[0]))))

    def exponentials(self, top: SSAValue) -> SSAValue:
        """exp(input - top)"""
        out = empty_like(self.op.input, self.op, self.compute)
        maps = [AffineMap.identity(self.rank), self.kept, AffineMap.identity(self.rank)]

        def body(block: Block, x: Scalars) -> SSAValue:
            return _scalar(block, math.ExpOp(_scalar(block, arith.SubfOp(x[0], x[1]))))

        return _insert(self.op, self._generic([self.op.input, top], maps, out, body))

    def quotients(self, values: SSAValue, total: SSAValue) -> linalg.ops.GenericOp:
        """Values / total, in the type of the output; not inserted."""
        out = empty_like(self.op.output, self.op)
        maps = [AffineMap.identity(self.rank), self.kept, AffineMap.identity(self.rank)]
        return self._generic([values, total], maps, out, lambda block, x: _scalar(block, arith.DivfOp(x[0], x[1])))


def _scalar(block: Block, op: Operation) -> SSAValue:
    block.add_op(op)
    return op.results[0]


def decompose(op: SoftmaxOp) -> None:
    """Put the four steps in place of `op`."""
    element = tensor_type(op.input).element_type
    steps = _Steps(op, element if isinstance(element, AnyFloat) and element.bitwidth >= f32.bitwidth else f32)
    top = steps.reduced(op.input, float("-inf"), arith.MaximumfOp)
    values = steps.exponentials(top)
    replace(op, steps.quotients(values, steps.reduced(values, 0.0, arith.AddfOp)))


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
