"""Casts, comparisons and selections of `arith` that work on tensors.

Upstream's take scalars only, although MLIR's (and our tiles) are elementwise over shaped types too. `ir/arith.py`
puts these in place of upstream's.
"""

from collections.abc import Sequence
from typing import ClassVar, Self, cast

from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS, CMPI_COMPARISON_OPERATIONS, FastMathFlagsAttr
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerAttr, IntegerType, MemRefType, TensorType, VectorType, i1, i64

from treadle.ir.builtin import is_integer
from treadle.ir.core import (
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
    prop_def,
    result_def,
    traits_def,
)


def element_of(kind: Attribute) -> Attribute:
    """The element type of a tensor, vector or memref type; a scalar type itself."""
    if isinstance(kind, TensorType | VectorType | MemRefType):
        return cast("TensorType[Attribute]", kind).element_type
    return kind


def with_element(kind: Attribute, element: Attribute) -> Attribute:
    """The type of the same shape (and encoding) as `kind` with other elements; `element` itself for a scalar."""
    match kind:
        case TensorType():
            return TensorType(element, kind.get_shape(), kind.encoding)
        case VectorType():
            return VectorType(element, kind.get_shape())
        case _:
            return element


class CastOp(IRDLOperation):
    """An elementwise conversion; subclasses say from and to which element types."""

    SOURCE: ClassVar[tuple[type[Attribute], ...]]
    TARGET: ClassVar[tuple[type[Attribute], ...]]
    CHANGE: ClassVar[int] = 0  # sign of (result width - source width), 0 where free

    input = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"

    def __init__(self, value: SSAValue | Operation, target_type: Attribute) -> None:
        super().__init__(operands=[value], result_types=[target_type])

    def verify_(self) -> None:
        source, target = element_of(self.input.type), element_of(self.result.type)
        if with_element(self.input.type, target) != self.result.type:
            raise VerifyException(f"operand {self.input.type} and result {self.result.type} must have the same shape")
        wrong_way = False
        if self.CHANGE and is_integer(source) and is_integer(target):
            wrong_way = (target.width.data - source.width.data) * self.CHANGE <= 0
        if not isinstance(source, self.SOURCE) or not isinstance(target, self.TARGET) or wrong_way:
            raise VerifyException(f"cannot convert {self.input.type} to {self.result.type}")


_FLOATS: tuple[type[Attribute], ...] = AnyFloat.__args__
_INTEGERS: tuple[type[Attribute], ...] = (IntegerType,)


@irdl_op_definition
class ExtSIOp(CastOp):
    """Sign extension."""

    name = "arith.extsi"
    SOURCE: ClassVar = _INTEGERS
    TARGET: ClassVar = _INTEGERS
    CHANGE: ClassVar[int] = 1


@irdl_op_definition
class ExtUIOp(CastOp):
    """Zero extension."""

    name = "arith.extui"
    SOURCE: ClassVar = _INTEGERS
    TARGET: ClassVar = _INTEGERS
    CHANGE: ClassVar[int] = 1


@irdl_op_definition
class TruncIOp(CastOp):
    """The low bits."""

    name = "arith.trunci"
    SOURCE: ClassVar = _INTEGERS
    TARGET: ClassVar = _INTEGERS
    CHANGE: ClassVar[int] = -1


@irdl_op_definition
class SIToFPOp(CastOp):
    """Signed integer to float."""

    name = "arith.sitofp"
    SOURCE: ClassVar = _INTEGERS
    TARGET: ClassVar = _FLOATS


@irdl_op_definition
class UIToFPOp(CastOp):
    """Unsigned integer to float."""

    name = "arith.uitofp"
    SOURCE: ClassVar = _INTEGERS
    TARGET: ClassVar = _FLOATS


@irdl_op_definition
class FPToSIOp(CastOp):
    """Float to signed integer, rounding towards zero."""

    name = "arith.fptosi"
    SOURCE: ClassVar = _FLOATS
    TARGET: ClassVar = _INTEGERS


@irdl_op_definition
class FPToUIOp(CastOp):
    """Float to unsigned integer, rounding towards zero."""

    name = "arith.fptoui"
    SOURCE: ClassVar = _FLOATS
    TARGET: ClassVar = _INTEGERS


class _IndexCastBase(CastOp):
    SOURCE: ClassVar = (IntegerType, IndexType)
    TARGET: ClassVar = (IntegerType, IndexType)

    def verify_(self) -> None:
        super().verify_()
        if isinstance(element_of(self.input.type), IndexType) == isinstance(element_of(self.result.type), IndexType):
            raise VerifyException("exactly one of operand and result must be index")


@irdl_op_definition
class IndexCastOp(_IndexCastBase):
    """Between index and integers, sign-extending."""

    name = "arith.index_cast"


@irdl_op_definition
class IndexCastUIOp(_IndexCastBase):
    """Between index and integers, zero-extending."""

    name = "arith.index_castui"


