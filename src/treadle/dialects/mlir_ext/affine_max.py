"""`affine.max`, which upstream lacks; the mirror of `affine.min`. Also pure versions of both, so that dead ones are removed."""

from collections.abc import Sequence
from typing import Self

from treadle.ir.builtin import AffineMapAttr, IndexType
from treadle.ir.core import (
    IRDLOperation,
    Operation,
    Parser,
    Printer,
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)


class _ExtremumOp(IRDLOperation):
    """The extreme value of the results of `map` applied to the operands (dimensions first, then symbols)."""

    arguments = var_operand_def(IndexType)
    result = result_def(IndexType)
    map = prop_def(AffineMapAttr)
    traits = traits_def(Pure())

    def __init__(self, map_operands: Sequence[SSAValue | Operation], affine_map: AffineMapAttr) -> None:
        super().__init__(operands=[map_operands], properties={"map": affine_map}, result_types=[IndexType()])

    def verify_(self) -> None:
        wanted = self.map.data.num_dims + self.map.data.num_symbols
        if len(self.arguments) != wanted:
            raise VerifyException(f"the map takes {wanted} operand(s), found {len(self.arguments)}")
        if not self.map.data.results:
            raise VerifyException("the map must have at least one result")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        position = parser.pos
        affine_map = parser.parse_attribute()
        if not isinstance(affine_map, AffineMapAttr):
            parser.raise_error("expected an affine map", position, parser.pos)
        dims = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parser.parse_operand(IndexType()))
        symbols = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, lambda: parser.parse_operand(IndexType()))
        op = cls([*dims, *(symbols or ())], affine_map)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        dims = self.map.data.num_dims
        printer.print_string(" ")
        printer.print_attribute(self.map)
        with printer.in_parens():
            printer.print_list(self.arguments[:dims], printer.print_ssa_value)
        if self.map.data.num_symbols:
            with printer.in_square_brackets():
                printer.print_list(self.arguments[dims:], printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class MaxOp(_ExtremumOp):
    """`affine.max`: the largest result."""

    name = "affine.max"
