"""`linalg.fill` and `linalg.copy`: loops over the dimensions of the output, whatever their number; both convert to its element type."""

from collections.abc import Sequence
from typing import Self

from treadle.dialects.mlir_ext.linalg_base import (
    IteratorTypeAttr,
    NamedOperation,
    TensorEffects,
    parse_named,
    print_operand_group,
    print_result_types,
)
from treadle.dialects.mlir_ext.loops import verify_structured
from treadle.dialects.mlir_ext.scalar_bodies import convert, same_body, scalar_body
from treadle.dialects.mlir_ext.type_fn import is_unsigned
from treadle.ir.builtin import AnyFloat, ArrayAttr, IntegerType, ShapedType
from treadle.ir.core import (
    AffineMap,
    Parser,
    Printer,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    opt_prop_def,
    traits_def,
)
from treadle.ir.dialects import linalg


def _verify_body(op: NamedOperation, expected: Region) -> None:
    if not same_body(op.body, expected):
        raise VerifyException("the body is not the operation's own; write it as linalg.generic")


class FillOp(linalg.ops.FillOp):
    """Every element of the output is the scalar, converted."""

    traits = traits_def(TensorEffects())

    def verify_(self) -> None:
        super().verify_()
        if len(self.inputs) != 1 or not isinstance(self.inputs[0].type, AnyFloat | IntegerType):
            raise VerifyException(f"the value must be one scalar, found {', '.join(str(kind) for kind in self.inputs.types) or 'none'}")
        _verify_body(self, self.get_hidden_region(self.inputs, self.outputs))
        verify_structured(self)

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        return scalar_body(convert, inputs, outputs)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        text = parse_named(parser)
        try:
            body = cls.get_hidden_region(text.inputs, text.outputs)
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        operands = [text.inputs, text.outputs]
        return cls.build(operands=operands, result_types=[text.results], attributes=text.attributes, regions=[body])


@irdl_op_definition
class CopyOp(NamedOperation):
    """Every element of the output is the input's, converted; integers as the attribute `cast` says."""

    name = "linalg.copy"
    cast = opt_prop_def()
    traits = traits_def(TensorEffects())

    def _expected_body(self) -> Region:
        return scalar_body(convert, self.inputs, self.outputs, unsigned=is_unsigned(self.properties.get("cast")))

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        return scalar_body(convert, inputs, outputs)

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        return (AffineMap.identity(len(self.get_iterator_types())),) * len(self.operands)

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        kind = self.outputs[0].type
        return ArrayAttr([IteratorTypeAttr.parallel()] * (len(kind.get_shape()) if isinstance(kind, ShapedType) else 0))

    def verify_(self) -> None:
        if len(self.inputs) != 1 or len(self.outputs) != 1:
            raise VerifyException("expected one input and one output")
        _verify_body(self, self._expected_body())
        verify_structured(self)
        super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        text = parse_named(parser)
        cast = text.attributes.pop("cast", None)
        try:
            body = scalar_body(convert, text.inputs, text.outputs, unsigned=is_unsigned(cast))
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        return cls.build(
            operands=[text.inputs, text.outputs],
            result_types=[text.results],
            properties={"cast": cast},
            attributes=text.attributes,
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        cast = self.properties.get("cast")
        printer.print_op_attributes(({} if cast is None else {"cast": cast}) | self.attributes)
        print_operand_group(printer, "ins", self.inputs)
        print_operand_group(printer, "outs", self.outputs)
        print_result_types(printer, self.res.types)
