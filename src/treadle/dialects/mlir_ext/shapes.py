"""`tensor.empty`, `tensor.cast` and `tensor.pad` with the checks that upstream leaves out; `tensor.bitcast` and `rank`, which it lacks."""

from typing import Self, cast

from treadle.ir.builtin import AnyFloat, IndexType, IntegerType, TensorType, element_of, is_tensor
from treadle.ir.core import (
    DYNAMIC_INDEX,
    Attribute,
    IRDLOperation,
    Operation,
    Parser,
    Printer,
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
)
from treadle.ir.dialects import tensor


class EmptyOp(tensor.EmptyOp):
    """A tensor of unspecified contents: one size operand per dynamic dimension."""

    def verify_(self) -> None:
        super().verify_()
        dynamic = self.tensor.type.get_shape().count(DYNAMIC_INDEX)
        if dynamic != len(self.dynamic_sizes):
            raise VerifyException(f"{self.tensor.type} has {dynamic} dynamic dimension(s), but {len(self.dynamic_sizes)} size(s) are given")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        op = super().parse(parser)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string("(")
        printer.print_list(self.dynamic_sizes, printer.print_ssa_value)
        printer.print_string(") : ")
        printer.print_attribute(self.tensor.type)


class CastOp(tensor.CastOp):
    """The same tensor with more or fewer dimensions known."""

    def verify_(self) -> None:
        super().verify_()
        source, result = self.source.type, self.dest.type
        if is_tensor(source) and is_tensor(result) and source.element_type != result.element_type:
            raise VerifyException(f"cannot convert elements of {source} to {result}")


class PadOp(tensor.PadOp):
    """The source with `low` elements before and `high` after each dimension."""

    def verify_(self) -> None:
        super().verify_()
        source, result = cast(TensorType, self.source.type), self.result.type
        if source.element_type != result.element_type:
            raise VerifyException(f"element types differ: {source.element_type} and {result.element_type}")
        extents = zip(source.get_shape(), self.static_low.get_values(), self.static_high.get_values(), result.get_shape(), strict=True)
        for dimension, (extent, low, high, padded) in enumerate(extents):
            if DYNAMIC_INDEX not in (extent, low, high, padded) and extent + low + high != padded:
                raise VerifyException(f"dimension {dimension} of the result is {padded}, expected {low} + {extent} + {high}")


@irdl_op_definition
class BitcastOp(IRDLOperation):
    """The same bits as elements of another type of the same width."""

    name = "tensor.bitcast"
    source = operand_def(TensorType)
    dest = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `to` type($dest)"

    def __init__(self, source: SSAValue | Operation, result_type: Attribute) -> None:
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        source, result = self.source.type, self.dest.type
        if not is_tensor(source) or not is_tensor(result) or source.get_shape() != result.get_shape():
            raise VerifyException(f"operand {source} and result {result} must have the same shape")
        widths = [kind.bitwidth if isinstance(kind, AnyFloat | IntegerType) else 0 for kind in (element_of(source), element_of(result))]
        if 0 in widths or widths[0] != widths[1]:
            raise VerifyException(f"elements of {source} and {result} must have the same number of bits")


@irdl_op_definition
class RankOp(IRDLOperation):
    """The number of dimensions."""

    name = "tensor.rank"
    source = operand_def(TensorType)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source)"

    def __init__(self, source: SSAValue | Operation) -> None:
        super().__init__(operands=[source], result_types=[IndexType()])
