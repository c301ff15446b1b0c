"""`linalg.broadcast` and `transpose`: structured operations whose body passes the element on."""

from collections.abc import Sequence
from typing import ClassVar, Self

from treadle.dialects.mlir_ext.linalg_base import (
    IteratorTypeAttr,
    YieldOp,
    element_type,
    parse_operand_group,
)
from treadle.dialects.mlir_ext.loops import verify_structured
from treadle.dialects.mlir_ext.structured import RegionOp, projection, rank_of, verify_body
from treadle.ir.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, i64, tensor_types
from treadle.ir.core import (
    Block,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    prop_def,
)


class _CopyingOp(RegionOp):
    """One input, one output, and a body that passes the element on; `ARRAY` is the integer array of the text."""

    ARRAY: ClassVar[str]

    def __init__(self, source: SSAValue | Operation, init: SSAValue | Operation, values: Sequence[int]) -> None:
        value, out = SSAValue.get(source), SSAValue.get(init)
        block = Block(arg_types=[element_type(value), element_type(out)])
        block.add_op(YieldOp(block.args[0]))
        super().__init__(
            operands=[[value], [out]],
            result_types=[tensor_types([out.type])],
            properties={self.ARRAY: DenseArrayBase.from_list(i64, values)},
            regions=[Region(block)],
        )

    def _values(self) -> tuple[int, ...]:
        array = self.properties[self.ARRAY]
        return tuple(array.get_values()) if isinstance(array, DenseArrayBase) else ()

    @property
    def _rank(self) -> int:
        return rank_of(self.outputs[0])

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        return ArrayAttr([IteratorTypeAttr.parallel()] * self._rank)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        inputs = parse_operand_group(parser, "ins")
        outputs = parse_operand_group(parser, "outs")
        if len(inputs) != 1 or len(outputs) != 1:
            parser.raise_error("expected one input and one output")
        parser.parse_keyword(cls.ARRAY)
        parser.parse_punctuation("=")
        values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        op = cls(inputs[0], outputs[0], values)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_string(f" {self.ARRAY} = ")
        with printer.in_square_brackets():
            printer.print_list(self._values(), printer.print_int)
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class BroadcastOp(_CopyingOp):
    """`linalg.broadcast`: the output has the input's dimensions and those in `dimensions`, along which it repeats."""

    name = "linalg.broadcast"
    ARRAY: ClassVar[str] = "dimensions"
    dimensions = prop_def(DenseArrayBase.constr(i64))

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        rank, added = self._rank, set(self._values())
        return ArrayAttr([projection(rank, [dim for dim in range(rank) if dim not in added]), projection(rank, range(rank))])

    def verify_(self) -> None:
        added = self._values()
        if len(set(added)) != len(added) or any(not 0 <= dim < self._rank for dim in added):
            raise VerifyException(f"dimensions {list(added)} must be distinct and within the output's rank {self._rank}")
        verify_structured(self)
        verify_body(self, self.operands)


@irdl_op_definition
class TransposeOp(_CopyingOp):
    """`linalg.transpose`: dimension `i` of the output is dimension `permutation[i]` of the input."""

    name = "linalg.transpose"
    ARRAY: ClassVar[str] = "permutation"
    permutation = prop_def(DenseArrayBase.constr(i64))

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        rank, permutation = self._rank, self._values()
        return ArrayAttr([projection(rank, [permutation.index(dim) for dim in range(rank)]), projection(rank, range(rank))])

    def verify_(self) -> None:
        if sorted(self._values()) != list(range(self._rank)):
            raise VerifyException(f"{list(self._values())} is no permutation of the output's {self._rank} dimensions")
        verify_structured(self)
        verify_body(self, self.operands)
