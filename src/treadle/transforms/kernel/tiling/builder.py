"""The tile kernel under construction: arguments, views of global arrays, and tiles of any tensor of the dispatched body."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import StructuredOp, structured
from treadle.analysis.loop_nest import Linear, Linears, LoopNest, compose, identity, kernel_symbols, producer_dims, result_number
from treadle.dialects import dispatch, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import InternalError
from treadle.ir.builtin import array_ints, element_of, is_tensor
from treadle.ir.core import AffineMap, Attribute, Block, BlockArgument, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.plan.expr import Expr, as_expr, constant
from treadle.transforms.kernel.tiling.index_math import IndexBuilder
from treadle.transforms.kernel.tiling.scalars import BodyEvaluator, Constant, Tile, Value, dense, stored_type

UNIT = -1
"""The axis of extent one that stands in where a frame would have no axis, or a contraction no m or n."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The dimensions of a register tile: merged axes (or UNIT) with the extent each has in the tile."""

    axes: tuple[int, ...]
    extents: tuple[int, ...]

    def with_unit(self, axes: Sequence[int]) -> "Frame":
        """The same frame with extent 1 along some axes."""
        return Frame(self.axes, tuple(1 if a in axes else e for a, e in zip(self.axes, self.extents, strict=True)))


class KernelBuilder:
    """Builds one `tile.kernel` from a loop nest.

    `offset`: where the current tile starts along each merged axis (set by the tilings, also inside loops). `known`: tiles of tensors of
    the body
    that are computed already (the root's results, then consumers').
    """

    def __init__(self, nest: LoopNest, index_element: builtin.IntegerType = builtin.i32) -> None:
        self.nest = nest
        kernel = nest.kernel
        self.kernel = kernel
        names = dispatch.texts(kernel.symbols)
        arguments = list(kernel.body.block.args)[: kernel.tensor_count]
        outputs = list(kernel.function_type.outputs)
        types: list[Attribute] = [PointerType(element_of(t)) for t in [*(a.type for a in arguments), *outputs]]
        self.block = Block(arg_types=[*types, *(builtin.IndexType() for _ in names)])
        self.inputs = self.block.args[: len(arguments)]
        self.outputs = self.block.args[len(arguments) : len(types)]
        self.location = nest.root.op.location
        builder = Builder(InsertPoint.at_end(self.block))
        self.index = IndexBuilder(builder, dict(zip(names, self.block.args[len(types) :], strict=True)), index_element)
        self.symbol_of = kernel_symbols(kernel)
        self.offset: dict[int, SSAValue] = {UNIT: self.index.constant(0)}
        self.known: dict[SSAValue, Value] = {}
        self._views: dict[object, SSAValue] = {}
        self._view_anchor: Operation = cast(Operation, self.offset[UNIT].owner)
        self._tiles: list[dict[object, Value]] = [{}]
        self._scalars: dict[SSAValue, Value] = {}

    def element_type(self, name: str) -> Attribute:
        """The element type of a name: "tf32" is f32 in memory; 8-bit floats are an argument's."""
        if name == "tf32":
            return builtin.f32
        found = (t.element_type for t in (arg.type for arg in self.kernel.body.block.args) if is_tensor(t) and str(t.element_type) == name)
        known: dict[str, Attribute] = {str(kind): kind for kind in (builtin.f16, builtin.bf16, builtin.f32, builtin.f64)}
        if (width := re.fullmatch(r"i(\d+)", name)) is not None:
            return builtin.IntegerType(int(width.group(1)))
        if (kind := known.get(name) or next(found, None)) is None:
            raise InternalError(f"no argument has the element type {name} that the config names")
        return kind

    # places

    def enter(self, block: Block) -> InsertPoint:
        """Continue inside `block`; returns the place to come back to with `leave`. Tiles made inside are forgotten on leaving."""
        previous = self.index.builder.insertion_point
        self.index.builder.insertion_point = InsertPoint.at_end(block)
        self._tiles.append({})
        return previous

    def leave(self, place: InsertPoint) -> None:
        """Back to where `enter` was called."""
        self.index.builder.insertion_point = place
        self._tiles.pop()

    @contextmanager
    def at(self, axis: int, offset: SSAValue) -> Generator[None]:
        """Within: tiles start at `offset` along `axis`, and those that are made are forgotten afterwards."""
        before = self.offset.get(axis)
        self.offset[axis] = offset
        self._tiles.append({})
        yield
        self._tiles.pop()
        if before is not None:
            self.offset[axis] = before

    def axis_size(self, axis: int) -> Expr:
        """Extent of a merged axis."""
        return constant(1) if axis == UNIT else self.nest.axes[axis].size

    def is_argument(self, value: SSAValue) -> bool:
        """Whether a tensor of the dispatched body is one of the kernel's arguments (so its loads are masked by its own bounds)."""
        return isinstance(value, BlockArgument) and value.block is self.kernel.body.block

    def masked_axes(self, value: SSAValue, dims: Linears) -> frozenset[int]:
        """Axes along which a load of `value` at `dims` gives `other` past the end: those that a kernel argument really steps along.

        A broadcast argument (stride 0) has one element along the axis, which the load repeats, past the end too.
        """
        if not isinstance(value, BlockArgument) or not self.is_argument(value):
            return frozenset()
        return frozenset((UNIT, *self._dims_to_strides(self._strides(self.kernel.arg_strides, value.index), dims)[0]))

    def reached(self, map_: AffineMap, dims: Linears | None = None) -> Linears:
        """The place that loops at `dims`, which are the root's own where not given, reach through a map."""
        rank = self.nest.root.rank
        return compose(map_, identity(rank) if dims is None else dims, rank)

    # scalars of the kernel's top level

    def scalar_of(self, value: SSAValue) -> Value:
        """A scalar of the dispatched body's top level (constants, arithmetic on index arguments) as a value on tiles."""
        if value not in self._scalars:
            op = value.owner
            if isinstance(op, arith.ConstantOp):
                self._scalars[value] = Constant(op.value, op.result.type)
            else:
                return Tile(self._splat(self._top_scalar(value)))
        return self._scalars[value]

    def _splat(self, scalar: SSAValue) -> SSAValue:
        element = stored_type(scalar.type, self.index)
        return self.index.insert(tile.SplatOp(scalar, builtin.TensorType(element, [1] * self._rank)))

    _rank = 1

    def _top_scalar(self, value: SSAValue) -> SSAValue:
        if value in self.symbol_of:
            return self.index.expression(self.symbol_of[value])
        op = value.owner
        if not isinstance(op, Operation):
            raise InternalError("a scalar of unknown origin in a kernel's body")
        operands = [self._top_scalar(v) for v in op.operands]
        new = op.clone()
        for i, operand in enumerate(operands):
            new.operands[i] = operand
        return self.index.insert(new)

    # views

    def _dims_to_strides(self, strides: Sequence[Expr], dims: Linears) -> tuple[dict[int, Expr], Expr]:
        """Strides along merged axes and the constant offset of a tensor read at `dims`."""
        total: dict[int, Expr] = {}
        for number, axis in enumerate(self.nest.axes):
            inner = axis.dims[-1]
            stride = sum((s * lin.coefficients[inner] for s, lin in zip(strides, dims, strict=True)), constant(0)) * axis.factor
            if stride != constant(0):
                total[number] = stride
        offset = sum((s * lin.offset for s, lin in zip(strides, dims, strict=True)), constant(0))
        return total, offset

    def _sized(self, expr: Expr) -> int | SSAValue:
        value = expr.as_int()
        return value if value is not None else self.index.expression(expr)

    def view(self, pointer: BlockArgument, align: int, strides: dict[int, Expr], offset: Expr, axes: Sequence[int]) -> SSAValue:
        """The view of an array along the given merged axes (made once, at the kernel's top)."""
        key = (pointer, tuple(axes), tuple(sorted((a, str(s)) for a, s in strides.items())), str(offset))
        element = cast(PointerType, pointer.type).element_type
        static_offset = offset.as_int()
        if static_offset is None:
            raise InternalError("a constant index along a dimension of dynamic stride")
        if static_offset:
            align = _gcd_power(align, abs(static_offset) * element_bytes(element))
        steps = [strides.get(a, constant(0)) for a in axes]
        return self._view_at_top(key, pointer, [self.axis_size(a) for a in axes], steps, static_offset, align)

    def _view_at_top(
        self, key: object, pointer: BlockArgument, sizes: Sequence[Expr], strides: Sequence[Expr], offset: int, align: int
    ) -> SSAValue:
        """The view that `key` names, made at the kernel's top where it is new."""
        if key in self._views:
            return self._views[key]
        place = self.index.builder.insertion_point
        self.index.builder.insertion_point = InsertPoint.after(self._view_anchor)
        before = set(self.block.ops)
        known = [self._sized(size) for size in sizes], [self._sized(stride) for stride in strides]
        value = self.index.insert(tile.ViewOp(pointer, *known, offset=offset, align=align))
        added = [op for op in self.block.ops if op not in before]
        self._view_anchor = added[-1]
        self.index.builder.insertion_point = place
        self._views[key] = value
        return value

    def gather(self, source: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
        """A tile of the elements of a tensor argument at index tiles of one shape, one a dimension of the argument."""
        if not isinstance(source, BlockArgument) or not self.is_argument(source):
            raise InternalError("a gather from what is no argument of the kernel")
        number = source.index
        shape = [as_expr(t) for t in dispatch.text_lists(self.kernel.arg_shapes)[number]]
        strides = self._strides(self.kernel.arg_strides, number)
        align = array_ints(self.kernel.arg_align)[number]
        view = self._view_at_top(("gather", number), self.inputs[number], shape, strides, 0, align)
        return self.index.insert(tile.GatherOp(view, indices))

    def _view_axes(self, strides: dict[int, Expr], frame: Frame) -> tuple[list[int], list[int]]:
        """View axes (frame axes first, then the others the array depends on) and, for each tile dimension, its view dimension."""
        others = [a for a in sorted(strides) if a not in frame.axes]
        return [*others, *frame.axes], [len(others) + i for i in range(len(frame.axes))]

    def load(self, number: int, dims: Linears, frame: Frame, other: Attribute | None = None) -> Tile:
        """A tile of tensor argument `number` read at `dims`."""
        strides, offset = self._dims_to_strides(self._strides(self.kernel.arg_strides, number), dims)
        axes, tile_dims = self._view_axes(strides, frame)
        align = array_ints(self.kernel.arg_align)[number]
        # Along axes it does not depend on, the array has extent one: the tile starts at zero there.
        offsets = [self.offset[a] if a in strides else self.index.constant(0) for a in axes]
        view = self.view(self.inputs[number], align, strides, offset, [a if a in strides else UNIT for a in axes])
        element = element_of(self.kernel.body.block.args[number].type)
        # The stand-in axis has one element: the rest of its extent is outside, like any tile's ragged end.
        extents = [e if a in strides or a == UNIT else 1 for a, e in zip(frame.axes, frame.extents, strict=True)]
        result = builtin.TensorType(element, extents)
        return Tile(self.index.insert(tile.LoadOp(view, offsets, tile_dims, result, other=other)))

    def store(self, number: int, value: Value, dims: Linears, frame: Frame) -> None:
        """Write a tile to result `number`, whose dimensions are `dims`."""
        strides, offset = self._dims_to_strides(self._strides(self.kernel.result_strides, number), dims)
        axes, tile_dims = self._view_axes(strides, frame)
        covered = {a for a in range(len(self.nest.axes)) if any(lin.coefficients[self.nest.axes[a].dims[-1]] for lin in dims)}
        extents = [e if a in covered or a == UNIT else 1 for a, e in zip(frame.axes, frame.extents, strict=True)]
        whole = self.evaluator(frame).materialize(value, extents)
        offsets = [self.offset[a] if a in covered else self.index.constant(0) for a in axes]
        align = array_ints(self.kernel.result_align)[number]
        view = self.view(self.outputs[number], align, strides, offset, [a if a in covered else UNIT for a in axes])
        self.index.builder.insert(tile.StoreOp(whole, view, offsets, tile_dims))

    def _strides(self, rows: builtin.ArrayAttr[dispatch.Strings], number: int) -> list[Expr]:
        return [as_expr(t) for t in dispatch.text_lists(rows)[number]]

    # tiles of tensors

    def evaluator(self, frame: Frame, dims: Linears = ()) -> BodyEvaluator:
        """Evaluates bodies of a generic whose iteration dimensions are `dims`, on tiles of `frame`."""
        self._rank = len(frame.axes)
        return BodyEvaluator(self.index, len(frame.axes), self.scalar_of, lambda d: self._index_tile(dims[d], frame), self.gather)

    def _index_tile(self, position: Linear, frame: Frame) -> Value:
        """The value of a linear form of the root's dimensions over a tile, as an integer as wide as an index."""
        rank, element = len(frame.axes), self.index.element
        base = self.index.constant(position.offset)
        for number, axis in enumerate(self.nest.axes):
            if factor := position.coefficients[axis.dims[-1]] * axis.factor:
                base = self.index.add(base, self.index.multiply(self.offset[number], factor))
        total = self.index.insert(tile.SplatOp(base, builtin.TensorType(element, [1] * rank)))
        for j, (axis_number, extent) in enumerate(zip(frame.axes, frame.extents, strict=True)):
            if axis_number == UNIT or extent == 1:
                continue
            axis = self.nest.axes[axis_number]
            factor = position.coefficients[axis.dims[-1]] * axis.factor
            if not factor:
                continue
            shape = [extent if i == j else 1 for i in range(rank)]
            steps = self.index.insert(tile.IotaOp(j, builtin.TensorType(element, shape)))
            if factor != 1:
                steps = self.index.insert(
                    arith.MuliOp(steps, self.index.insert(dense(builtin.IntegerAttr(factor, element), element, shape)))
                )
            whole = [max(a, b) for a, b in zip(tile.tile_type(total).get_shape(), shape, strict=True)]
            left, right = (self.evaluator(frame).materialize(Tile(v), whole) for v in (total, steps))
            total = self.index.insert(arith.AddiOp(left, right))
        return Tile(total)

    def value(self, source: SSAValue, dims: Linears, frame: Frame, other: Attribute | None = None) -> Value:
        """The tile of a tensor (or scalar) of the body read at `dims`."""
        if source in self.known:
            return self.known[source]
        if not isinstance(source.type, builtin.TensorType):
            return self.scalar_of(source)
        key = (source, dims, frame, other)
        for remembered in self._tiles:
            if key in remembered:
                return remembered[key]
        if isinstance(source, BlockArgument):
            result: Value = self.load(source.index, dims, frame, other)
        elif isinstance(source.owner, linalg.ops.FillOp):
            result = self.scalar_of(source.owner.inputs[0])
        else:
            result = self._computed(source, dims, frame)
        self._tiles[-1][key] = result
        return result

    def _computed(self, source: SSAValue, dims: Linears, frame: Frame) -> Value:
        op = source.owner
        view = structured(op) if isinstance(op, linalg.ops.GenericOp) else None
        if view is None or not isinstance(op, Operation):
            raise InternalError(f"a kernel's body reads {op}")
        number = result_number(source)
        inner = producer_dims(view, number, dims, self.nest.root.rank)
        return self.body_values(view, inner, frame, [view.yielded()[number]])[0]

    def arguments(
        self, view: StructuredOp, dims: Linears, frame: Frame, others: dict[int, Attribute] | None = None
    ) -> dict[SSAValue, Value]:
        """The values of a body's input arguments when its generic iterates at `dims`."""
        rank = self.nest.root.rank
        found: dict[SSAValue, Value] = {}
        for i, (source, map_) in enumerate(zip(view.inputs, view.input_maps, strict=True)):
            if view.body.args[i].first_use is not None:
                found[view.body.args[i]] = self.value(source, compose(map_, dims, rank), frame, (others or {}).get(i))
        return found

    def body_values(self, view: StructuredOp, dims: Linears, frame: Frame, scalars: Sequence[SSAValue]) -> list[Value]:
        """Scalars of an all-parallel generic's body at `dims`."""
        arguments = self.arguments(view, dims, frame)
        evaluator = self.evaluator(frame, dims)
        return [evaluator.evaluate(s, arguments) for s in scalars]

    def finish_consumers(self, frame: Frame) -> None:
        """Compute the consumers of the root (whose results are in `known`) and store the kernel's results."""
        for op, dims in self.nest.consumer_dims.items():
            view = structured(op)
            if view is None:
                raise InternalError(f"consumer {op} is not structured")
            for result, value in zip(op.results, self.body_values(view, dims, frame, view.yielded()), strict=True):
                self.known[result] = value
        last = self.kernel.body.block.last_op
        if last is None:
            raise InternalError("a kernel without dispatch.yield")
        for number, value in enumerate(last.operands):
            self.store(number, self.known[value], self._result_dims(value), frame)

    def _result_dims(self, value: SSAValue) -> Linears:
        op = value.owner
        view = structured(op) if isinstance(op, Operation) else None
        if view is None:
            raise InternalError("a kernel yields what no generic computes")
        return self.reached(view.output_maps[result_number(value)], self.nest.consumer_dims.get(view.op))


def _gcd_power(align: int, byte_offset: int) -> int:
    return min(align, byte_offset & -byte_offset)
