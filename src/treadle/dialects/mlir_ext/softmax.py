"""`linalg.softmax`, which upstream lacks: exp(x - max) / sum(exp(x - max)) along one dimension."""

from typing import Self

from treadle.dialects.mlir_ext.linalg_base import (
    TensorEffects,
    parse_operand_group,
    parse_result_types,
    print_operand_group,
    print_result_types,
)
from treadle.ir.builtin import AnyFloat, IntegerAttr, element_of, i64, is_tensor, tensor_types
from treadle.ir.core import (
    DYNAMIC_INDEX,
    Attribute,
    IRDLOperation,
    Operation,
    Parser,
    Printer,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_result_def,
    prop_def,
    traits_def,
)


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """`input` and `output` are tensors of one shape and of float elements; what `output` holds is not read."""

    name = "linalg.softmax"
    input = operand_def()
    output = operand_def()
    result = opt_result_def()
    dimension = prop_def(IntegerAttr)
    traits = traits_def(TensorEffects())

    def __init__(self, source: SSAValue | Operation, output: SSAValue | Operation, dimension: int) -> None:
        out = SSAValue.get(output)
        properties: dict[str, Attribute] = {"dimension": IntegerAttr(dimension, i64)}
        super().__init__(operands=[source, out], result_types=[tensor_types([out.type])], properties=properties)

    @property
    def axis(self) -> int:
        """The dimension along which the results sum to 1."""
        return int(self.dimension.value.data)

    def verify_(self) -> None:
        source, output = self.input.type, self.output.type
        if not is_tensor(source) or not is_tensor(output):
            raise VerifyException(f"takes tensors, found {source} and {output}")
        shapes = source.get_shape(), output.get_shape()
        if len(shapes[0]) != len(shapes[1]) or any(a != b for a, b in zip(*shapes, strict=True) if DYNAMIC_INDEX not in (a, b)):
            raise VerifyException(f"input {source} and output {output} must have the same shape")
        if not isinstance(element_of(source), AnyFloat) or element_of(source) != element_of(output):
            raise VerifyException(f"input and output must have the same float elements, found {source} and {output}")
        if not 0 <= self.axis < len(shapes[0]):
            raise VerifyException(f"dimension {self.axis} is not within rank {len(shapes[0])}")
        if self.result is not None and self.result.type != output:
            raise VerifyException(f"the result must be of the type of outs ({output}), found {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes = parser.parse_optional_attr_dict()
        parser.parse_keyword("dimension")
        with parser.in_parens():
            dimension = parser.parse_integer()
        inputs = parse_operand_group(parser, "ins")
        outputs = parse_operand_group(parser, "outs")
        if len(inputs) != 1 or len(outputs) != 1:
            parser.raise_error("expected one input and one output")
        results = parse_result_types(parser)
        return cls.build(
            operands=[inputs[0], outputs[0]],
            result_types=[results],
            properties={"dimension": IntegerAttr(dimension, i64)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" dimension({self.axis})")
        print_operand_group(printer, "ins", [self.input])
        print_operand_group(printer, "outs", [self.output])
        print_result_types(printer, [] if self.result is None else [self.result.type])
