"""`math.isnan`, `isinf`, `isfinite` and `isnormal`, which upstream lacks: what kind of number a float is, as i1 elements."""

from typing import Self

from treadle.ir.arith import FastMathFlagsAttr
from treadle.ir.builtin import AnyFloat, i1
from treadle.ir.core import (
    IRDLOperation,
    Operation,
    Parser,
    Printer,
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from treadle.ir.elementwise import element_of, with_element


class ClassificationOp(IRDLOperation):
    """Tells of each element of a float or tensor of floats whether it is of one kind."""

    operand = operand_def()
    result = result_def()
    fastmath = opt_prop_def(FastMathFlagsAttr)
    traits = traits_def(Pure())

    def __init__(self, operand: SSAValue | Operation, fastmath: FastMathFlagsAttr | None = None) -> None:
        value = SSAValue.get(operand)
        super().__init__(operands=[value], result_types=[with_element(value.type, i1)], properties={"fastmath": fastmath})

    def verify_(self) -> None:
        if not isinstance(element_of(self.operand.type), AnyFloat):
            raise VerifyException(f"takes floats, found {self.operand.type}")
        if self.result.type != with_element(self.operand.type, i1):
            raise VerifyException(f"the result must be of the operand's shape and i1 elements, found {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        flags = FastMathFlagsAttr(FastMathFlagsAttr.parse_parameter(parser)) if parser.parse_optional_keyword("fastmath") else None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls(parser.resolve_operand(operand, parser.parse_type()), flags)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.operand)
        if self.fastmath is not None:
            printer.print_string(" fastmath")
            self.fastmath.print_parameter(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)


@irdl_op_definition
class IsNanOp(ClassificationOp):
    """Whether it is no number."""

    name = "math.isnan"


@irdl_op_definition
class IsInfOp(ClassificationOp):
    """Whether it is one of the infinities."""

    name = "math.isinf"


@irdl_op_definition
class IsFiniteOp(ClassificationOp):
    """Whether it is a number and no infinity."""

    name = "math.isfinite"


@irdl_op_definition
class IsNormalOp(ClassificationOp):
    """Whether it is finite and neither zero nor subnormal."""

    name = "math.isnormal"


CLASSIFICATIONS: tuple[type[ClassificationOp], ...] = (IsNanOp, IsInfOp, IsFiniteOp, IsNormalOp)
