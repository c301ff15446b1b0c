"""The operands of one part of a split reduction: slices, and elementwise operations that are computed on slices."""

from collections.abc import Mapping

from treadle.analysis.indexing import StructuredOp, body_cost, gathered_tensors, structured
from treadle.dialects import dispatch
from treadle.ir.core import AffineMap, Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.ir.locations import set_location
from treadle.records import dataclass
from treadle.strategies.facts import plain_dims
from treadle.transforms.tensor.generics import build_generic, clone_body, tensor_type
from treadle.transforms.tensor.part_sizes import Extent, static_and_dynamic

Cuts = Mapping[int, tuple[Extent, Extent]]
"""Where along a loop, or along an axis, a part begins, and how long it is."""


@dataclass(slots=True)
class Slicer:
    """Appends to `block` what a part reads. `cheap`: operations of an elementwise operation at most that is computed on a slice, instead of
    being stored and read back. `repeated`: each element is read for many tiles.
    """

    block: Block
    like: Operation
    cheap: int
    repeated: bool

    def operand(self, value: SSAValue, map_: AffineMap, cuts: Cuts) -> SSAValue:
        """What a part reads of an operand through `map_`, where its loops are cut."""
        axes = {axis: cuts[dim] for axis, dim in enumerate(plain_dims(map_)) if dim is not None and dim in cuts}
        return self.part(value, axes)

    def part(self, value: SSAValue, axes: Cuts) -> SSAValue:
        """A tensor between bounds along some of its axes."""
        if not axes:
            return value
        view = self._repeatable(value, axes)
        return self._slice(value, axes) if view is None else self._computed(view, axes)

    def _slice(self, value: SSAValue, axes: Cuts) -> SSAValue:
        shape = tensor_type(value).get_shape()
        sizes: list[Extent] = []
        for axis, size in enumerate(shape):
            if axis in axes:
                sizes.append(axes[axis][1])
            else:
                sizes.append(size if size != builtin.DYNAMIC_INDEX else self._dim(value, axis))
        return slice_of(value, [axes[axis][0] if axis in axes else 0 for axis in range(len(shape))], sizes, self.block, self.like)

    def _dim(self, value: SSAValue, axis: int) -> SSAValue:
        number = arith.ConstantOp(builtin.IntegerAttr(axis, builtin.IndexType()))
        dim = tensor.DimOp(value, number.result)
        self.block.add_ops([number, dim])
        return dim.result

    def _repeatable(self, value: SSAValue, axes: Cuts) -> StructuredOp | None:
        """The elementwise operation that makes a tensor, where it is computed on a part of it as well as on all of it."""
        owner = value.owner
        view = structured(owner) if isinstance(owner, linalg.ops.GenericOp) else None
        if view is None or not view.is_parallel or len(view.outputs) != 1 or dispatch.GROUP in view.op.attributes:
            return None
        if view.output_maps[0] != AffineMap.identity(view.rank) or gathered_tensors(view.op):
            return None
        arithmetic, transcendental = body_cost(view.body)
        if arithmetic > self.cheap or (transcendental and self.repeated):
            return None
        if any(isinstance(op, linalg.ops.IndexOp) for op in view.body.ops):
            return None
        for map_ in view.input_maps:
            plain = plain_dims(map_)
            if any(dim is None and not axes.keys().isdisjoint(expr.used_dims()) for dim, expr in zip(plain, map_.results, strict=True)):
                return None
        return view

    def _computed(self, view: StructuredOp, axes: Cuts) -> SSAValue:
        inputs = [
            self.operand(v, m, axes) if isinstance(v.type, builtin.TensorType) else v
            for v, m in zip(view.inputs, view.input_maps, strict=True)
        ]
        result = view.op.results[0]
        sizes: list[Extent] = []
        for axis, size in enumerate(tensor_type(result).get_shape()):
            sizes.append(axes[axis][1] if axis in axes else size if size != builtin.DYNAMIC_INDEX else self._dim(result, axis))
        static, dynamic = static_and_dynamic(sizes)
        empty = tensor.EmptyOp(dynamic, builtin.TensorType(tensor_type(result).element_type, static))
        maps = (*view.input_maps, *view.output_maps)
        new = build_generic(inputs, [empty.tensor], maps, view.iterators, clone_body(view), view.op)
        self.block.add_ops([empty, new])
        return new.results[0]


def slice_of(value: SSAValue, offsets: list[Extent], sizes: list[Extent], block: Block, like: Operation, *, dropped: int = 0) -> SSAValue:
    """`tensor.extract_slice` at the end of `block`; the result lacks the first `dropped` axes, of extent 1."""
    places, starts = static_and_dynamic(offsets)
    extents, lengths = static_and_dynamic(sizes)
    op = tensor.ExtractSliceOp.build(
        operands=[value, starts, lengths, []],
        result_types=[builtin.TensorType(tensor_type(value).element_type, extents[dropped:])],
        properties={
            "static_offsets": builtin.DenseArrayBase.from_list(builtin.i64, places),
            "static_sizes": builtin.DenseArrayBase.from_list(builtin.i64, extents),
            "static_strides": builtin.DenseArrayBase.from_list(builtin.i64, [1] * len(sizes)),
        },
    )
    set_location(op, like)
    block.add_op(op)
    return op.result
