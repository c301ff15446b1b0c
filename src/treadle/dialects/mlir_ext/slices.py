"""Slices of tensors with strict verification, and `tensor.parallel_insert_slice`.

Upstream accepts any result type; here the sliced side must have the sizes the op states, rank reduction only dropping dimensions of
static size 1, and static offsets, sizes and strides must lie inside the other side.
"""

from collections.abc import Sequence
from typing import ClassVar, cast

from treadle.dialects.mlir_ext.forall import InParallelOp
from treadle.ir.builtin import DenseArrayBase, IndexType, TensorType, i64
from treadle.ir.core import (
    DYNAMIC_INDEX,
    Attribute,
    AttrSizedOperandSegments,
    DynamicIndexList,
    HasParent,
    IRDLOperation,
    Operation,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    prop_def,
    split_dynamic_index_list,
    traits_def,
    var_operand_def,
    verify_dynamic_index_list,
)
from treadle.ir.dialects import tensor

Extent = SSAValue | int


def dropped_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions of `sizes` that `shape` leaves out, or None where `shape` is no rank reduction of `sizes`.

    `sizes` and `shape` hold extents, `DYNAMIC_INDEX` where dynamic. Only extents of 1 may be left out; matched from the left as MLIR does.
    """
    dropped: list[int] = []
    position = 0
    for dimension, size in enumerate(sizes):
        if position < len(shape) and shape[position] == size:
            position += 1
        elif size == 1:
            dropped.append(dimension)
        else:
            return None
    return tuple(dropped) if position == len(shape) else None


def _show(shape: Sequence[int]) -> str:
    return "x".join("?" if extent == DYNAMIC_INDEX else str(extent) for extent in shape) or "scalar"


def verify_slice(
    whole: TensorType, part: TensorType, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int], part_name: str
) -> None:
    """Check that `part` is the slice `offsets, sizes, strides` (ints or DYNAMIC_INDEX) of `whole`, dimensions of 1 maybe left out."""
    rank = whole.get_num_dims()
    for what, values in (("offset", offsets), ("size", sizes), ("stride", strides)):
        if len(values) != rank:
            raise VerifyException(f"expected {rank} {what}s for a tensor of rank {rank}, found {len(values)}")
    if whole.element_type != part.element_type:
        raise VerifyException(f"element types differ: {whole.element_type} and {part.element_type}")
    if dropped_dimensions(sizes, part.get_shape()) is None:
        raise VerifyException(f"{part_name} has shape {_show(part.get_shape())}, but the slice has sizes {_show(sizes)}")
    for dimension, (extent, offset, size, stride) in enumerate(zip(whole.get_shape(), offsets, sizes, strides, strict=True)):
        if size != DYNAMIC_INDEX and size < 0:
            raise VerifyException(f"size of dimension {dimension} is negative ({size})")
        if offset != DYNAMIC_INDEX and offset < 0:
            raise VerifyException(f"offset of dimension {dimension} is negative ({offset})")
        if DYNAMIC_INDEX in (extent, offset, size, stride) or size == 0:
            continue
        last = offset + (size - 1) * stride
        if not (0 <= last < extent and offset < extent):
            raise VerifyException(f"the slice reaches element {max(last, offset)} of dimension {dimension}, which has {extent} elements")


class SliceOpMixin(IRDLOperation):
    """Offsets, sizes and strides of a slice op as lists of ints and index values."""

    def verify_access(self, whole: Attribute, part: Attribute, part_name: str) -> None:
        """Check the dynamic lists and the types on both sides."""
        op = cast("ParallelInsertSliceOp", self)
        offsets, sizes, strides = op.static_offsets.get_values(), op.static_sizes.get_values(), op.static_strides.get_values()
        verify_dynamic_index_list(offsets, op.offsets, DYNAMIC_INDEX, " in the offset arguments")
        verify_dynamic_index_list(sizes, op.sizes, DYNAMIC_INDEX, " in the size arguments")
        verify_dynamic_index_list(strides, op.strides, DYNAMIC_INDEX, " in the stride arguments")
        verify_slice(cast(TensorType, whole), cast(TensorType, part), offsets, sizes, strides, part_name)


class ExtractSliceOp(SliceOpMixin, tensor.ExtractSliceOp):
    """`tensor.extract_slice` whose result type is checked against its sizes."""

    def verify_(self) -> None:
        super().verify_()
        self.verify_access(self.source.type, self.result.type, "the result")


class InsertSliceOp(SliceOpMixin, tensor.InsertSliceOp):
    """`tensor.insert_slice` whose source type is checked against its sizes."""

    def verify_(self) -> None:
        super().verify_()
        self.verify_access(self.dest.type, self.source.type, "the source")


@irdl_op_definition
class ParallelInsertSliceOp(SliceOpMixin):
    """Inside `scf.forall.in_parallel`: this iteration's part of a shared output."""

    name = "tensor.parallel_insert_slice"

    source = operand_def(TensorType)
    dest = operand_def(TensorType)
    offsets = var_operand_def(IndexType)
    sizes = var_operand_def(IndexType)
    strides = var_operand_def(IndexType)
    static_offsets = prop_def(DenseArrayBase.constr(i64))
    static_sizes = prop_def(DenseArrayBase.constr(i64))
    static_strides = prop_def(DenseArrayBase.constr(i64))

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(HasParent(InParallelOp))
    custom_directives: ClassVar = (DynamicIndexList,)
    assembly_format = (
        "$source `into` $dest ``"
        "custom<DynamicIndexList>($offsets, $static_offsets)"
        "custom<DynamicIndexList>($sizes, $static_sizes)"
        "custom<DynamicIndexList>($strides, $static_strides)"
        "attr-dict `:` type($source) `into` type($dest)"
    )

    def __init__(
        self,
        source: SSAValue | Operation,
        dest: SSAValue | Operation,
        offsets: Sequence[Extent],
        sizes: Sequence[Extent],
        strides: Sequence[Extent],
    ) -> None:
        static_offsets, dynamic_offsets = split_dynamic_index_list(offsets, DYNAMIC_INDEX)
        static_sizes, dynamic_sizes = split_dynamic_index_list(sizes, DYNAMIC_INDEX)
        static_strides, dynamic_strides = split_dynamic_index_list(strides, DYNAMIC_INDEX)
        super().__init__(
            operands=[source, dest, dynamic_offsets, dynamic_sizes, dynamic_strides],
            properties={
                "static_offsets": DenseArrayBase.from_list(i64, static_offsets),
                "static_sizes": DenseArrayBase.from_list(i64, static_sizes),
                "static_strides": DenseArrayBase.from_list(i64, static_strides),
            },
        )

    def verify_(self) -> None:
        self.verify_access(self.dest.type, self.source.type, "the source")
