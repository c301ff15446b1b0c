"""Base classes of the linalg dialect and the text shared by its operations: `ins(..) outs(..)` groups and result lists."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from treadle.ir.builtin import AffineMapAttr, AnyFloat, ArrayAttr, MemRefType, f32, is_array_of, is_integer
from treadle.ir.core import Attribute, Block, EffectInstance, MemoryEffect, Operation, Parser, Printer, SSAValue, VerifyException
from treadle.ir.dialects import arith, linalg
from treadle.ir.elementwise import element_of
from treadle.records import dataclass

LinalgStructuredOperation = linalg.abstract_ops.LinalgStructuredOperation
NamedOperation = linalg.abstract_ops.NamedOperation
IteratorTypeAttr = linalg.attrs.IteratorTypeAttr
IteratorType = linalg.attrs.IteratorType
YieldOp = linalg.ops.YieldOp


class TensorEffects(MemoryEffect):
    """No effects on tensors; unknown ones where a memref is written. Upstream's linalg ops say nothing, so dead ones would stay."""

    @classmethod
    def get_effects(cls, op: Operation) -> AbstractSet[EffectInstance] | None:
        return None if any(isinstance(operand.type, MemRefType) for operand in op.operands) else frozenset()


def parse_operand_group(parser: Parser, keyword: str) -> Sequence[SSAValue]:
    """Parse `keyword(%a, %b : type, type)` where present, else nothing."""
    if not parser.parse_optional_keyword(keyword):
        return ()
    position = parser.pos
    parser.parse_punctuation("(")
    operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    parser.parse_punctuation(")")
    return parser.resolve_operands(operands, types, position)


def print_operand_group(printer: Printer, keyword: str, values: Sequence[SSAValue]) -> None:
    """Print ` keyword(%a, %b : type, type)`, or nothing where there are no values."""
    if not values:
        return
    printer.print_string(f" {keyword}(")
    printer.print_list(values, printer.print_ssa_value)
    printer.print_string(" : ")
    printer.print_list([value.type for value in values], printer.print_attribute)
    printer.print_string(")")


def parse_result_types(parser: Parser) -> Sequence[Attribute]:
    """Parse `-> type` or `-> (type, type)` where present, else nothing."""
    if not parser.parse_optional_punctuation("->"):
        return ()
    several = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return several if several is not None else [parser.parse_type()]


def print_result_types(printer: Printer, types: Sequence[Attribute]) -> None:
    """Print ` -> type` or ` -> (type, type)`, or nothing where there are none."""
    if not types:
        return
    printer.print_string(" -> ")
    if len(types) == 1:
        printer.print_attribute(types[0])
        return
    with printer.in_parens():
        printer.print_list(types, printer.print_attribute)


@dataclass(slots=True)
class NamedText:
    """The parts of a named operation's text: `maps` is the attribute `indexing_maps`, `attributes` all others."""

    inputs: Sequence[SSAValue]
    outputs: Sequence[SSAValue]
    results: Sequence[Attribute]
    attributes: dict[str, Attribute]
    maps: ArrayAttr[AffineMapAttr] | None


def parse_attributes(parser: Parser) -> dict[str, Attribute]:
    """Parse `<{..}>`, `{..}` and `attrs = {..}`, any of them or none, in this order."""
    found: dict[str, Attribute] = dict(parser.parse_optional_properties_dict())
    found |= parser.parse_optional_attr_dict()
    if parser.parse_optional_keyword("attrs"):
        parser.parse_punctuation("=")
        found |= parser.parse_optional_attr_dict()
    return found


def parse_named(parser: Parser) -> NamedText:
    """Parse `indexing_maps = [..] <{..}> {..} ins(..) outs(..) {..} -> ..`, of which all but `outs` may be missing.

    Attributes may stand before or behind the operands. The segment sizes of the operands, which MLIR prints among properties, are left out.
    """
    start = parser.pos
    attributes = parse_attributes(parser)
    if parser.parse_optional_keyword("indexing_maps"):
        parser.parse_punctuation("=")
        attributes["indexing_maps"] = parser.parse_attribute()
        attributes |= parse_attributes(parser)
    inputs = parse_operand_group(parser, "ins")
    outputs = parse_operand_group(parser, "outs")
    attributes |= parse_attributes(parser)
    results = parse_result_types(parser)
    attributes.pop("operandSegmentSizes", None)
    maps = attributes.pop("indexing_maps", None)
    if maps is not None and not is_array_of(maps, AffineMapAttr):
        parser.raise_error("indexing_maps must be an array of affine maps", start, parser.pos)
    return NamedText(inputs, outputs, results, attributes, maps)


def element_type(value: SSAValue) -> Attribute:
    """The element type of a tensor or memref value, the type itself for a scalar."""
    return element_of(value.type)


def cast_scalar(block: Block, value: SSAValue, target: Attribute, *, unsigned: bool = False) -> SSAValue:
    """Append to `block` what turns `value` into `target` and return the result; integers are signed unless `unsigned`.

    Raises `VerifyException` for types that are neither floats nor integers.
    """
    source = value.type
    if source == target:
        return value
    op: Operation
    if isinstance(source, AnyFloat) and isinstance(target, AnyFloat) and source.bitwidth == target.bitwidth:
        return cast_scalar(block, cast_scalar(block, value, f32), target)  # one rounding: f32 holds both
    if isinstance(source, AnyFloat) and isinstance(target, AnyFloat):
        op = arith.ExtFOp(value, target) if source.bitwidth < target.bitwidth else arith.TruncFOp(value, target)
    elif is_integer(source) and is_integer(target):
        extend = arith.ExtUIOp if unsigned else arith.ExtSIOp
        op = extend(value, target) if source.width.data < target.width.data else arith.TruncIOp(value, target)
    elif is_integer(source) and isinstance(target, AnyFloat):
        op = (arith.UIToFPOp if unsigned else arith.SIToFPOp)(value, target)
    elif isinstance(source, AnyFloat) and is_integer(target):
        op = (arith.FPToUIOp if unsigned else arith.FPToSIOp)(value, target)
    else:
        raise VerifyException(f"cannot convert {source} to {target}")
    block.add_op(op)
    return op.results[0]