class CompareOp(IRDLOperation):
    """An elementwise comparison; the result is i1, or i1 elements in the operands' shape."""

    PREDICATES: ClassVar[Sequence[str]]
    ELEMENTS: ClassVar[tuple[type[Attribute], ...]]

    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    predicate = prop_def(IntegerAttr)
    traits = traits_def(Pure())

    def _properties(self, predicate: int | str) -> dict[str, Attribute | None]:
        number = self.PREDICATES.index(predicate) if isinstance(predicate, str) else predicate
        return {"predicate": IntegerAttr(number, i64)}

    @property
    def predicate_name(self) -> str:
        """The predicate's mnemonic, such as `slt`."""
        return self.PREDICATES[self.predicate.value.data]

    def verify_(self) -> None:
        if self.lhs.type != self.rhs.type:
            raise VerifyException(f"operands have different types {self.lhs.type} and {self.rhs.type}")
        if not isinstance(element_of(self.lhs.type), self.ELEMENTS):
            raise VerifyException(f"cannot compare {self.lhs.type}")
        if self.result.type != with_element(self.lhs.type, i1):
            raise VerifyException(f"result must be {with_element(self.lhs.type, i1)}, found {self.result.type}")
        if not 0 <= self.predicate.value.data < len(self.PREDICATES):
            raise VerifyException(f"unknown predicate {self.predicate.value.data}")

    @classmethod
    def _parse_predicate(cls, parser: Parser) -> str:
        start = parser.pos
        name = parser.parse_identifier()
        if name not in cls.PREDICATES:
            parser.raise_error(f"unknown predicate '{name}', expected one of {', '.join(cls.PREDICATES)}", start, parser.pos)
        return name


@irdl_op_definition
class CmpiOp(CompareOp):
    """Integer and index comparison."""

    name = "arith.cmpi"
    PREDICATES: ClassVar[Sequence[str]] = CMPI_COMPARISON_OPERATIONS
    ELEMENTS: ClassVar = (IntegerType, IndexType)

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation, predicate: int | str) -> None:
        """`predicate` is a mnemonic (`eq ne slt sle sgt sge ult ule ugt uge`) or its number."""
        kind = SSAValue.get(lhs).type
        super().__init__(operands=[lhs, rhs], result_types=[with_element(kind, i1)], properties=self._properties(predicate))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        predicate = cls._parse_predicate(parser)
        parser.parse_punctuation(",")
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        op = cls(parser.resolve_operand(lhs, kind), parser.resolve_operand(rhs, kind), predicate)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.predicate_name}, ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.lhs.type)


@irdl_op_definition
class CmpfOp(CompareOp):
    """Float comparison."""

    name = "arith.cmpf"
    PREDICATES: ClassVar[Sequence[str]] = CMPF_COMPARISON_OPERATIONS
    ELEMENTS: ClassVar = _FLOATS

    fastmath = prop_def(FastMathFlagsAttr, default_value=FastMathFlagsAttr("none"))

    def __init__(
        self,
        lhs: SSAValue | Operation,
        rhs: SSAValue | Operation,
        predicate: int | str,
        fastmath: FastMathFlagsAttr | None = None,
    ) -> None:
        """`predicate` is a mnemonic (`oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true false`) or its number."""
        kind = SSAValue.get(lhs).type
        properties = self._properties(predicate)
        properties["fastmath"] = fastmath if fastmath is not None else FastMathFlagsAttr("none")
        super().__init__(operands=[lhs, rhs], result_types=[with_element(kind, i1)], properties=properties)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        predicate = cls._parse_predicate(parser)
        parser.parse_punctuation(",")
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        fastmath = FastMathFlagsAttr("none")
        if parser.parse_optional_keyword("fastmath"):
            fastmath = FastMathFlagsAttr(FastMathFlagsAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        op = cls(parser.resolve_operand(lhs, kind), parser.resolve_operand(rhs, kind), predicate, fastmath)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.predicate_name}, ")
        printer.print_list(self.operands, printer.print_ssa_value)
        if self.fastmath != FastMathFlagsAttr("none"):
            printer.print_string(" fastmath")
            self.fastmath.print_parameter(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.lhs.type)


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`cond ? lhs : rhs`; `cond` is i1, or i1 elements in the operands' shape."""

    name = "arith.select"

    cond = operand_def()
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def __init__(self, cond: SSAValue | Operation, lhs: SSAValue | Operation, rhs: SSAValue | Operation) -> None:
        super().__init__(operands=[cond, lhs, rhs], result_types=[SSAValue.get(lhs).type])

    def verify_(self) -> None:
        kind = self.result.type
        if self.lhs.type != kind or self.rhs.type != kind:
            raise VerifyException(f"both choices must be {kind}, found {self.lhs.type} and {self.rhs.type}")
        if self.cond.type not in (i1, with_element(kind, i1)):
            raise VerifyException(f"condition must be i1 or {with_element(kind, i1)}, found {self.cond.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = [parser.parse_unresolved_operand()]
        for _ in range(2):
            parser.parse_punctuation(",")
            operands.append(parser.parse_unresolved_operand())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        condition: Attribute = i1
        kind: Attribute = parser.parse_type()
        if parser.parse_optional_punctuation(","):
            condition, kind = kind, parser.parse_type()
        cond, lhs, rhs = (parser.resolve_operand(o, t) for o, t in zip(operands, (condition, kind, kind), strict=True))
        op = cls(cond, lhs, rhs)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        if self.cond.type != i1:
            printer.print_attribute(self.cond.type)
            printer.print_string(", ")
        printer.print_attribute(self.result.type)
