"""Emitting what makes tensors: sizes, empty tensors, fills and slices."""

from collections.abc import Mapping, Sequence

from treadle.errors import InternalError
from treadle.ir.builtin import is_tensor
from treadle.ir.core import (
    DYNAMIC_INDEX,
    Attribute,
    Block,
    Builder,
    InsertPoint,
    Operation,
    SSAValue,
    get_dynamic_index_list,
    split_dynamic_index_list,
)
from treadle.ir.dialects import builtin, linalg, tensor
from treadle.ir.emitter import Emitter, Index
from treadle.plan.expr import Expr


def tensor_type(value: SSAValue) -> builtin.TensorType[Attribute]:
    """The type of a value known to be a tensor."""
    if not is_tensor(value.type):
        raise InternalError(f"{value.type} is not a tensor")
    return value.type


def mixed(static: Sequence[int], dynamic: Sequence[SSAValue]) -> list[Index]:
    """A list as operations have it: its numbers, and those of `dynamic` in turn where it is marked."""
    return get_dynamic_index_list(static, dynamic, DYNAMIC_INDEX)


class TensorEmitter(Emitter):
    """Emits in front of an operation, at its location, or at the end of a block. Sizes known to be a number are static in types."""

    def __init__(self, place: Operation | Block, symbols: Mapping[str, SSAValue] | None = None, like: Operation | None = None) -> None:
        is_anchor = isinstance(place, Operation)
        point = InsertPoint.before(place) if is_anchor else InsertPoint.at_end(place)
        super().__init__(Builder(point), symbols, place if is_anchor else like)

    def index(self, expr: Expr) -> Index:
        """A size expression over the symbols, the number where it is one."""
        number = expr.as_int()
        return self.expression(expr) if number is None else number

    def size(self, value: SSAValue, axis: int) -> Index:
        """The size of an axis."""
        known = tensor_type(value).get_shape()[axis]
        return self.insert(tensor.DimOp(value, self.constant(axis))) if known == DYNAMIC_INDEX else known

    def sizes(self, value: SSAValue) -> list[Index]:
        """The size of every axis."""
        return [self.size(value, axis) for axis in range(tensor_type(value).get_num_dims())]

    def empty(self, sizes: Sequence[Index], element: Attribute, shape: Sequence[int] | None = None) -> SSAValue:
        """An empty tensor; `shape`: the type's, where more of it is to be dynamic than need be."""
        type_ = builtin.TensorType(element, self._split(sizes)[0] if shape is None else shape)
        dynamic = [self.value(size) for size, known in zip(sizes, type_.get_shape(), strict=True) if known == DYNAMIC_INDEX]
        return self.insert(tensor.EmptyOp(dynamic, type_))

    def empty_like(self, value: SSAValue, element: Attribute | None = None) -> SSAValue:
        """An empty tensor of the shape of `value` (and of its element type unless `element` is given)."""
        type_ = tensor_type(value)
        return self.empty(self.sizes(value), element or type_.element_type)

    def fill(self, scalar: SSAValue, destination: SSAValue) -> SSAValue:
        """`destination` filled with a number."""
        return self.insert(linalg.ops.FillOp([scalar], [destination], [destination.type]))

    def insert_slice(
        self,
        source: SSAValue,
        destination: SSAValue,
        offsets: Sequence[Index],
        sizes: Sequence[Index] | None = None,
        strides: Sequence[Index] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> SSAValue:
        """`destination` with `source` at `offsets`; its `sizes` are asked of itself where they are not given, strides are 1 then."""
        operands, properties = self._slice(offsets, self.sizes(source) if sizes is None else sizes, strides)
        op = tensor.InsertSliceOp.build(operands=[source, destination, *operands], result_types=[destination.type], properties=properties)
        op.attributes.update(attributes or {})
        return self.insert(op)

    def extract_slice(
        self,
        source: SSAValue,
        sizes: Sequence[Index],
        offsets: Sequence[Index] | None = None,
        strides: Sequence[Index] | None = None,
        *,
        kept: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
    ) -> SSAValue:
        """The part of these sizes at `offsets`, at the start of `source` where these are not given, with the axes `kept`; others are of
        size 1. `shape`: the type's.
        """
        operands, properties = self._slice([0] * len(sizes) if offsets is None else offsets, sizes, strides)
        known, axes = self._split(sizes)[0], range(len(sizes)) if kept is None else kept
        result = builtin.TensorType(tensor_type(source).element_type, [known[axis] for axis in axes] if shape is None else shape)
        return self.insert(tensor.ExtractSliceOp.build(operands=[source, *operands], result_types=[result], properties=properties))

    def _split(self, indices: Sequence[Index]) -> tuple[list[int], list[SSAValue]]:
        """A list as operations have it: numbers, those of values marked, and these values."""
        known = [index if (number := self.static(index)) is None else number for index in indices]
        return split_dynamic_index_list(known, DYNAMIC_INDEX)

    def _slice(
        self, offsets: Sequence[Index], sizes: Sequence[Index], strides: Sequence[Index] | None
    ) -> tuple[list[list[SSAValue]], dict[str, Attribute]]:
        """The operands and properties of a slice."""
        lists = {"static_offsets": offsets, "static_sizes": sizes, "static_strides": [1] * len(sizes) if strides is None else strides}
        split = {name: self._split(values) for name, values in lists.items()}
        static = {name: builtin.DenseArrayBase.from_list(builtin.i64, numbers) for name, (numbers, _) in split.items()}
        return [values for _, values in split.values()], dict(static)
