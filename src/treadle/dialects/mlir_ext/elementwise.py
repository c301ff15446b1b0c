"""Elementwise operations of linalg: `linalg.add`, `linalg.exp`, .. and `linalg.elementwise` of a kind, which become `linalg.generic`.

One table says what each kind computes of its scalars: floats, integers, and truth values (i1), which are joined by or and and, as in MLIR.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from treadle.dialects.mlir_ext.linalg_base import IteratorTypeAttr, YieldOp, element_type, parse_named
from treadle.dialects.mlir_ext.structured import GenericOp
from treadle.dialects.mlir_ext.synonym import Synonym
from treadle.ir.builtin import AffineMapAttr, AnyFloat, FloatAttr, ShapedType, i1
from treadle.ir.core import (
    AffineMap,
    Attribute,
    AttrParser,
    Block,
    Data,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    irdl_attr_definition,
)
from treadle.ir.dialects import arith, math

Builder = Callable[..., Operation]


class Kind(NamedTuple):
    """How many inputs a kind takes, and what builds its scalar operation; None where it is not defined.

    `on_truth` is for i1, where that is not `on_integer`.
    """

    arity: int
    on_float: Builder | None = None
    on_integer: Builder | None = None
    on_truth: Builder | None = None

    def builder(self, element: Attribute) -> Builder | None:
        """What builds the scalar operation of this element type."""
        if isinstance(element, AnyFloat):
            return self.on_float
        return self.on_truth if element == i1 else self.on_integer


def _square(value: SSAValue) -> Operation:
    return arith.MulfOp(value, value)


def _reciprocal(value: SSAValue) -> Operation:
    kind = cast(AnyFloat, value.type)
    return arith.DivfOp(arith.ConstantOp(FloatAttr(1.0, kind)), value)


KINDS: dict[str, Kind] = {
    "add": Kind(2, arith.AddfOp, arith.AddiOp, arith.OrIOp),
    "sub": Kind(2, arith.SubfOp, arith.SubiOp),
    "mul": Kind(2, arith.MulfOp, arith.MuliOp, arith.AndIOp),
    "div": Kind(2, arith.DivfOp, arith.DivSIOp),
    "div_unsigned": Kind(2, None, arith.DivUIOp),
    "max_signed": Kind(2, arith.MaximumfOp, arith.MaxSIOp, arith.MaxSIOp),
    "min_signed": Kind(2, arith.MinimumfOp, arith.MinSIOp, arith.MinSIOp),
    "max_unsigned": Kind(2, None, arith.MaxUIOp, arith.MaxUIOp),
    "min_unsigned": Kind(2, None, arith.MinUIOp, arith.MinUIOp),
    "powf": Kind(2, math.PowFOp),
    "exp": Kind(1, math.ExpOp),
    "log": Kind(1, math.LogOp),
    "log2": Kind(1, math.Log2Op),
    "log10": Kind(1, math.Log10Op),
    "log1p": Kind(1, math.Log1pOp),
    "abs": Kind(1, math.AbsFOp),
    "ceil": Kind(1, math.CeilOp),
    "floor": Kind(1, math.FloorOp),
    "negf": Kind(1, arith.NegfOp),
    "reciprocal": Kind(1, _reciprocal),
    "round": Kind(1, math.RoundOp),
    "sqrt": Kind(1, math.SqrtOp),
    "rsqrt": Kind(1, math.RsqrtOp),
    "square": Kind(1, _square),
    "tanh": Kind(1, math.TanhOp),
    "erf": Kind(1, math.ErfOp),
    "sin": Kind(1, math.SinOp),
    "cos": Kind(1, math.CosOp),
    "tan": Kind(1, math.TanOp),
    "asin": Kind(1, math.AsinOp),
    "acos": Kind(1, math.AcosOp),
    "atan": Kind(1, math.AtanOp),
    "asinh": Kind(1, math.AsinhOp),
    "acosh": Kind(1, math.AcoshOp),
    "atanh": Kind(1, math.AtanhOp),
    "select": Kind(3, arith.SelectOp, arith.SelectOp, arith.SelectOp),
}
NAMED_KINDS = {
    **{name: name for name in ("add", "sub", "mul", "div", "div_unsigned", "powf", "exp", "log", "abs", "ceil", "floor", "negf")},
    **{name: name for name in ("reciprocal", "round", "sqrt", "rsqrt", "square", "tanh", "erf", "select")},
    "max": "max_signed",
    "min": "min_signed",
}
"""The kinds that have operations of their own, by the names of these."""


@irdl_attr_definition
class ElementwiseKindAttr(Data[str]):
    """`#linalg.elementwise_kind<add>`; `data` is a name of `KINDS`."""

    name = "linalg.elementwise_kind"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            start = parser.pos
            kind = parser.parse_identifier()
            if kind not in KINDS:
                parser.raise_error(f"no elementwise kind is called '{kind}'; there are {', '.join(KINDS)}", start, parser.pos)
        return kind

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data)


def _body(builder: Builder, elements: Sequence[Attribute]) -> Region:
    block = Block(arg_types=elements)
    op = builder(*block.args[:-1])
    pending = [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]
    block.add_ops([*pending, op, YieldOp(op.results[0])])
    return Region(block)


def parse_elementwise(parser: Parser, name: str, kind: Kind) -> Operation:
    """The generic for the operands that follow: maps are identities where the text gives none."""
    start = parser.pos
    text = parse_named(parser)
    if len(text.inputs) != kind.arity or len(text.outputs) != 1:
        parser.raise_error(f"expected {kind.arity} input(s) and one output", start, parser.pos)
    elements = [element_type(value) for value in (*text.inputs, *text.outputs)]
    builder = kind.builder(elements[-1])
    if kind.arity == 3 and elements[0] != i1:
        parser.raise_error(f"{name} takes i1 elements first, found {elements[0]}", start, parser.pos)
    if builder is None or len(set(elements[1:] if kind.arity == 3 else elements)) != 1:
        parser.raise_error(f"{name} does not take elements {', '.join(map(str, elements))}", start, parser.pos)
    out = text.outputs[0].type
    rank = len(out.get_shape()) if isinstance(out, ShapedType) else 0
    maps = text.maps if text.maps is not None else [AffineMapAttr(AffineMap.identity(rank))] * len(elements)
    loops = [IteratorTypeAttr.parallel()] * rank
    op = GenericOp(text.inputs, text.outputs, _body(builder, elements), maps, loops, text.results)
    op.attributes |= text.attributes
    return op


class ElementwiseOp(Synonym):
    """`linalg.elementwise kind=#linalg.elementwise_kind<add> indexing_maps = [..] ins(..) outs(..)`, or `<add>` for the kind."""

    name = "linalg.elementwise"

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        start = parser.pos
        if parser.parse_optional_keyword("kind") is not None:
            parser.parse_punctuation("=")
            kind = parser.parse_attribute()
            if not isinstance(kind, ElementwiseKindAttr):
                parser.raise_error("kind must be #linalg.elementwise_kind<..>", start, parser.pos)
        else:
            kind = ElementwiseKindAttr(ElementwiseKindAttr.parse_parameter(parser))
        return parse_elementwise(parser, f"{cls.name} <{kind.data}>", KINDS[kind.data])


def _named(name: str, kind: Kind) -> type[Synonym]:
    def parse(cls: type[Synonym], parser: Parser) -> Operation:
        return parse_elementwise(parser, cls.name, kind)

    return type(f"Linalg_{name}", (Synonym,), {"name": f"linalg.{name}", "parse": classmethod(parse)})


ELEMENTWISE: tuple[type[Operation], ...] = (ElementwiseOp, *(_named(name, KINDS[kind]) for name, kind in NAMED_KINDS.items()))
