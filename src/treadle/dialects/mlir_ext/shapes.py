"""`tensor.empty`, `tensor.cast` and `tensor.pad` with the checks that upstream leaves out."""

from typing import Self, cast

from treadle.ir.builtin import TensorType, is_tensor
from treadle.ir.core import DYNAMIC_INDEX, Parser, Printer, VerifyException
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
