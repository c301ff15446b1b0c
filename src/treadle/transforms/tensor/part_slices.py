"""The operands of one part of a split reduction: slices, and elementwise operations that are computed on slices."""

from collections.abc import Mapping

from treadle.analysis.indexing import StructuredOp, body_cost, gathered_tensors, plain_dims, structured
from treadle.dialects import dispatch
from treadle.ir.core import AffineMap, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.ir.emitter import Index
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.generics import build_generic, clone_body

Cuts = Mapping[int, tuple[Index, Index]]
"""Where along a loop, or along an axis, a part begins, and how long it is."""


@dataclass(slots=True)
class Slicer:
    """Emits what a part reads. `cheap`: operations of an elementwise operation at most that is computed on a slice, instead of
    being stored and read back. `repeated`: each element is read for many tiles.
    """

    emit: TensorEmitter
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
        if (view := self._repeatable(value, axes)) is not None:
            return self._computed(view, axes)
        offsets: list[Index] = [axes[axis][0] if axis in axes else 0 for axis in range(tensor_type(value).get_num_dims())]
        return self.emit.extract_slice(value, self._sizes(value, axes), offsets)

    def _sizes(self, value: SSAValue, axes: Cuts) -> list[Index]:
        return [axes[axis][1] if axis in axes else self.emit.size(value, axis) for axis in range(tensor_type(value).get_num_dims())]

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
        empty = self.emit.empty(self._sizes(result, axes), tensor_type(result).element_type)
        maps = (*view.input_maps, *view.output_maps)
        return self.emit.insert(build_generic(inputs, [empty], maps, view.iterators, clone_body(view), view.op))
