"""Emitting what makes tensors: sizes, empty tensors, fills and slices."""

from collections.abc import Sequence

from treadle.analysis.indexing import tensor_of
from treadle.errors import InternalError
from treadle.ir.core import DYNAMIC_INDEX, Attribute, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import builtin, linalg, tensor
from treadle.ir.emitter import Emitter


def tensor_type(value: SSAValue) -> builtin.TensorType[Attribute]:
    """The type of a value known to be a tensor."""
    if (type_ := tensor_of(value)) is None:
        raise InternalError(f"{value.type} is not a tensor")
    return type_


class TensorEmitter(Emitter):
    """Emits in front of `anchor`, at its location. Sizes are index values; those that are constant are static in types."""

    def __init__(self, anchor: Operation) -> None:
        super().__init__(Builder(InsertPoint.before(anchor)), like=anchor)

    def size(self, value: SSAValue, axis: int) -> SSAValue:
        """The size of an axis."""
        known = tensor_type(value).get_shape()[axis]
        number = self.constant(axis if known == DYNAMIC_INDEX else known)
        return self.insert(tensor.DimOp(value, number)) if known == DYNAMIC_INDEX else number

    def sizes(self, value: SSAValue) -> list[SSAValue]:
        """The size of every axis."""
        return [self.size(value, axis) for axis in range(tensor_type(value).get_num_dims())]

    def empty(self, sizes: Sequence[SSAValue], element: Attribute, shape: Sequence[int] | None = None) -> SSAValue:
        """An empty tensor; `shape`: the type's, where more of it is to be dynamic than need be."""
        type_ = builtin.TensorType(element, self._shape(sizes) if shape is None else shape)
        dynamic = [size for size, known in zip(sizes, type_.get_shape(), strict=True) if known == DYNAMIC_INDEX]
        return self.insert(tensor.EmptyOp(dynamic, type_))

    def empty_like(self, value: SSAValue, element: Attribute | None = None) -> SSAValue:
        """An empty tensor of the shape of `value` (and of its element type unless `element` is given)."""
        type_ = tensor_type(value)
        return self.empty(self.sizes(value), element or type_.element_type)

    def fill(self, scalar: SSAValue, destination: SSAValue) -> SSAValue:
        """`destination` filled with a number."""
        return self.insert(linalg.ops.FillOp([scalar], [destination], [destination.type]))

    def insert_slice(
        self, source: SSAValue, destination: SSAValue, offsets: Sequence[SSAValue], sizes: Sequence[SSAValue] | None = None
    ) -> SSAValue:
        """`destination` with `source` at `offsets`; its `sizes` are asked of itself where they are not given."""
        sizes = self.sizes(source) if sizes is None else sizes
        operands = [source, destination, self._dynamic(offsets), self._dynamic(sizes), []]
        properties = self._slice(offsets, sizes)
        return self.insert(tensor.InsertSliceOp.build(operands=operands, result_types=[destination.type], properties=properties))

    def extract_slice(self, source: SSAValue, sizes: Sequence[SSAValue]) -> SSAValue:
        """The part of these sizes at the start of `source`."""
        result = builtin.TensorType(tensor_type(source).element_type, self._shape(sizes))
        operands, properties = [source, [], self._dynamic(sizes), []], self._slice([self.constant(0)] * len(sizes), sizes)
        return self.insert(tensor.ExtractSliceOp.build(operands=operands, result_types=[result], properties=properties))

    def mixed(self, static: Sequence[int], dynamic: Sequence[SSAValue]) -> list[SSAValue]:
        """The values of a static list whose dynamic entries are those of `dynamic` in turn."""
        values = iter(dynamic)
        return [self.constant(int(entry)) if entry != DYNAMIC_INDEX else next(values) for entry in static]

    def _shape(self, sizes: Sequence[SSAValue]) -> list[int]:
        return [DYNAMIC_INDEX if (known := self.static(size)) is None else known for size in sizes]

    def _dynamic(self, sizes: Sequence[SSAValue]) -> list[SSAValue]:
        return [size for size in sizes if self.static(size) is None]

    def _slice(self, offsets: Sequence[SSAValue], sizes: Sequence[SSAValue]) -> dict[str, Attribute]:
        lists = {"static_offsets": self._shape(offsets), "static_sizes": self._shape(sizes), "static_strides": [1] * len(sizes)}
        return {name: builtin.DenseArrayBase.from_list(builtin.i64, values) for name, values in lists.items()}
