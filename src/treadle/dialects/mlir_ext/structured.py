"""`linalg.generic`, `reduce` and `map` as MLIR writes and checks them.

Upstream's `generic` loses multiple results, its `reduce` takes one operand of one type, its `broadcast` is no structured op, and none keeps
attributes. Here all are `LinalgStructuredOperation`s with `inputs`, `outputs`, `res`, `body`, indexing maps and iterator types.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

from treadle.dialects.mlir_ext.linalg_base import (
    IteratorType,
    IteratorTypeAttr,
    LinalgStructuredOperation,
    TensorEffects,
    YieldOp,
    element_type,
    parse_operand_group,
    parse_result_types,
    print_operand_group,
)
from treadle.dialects.mlir_ext.loops import verify_structured
from treadle.ir.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, ShapedType, StringAttr, i32, i64, is_array_of, tensor_types
from treadle.ir.core import (
    AffineExpr,
    AffineMap,
    Attribute,
    AttrSizedOperandSegments,
    Block,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    prop_def,
    traits_def,
)
from treadle.ir.dialects import linalg

Shorthand = tuple[str, dict[str, Attribute]]


def projection(loops: int, dims: Sequence[int]) -> AffineMapAttr:
    """The map from `loops` loops to some of them."""
    return AffineMapAttr(AffineMap(loops, 0, tuple(AffineExpr.dimension(dim) for dim in dims)))


def rank_of(value: SSAValue) -> int:
    """Dimensions of a tensor; 0 for a scalar."""
    return len(value.type.get_shape()) if isinstance(value.type, ShapedType) else 0


def verify_body(op: LinalgStructuredOperation, arguments: Sequence[SSAValue]) -> None:
    """The block takes the elements of `arguments` and yields the elements of the outputs."""
    expected = [element_type(value) for value in arguments]
    found = [argument.type for argument in op.body.block.args]
    if found != expected:
        raise VerifyException(f"body takes ({', '.join(map(str, found))}), expected ({', '.join(map(str, expected))})")
    yielded = op.body.block.last_op
    results = [element_type(value) for value in op.outputs]
    if not isinstance(yielded, YieldOp) or [value.type for value in yielded.operands] != results:
        raise VerifyException(f"body must yield ({', '.join(map(str, results))})")
    loops = op.get_indexing_maps().data[0].data.num_dims
    for inner in op.body.block.ops:
        if isinstance(inner, linalg.ops.IndexOp) and not 0 <= inner.dim.value.data < loops:
            raise VerifyException(f"linalg.index {inner.dim.value.data} names none of the {loops} loops")


class GenericOp(linalg.ops.GenericOp):
    """`linalg.generic`, also with several results, its loop extents checked where only some are static."""

    traits = traits_def(TensorEffects())

    def verify_(self) -> None:
        super().verify_()
        verify_structured(self)
        verify_body(self, self.operands)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        header = parser.parse_optional_attr_dict()
        maps = header.pop("indexing_maps", None)
        iterators = header.pop("iterator_types", None)
        doc, library_call = header.pop("doc", None), header.pop("library_call", None)
        if not is_array_of(maps, AffineMapAttr):
            parser.raise_error("expected 'indexing_maps' with an array of affine maps", start, parser.pos)
        if not is_array_of(iterators, Attribute):
            parser.raise_error("expected 'iterator_types' with an array of strings", start, parser.pos)
        kinds: list[IteratorTypeAttr] = []
        for entry in iterators:
            if isinstance(entry, IteratorTypeAttr):
                kinds.append(entry)
            elif isinstance(entry, StringAttr) and entry.data in ("parallel", "reduction", "window"):
                kinds.append(IteratorTypeAttr(IteratorType(entry.data)))
            else:
                parser.raise_error(f"unknown iterator type {entry}", start, parser.pos)
        inputs = parse_operand_group(parser, "ins")
        outputs = parse_operand_group(parser, "outs")
        attributes = header
        if parser.parse_optional_keyword("attrs"):
            parser.parse_punctuation("=")
            attributes = {**header, **parser.parse_optional_attr_dict()}
        body = parser.parse_region()
        results = parse_result_types(parser)
        op = cls(
            inputs,
            outputs,
            body,
            maps,
            kinds,
            results,
            doc if isinstance(doc, StringAttr) else None,
            library_call if isinstance(library_call, StringAttr) else None,
        )
        op.attributes |= attributes
        return op


class RegionOp(LinalgStructuredOperation):
    """Common to the ops with `ins`, `outs` and a body of their own."""

    traits = traits_def(TensorEffects())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @classmethod
    def output_count(cls, operands: int) -> int:
        """How many of so many operands are outputs, in the generic form of MLIR, which does not say."""
        return operands // 2

    @classmethod
    def create(
        cls,
        *,
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = MappingProxyType({}),
        attributes: Mapping[str, Attribute] = MappingProxyType({}),
        location: Attribute | None = None,
        successors: Sequence[Block] = (),
        regions: Sequence[Region] = (),
    ) -> Self:
        outputs = cls.output_count(len(operands))
        segments = DenseArrayBase.from_list(i32, [len(operands) - outputs, outputs])
        return super().create(
            operands=operands,
            result_types=result_types,
            properties={"operandSegmentSizes": segments, **properties},
            attributes=attributes,
            location=location,  # pyright: ignore[reportArgumentType] - upstream's type of locations is not among ours
            successors=successors,
            regions=regions,
        )

    def _print_operands(self, printer: Printer) -> None:
        print_operand_group(printer, "ins", self.inputs)
        print_operand_group(printer, "outs", self.outputs)

    def _print_body(self, printer: Printer) -> None:
        printer.print_string(" ")
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


def _parse_shorthand(parser: Parser) -> Shorthand | None:
    """`{ arith.addf {attrs} }` before the operands: the body is that one op."""
    if not parser.parse_optional_punctuation("{"):
        return None
    name = parser.parse_identifier()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation("}")
    return name, attributes


def _shorthand_body(parser: Parser, shorthand: Shorthand, arguments: Sequence[Attribute], operands: list[int]) -> Region:
    """The region of a short form: a block of `arguments` whose one op takes the arguments numbered `operands`; its result is yielded."""
    name, attributes = shorthand
    kind = parser.ctx.get_optional_op(name)
    if kind is None:
        parser.raise_error(f"unknown operation '{name}'")
    block = Block(arg_types=arguments)
    names = kind.get_irdl_definition().properties if hasattr(kind, "get_irdl_definition") else {}  # pyright: ignore
    op = kind.create(
        operands=[block.args[number] for number in operands],
        result_types=[arguments[-1]],
        properties={key: value for key, value in attributes.items() if key in names},
        attributes={key: value for key, value in attributes.items() if key not in names},
    )
    block.add_ops([op, YieldOp(op.results[0])])
    return Region(block)


@irdl_op_definition
class ReduceOp(RegionOp):
    """`linalg.reduce`: combines the elements along `dimensions` into the outputs; several operands reduce together.

    The body takes one element of each input and then of each output, and yields the new outputs.
    """

    name = "linalg.reduce"
    dimensions = prop_def(DenseArrayBase.constr(i64))

    def __init__(
        self,
        inputs: Sequence[SSAValue | Operation],
        outputs: Sequence[SSAValue | Operation],
        dimensions: Sequence[int],
        body: Region,
    ) -> None:
        ins, outs = [SSAValue.get(value) for value in inputs], [SSAValue.get(value) for value in outputs]
        super().__init__(
            operands=[ins, outs],
            result_types=[tensor_types([value.type for value in outs])],
            properties={"dimensions": DenseArrayBase.from_list(i64, dimensions)},
            regions=[body],
        )

    @property
    def _rank(self) -> int:
        return rank_of(self.inputs[0]) if self.inputs else 0

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        rank, reduced = self._rank, set(self.dimensions.get_values())
        whole = projection(rank, range(rank))
        kept = projection(rank, [dim for dim in range(rank) if dim not in reduced])
        return ArrayAttr([whole] * len(self.inputs) + [kept] * len(self.outputs))

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        reduced = set(self.dimensions.get_values())
        return ArrayAttr([IteratorTypeAttr.reduction() if dim in reduced else IteratorTypeAttr.parallel() for dim in range(self._rank)])

    def verify_(self) -> None:
        dimensions = self.dimensions.get_values()
        if not self.inputs or len(self.inputs) != len(self.outputs):
            raise VerifyException(f"expected as many outputs as inputs, found {len(self.inputs)} and {len(self.outputs)}")
        if len(set(dimensions)) != len(dimensions) or any(not 0 <= dim < self._rank for dim in dimensions):
            raise VerifyException(f"dimensions {list(dimensions)} must be distinct and within rank {self._rank}")
        verify_structured(self)
        verify_body(self, self.operands)
        super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        shorthand = _parse_shorthand(parser)
        inputs = parse_operand_group(parser, "ins")
        outputs = parse_operand_group(parser, "outs")
        parser.parse_keyword("dimensions")
        parser.parse_punctuation("=")
        dimensions = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parser.parse_optional_attr_dict()
        if shorthand is not None:
            if len(inputs) != 1:
                parser.raise_error("the short form of a body takes one input")
            # MLIR applies the op of the short form to (accumulator, element) in this order.
            body = _shorthand_body(parser, shorthand, [element_type(value) for value in (*inputs, *outputs)], [1, 0])
        else:
            body = parser.parse_region(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument))
        op = cls(inputs, outputs, dimensions, body)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_string(" dimensions = ")
        with printer.in_square_brackets():
            printer.print_list(self.dimensions.get_values(), printer.print_int)
        printer.print_op_attributes(self.attributes)
        self._print_body(printer)


@irdl_op_definition
class MapOp(RegionOp):
    """`linalg.map`: an elementwise body over inputs and output of one shape; the body takes the inputs' elements and then the output's."""

    name = "linalg.map"

    @classmethod
    def output_count(cls, operands: int) -> int:
        return min(operands, 1)

    def __init__(self, inputs: Sequence[SSAValue | Operation], output: SSAValue | Operation, body: Region) -> None:
        ins, out = [SSAValue.get(value) for value in inputs], SSAValue.get(output)
        super().__init__(operands=[ins, [out]], result_types=[tensor_types([out.type])], regions=[body])

    def get_indexing_maps(self) -> ArrayAttr[AffineMapAttr]:
        rank = len(self.get_iterator_types())
        return ArrayAttr([projection(rank, range(rank))] * len(self.operands))

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        return ArrayAttr([IteratorTypeAttr.parallel()] * rank_of(self.outputs[0]))

    def verify_(self) -> None:
        verify_structured(self)
        verify_body(self, self.operands)
        super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        shorthand = _parse_shorthand(parser)
        inputs = parse_operand_group(parser, "ins")
        outputs = parse_operand_group(parser, "outs")
        if len(outputs) != 1:
            parser.raise_error("expected one output")
        attributes = parser.parse_optional_attr_dict()
        if shorthand is not None:
            body = _shorthand_body(parser, shorthand, [element_type(v) for v in (*inputs, *outputs)], list(range(len(inputs))))
        else:
            arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
            body = parser.parse_region(arguments)
            if len(arguments) == len(inputs):  # older MLIR leaves the output's element out
                body.block.insert_arg(element_type(outputs[0]), len(inputs))
        op = cls(inputs, outputs[0], body)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_op_attributes(self.attributes)
        self._print_body(printer)
