"""Emitting loop nests on values: elementwise ones, copies, fills and reductions."""

from collections.abc import Callable, Sequence

import sympy
import torch

from treadle.ir.builtin import AffineMapAttr
from treadle.ir.core import AffineExpr, AffineMap, Attribute, Block, Region, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.ir.tensors import TensorEmitter
from treadle.torch.elements import ELEMENTS
from treadle.torch.scalars import Scalars
from treadle.torch.size_values import SizeValues
from treadle.torch.sizes import Size
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Uniform, Value, loops_of

Compute = Callable[[Scalars, list[SSAValue]], SSAValue]


class Nests:
    """The function under construction: where operations go, and its sizes."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self.emit = TensorEmitter(block)
        self.sizes = SizeValues(self.emit)

    def empty(self, sizes: Sequence[Size], dtype: torch.dtype) -> SSAValue:
        """A tensor of unspecified contents."""
        return self.emit.empty([self.sizes.index(size) for size in sizes], element(dtype))

    def constant(self, number: float, dtype: torch.dtype) -> SSAValue:
        """A number outside of every nest."""
        return Scalars(self._block).constant(number, element(dtype))

    def filled(self, number: float, sizes: Sequence[Size], dtype: torch.dtype) -> SSAValue:
        """A tensor of one number."""
        empty = self.empty(sizes, dtype)
        return self.emit.fill(self.constant(number, dtype), empty)

    def generic(
        self,
        inputs: Sequence[tuple[SSAValue, Sequence[int | AffineExpr]]],
        output: tuple[SSAValue, Sequence[int]],
        loops: Sequence[str],
        body: Block,
    ) -> SSAValue:
        """A loop nest with a finished body. Each operand comes with the loops of its axes, or with where these are read."""
        maps = [
            AffineMap(len(loops), 0, tuple(AffineExpr.dimension(dim) if isinstance(dim, int) else dim for dim in dims))
            for _, dims in (*inputs, output)
        ]
        op = linalg.ops.GenericOp(
            [value for value, _ in inputs],
            [output[0]],
            Region(body),
            [AffineMapAttr(map_) for map_ in maps],
            [linalg.attrs.IteratorTypeAttr(linalg.attrs.IteratorType(kind)) for kind in loops],
            [output[0].type],
        )
        return self.emit.insert(op)

    def elementwise(
        self, operands: Sequence[Operand], shape: Sequence[Size], dtype: torch.dtype, compute: Compute, stored: torch.dtype | None = None
    ) -> Value:
        """A value of `shape`, to which the operands are broadcast; `compute` is given their elements as they are stored and makes one of
        type `stored` (`dtype` where it is not given). Numbers are handed over as constants of their own types.
        """
        stored = stored or dtype
        dims = loops_of(shape)
        tensors = [value for value in operands if isinstance(value, Value)]
        inputs = [(value.tensor, [dims.index(axis + len(shape) - len(value.shape)) for axis in value.axes]) for value in tensors]
        sizes = [shape[dim] for dim in dims]
        body = Block(arg_types=[*(element(value.stored) for value in tensors), element(stored)])
        scalars, arguments = Scalars(body), iter(body.args)
        given = [self._number(scalars, v) if isinstance(v, Uniform) else next(arguments) for v in operands]
        body.add_op(linalg.ops.YieldOp(compute(scalars, given)))
        result = self.generic(inputs, (self.empty(sizes, stored), range(len(dims))), ["parallel"] * len(dims), body)
        return Value(result, dims, tuple(shape), dtype, stored)

    def _number(self, scalars: Scalars, value: Uniform) -> SSAValue:
        """A number as a scalar of its type."""
        if isinstance(value.number, int | float):
            return scalars.constant(value.number, element(value.dtype))
        index = self.emit.value(self.sizes.index(value.number))
        return scalars.cast(scalars.put(arith.IndexCastOp(index, builtin.i64)), torch.int64, value.dtype)

    def cast(self, value: Operand, dtype: torch.dtype) -> Operand:
        """A value with its elements stored as `dtype`, and seen as such."""
        if isinstance(value, Uniform):
            return Uniform(number_as(value.number, dtype), value.shape, dtype)
        if value.stored == dtype:
            return Value(value.tensor, value.axes, value.shape, dtype, dtype)
        kept = [value.shape[axis] for axis in value.axes]  # what is repeated is converted once
        plain = value.moved(loops_of(kept), kept)
        made = self.elementwise([plain], kept, dtype, lambda s, given: s.cast(given[0], value.stored, dtype))
        return Value(made.tensor, value.axes, value.shape, dtype, dtype)

    def rounded(self, value: Operand) -> Operand:
        """A value with its elements stored as PyTorch sees them."""
        return self.cast(value, value.dtype)

    def row_major(self, value: Operand) -> Value:
        """A value that stores all its elements in order."""
        if isinstance(value, Value) and value.is_row_major:
            return value
        if isinstance(value, Value):
            return self.elementwise([value], value.shape, value.dtype, lambda _, given: given[0], value.stored)
        if not isinstance(value.number, int | float):
            return self.elementwise([value], value.shape, value.dtype, lambda _, given: given[0])
        sizes = [value.shape[dim] for dim in loops_of(value.shape)]
        return Value(self.filled(value.number, sizes, value.dtype), loops_of(value.shape), value.shape, value.dtype, value.dtype)

    def reduction(self, value: Operand, dims: Sequence[int], start: float, dtype: torch.dtype, fold: Compute) -> Value:
        """A value without the dimensions `dims`: `fold` takes an element, cast to `dtype`, and what there is so far, from `start` on."""
        source = (
            value if isinstance(value, Value) and all(dim in value.axes for dim in dims if value.shape[dim] != 1) else self.row_major(value)
        )
        shape = tuple(size for dim, size in enumerate(source.shape) if dim not in dims)
        kept = [dim for dim in source.loops if dim not in dims]
        folded = [dim for dim in source.loops if dim in dims]
        if not folded:
            return self._single_steps(source, shape, start, dtype, fold)
        order = [*kept, *folded]
        body = Block(arg_types=[element(source.stored), element(dtype)])
        scalars = Scalars(body)
        taken = scalars.cast(body.args[0], source.stored, dtype)
        body.add_op(linalg.ops.YieldOp(fold(scalars, [taken, body.args[1]])))
        kinds = ["parallel"] * len(kept) + ["reduction"] * len(folded)
        inputs = [(source.tensor, [order.index(axis) for axis in source.axes])]
        start_value = self.filled(start, [source.shape[dim] for dim in kept], dtype)
        result = self.generic(inputs, (start_value, range(len(kept))), kinds, body)
        return Value(result, loops_of(shape), shape, dtype, dtype)

    def _single_steps(self, source: Value, shape: tuple[Size, ...], start: float, dtype: torch.dtype, fold: Compute) -> Value:
        """A reduction over dimensions of size 1: one step for each element."""
        plain = source.moved([loops_of(shape)[source.loops.index(axis)] for axis in source.axes], shape)

        def step(s: Scalars, given: list[SSAValue]) -> SSAValue:
            return fold(s, [s.cast(given[0], source.stored, dtype), s.constant(start, element(dtype))])

        return self.elementwise([plain], shape, dtype, step)


def number_as(number: "float | sympy.Expr", dtype: torch.dtype) -> "float | sympy.Expr":
    """A number as PyTorch converts it; sizes stay expressions."""
    if not isinstance(number, int | float) or dtype.is_floating_point:
        return number
    return bool(number) if dtype == torch.bool else int(number)


def element(dtype: torch.dtype) -> Attribute:
    """The MLIR type of elements. Raises Unsupported where there is none."""
    if dtype not in ELEMENTS:
        raise Unsupported(f"elements of type {dtype}")
    return ELEMENTS[dtype]
