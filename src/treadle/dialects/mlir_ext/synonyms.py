"""Operations that are read but never kept: named linalg ops that newer MLIR has dropped, or that are no more than a `linalg.generic`.

`linalg.add`, `linalg.exp`, ... become a `linalg.generic`; `linalg.matmul_transpose_b` and its kin become `linalg.matmul` with indexing
maps; `linalg.contract` becomes a `linalg.generic` with a multiply-accumulate body. Nothing behind the parser ever sees these names.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from treadle.dialects.mlir_ext.contractions import BatchMatmulOp, MatmulOp, projection_maps
from treadle.dialects.mlir_ext.linalg_base import IteratorTypeAttr, YieldOp, element_type, parse_named
from treadle.dialects.mlir_ext.named import Maps, NamedOp
from treadle.dialects.mlir_ext.scalar_bodies import multiply_add, scalar_body
from treadle.dialects.mlir_ext.structured import GenericOp
from treadle.dialects.mlir_ext.type_fn import is_unsigned
from treadle.ir.builtin import AnyFloat, FloatAttr, ShapedType, tensor_types
from treadle.ir.core import AffineDimExpr, Attribute, Block, Operation, Parser, Region, SSAValue, VerifyException
from treadle.ir.dialects import arith, math

Builder = Callable[..., Operation]


class Synonym(Operation):
    """An operation that exists in text only; `parse` returns what stands for it."""

    def verify_(self) -> None:
        raise VerifyException(f"the generic form of {self.name} is not read; write its custom form")


def _build_matmul(parser: Parser, kind: type[NamedOp], maps: Maps) -> Operation:
    start = parser.pos
    text = parse_named(parser)
    if list(text.results) != tensor_types([value.type for value in text.outputs]):
        parser.raise_error("result types must be the types of outs", start, parser.pos)
    try:
        return kind(text.inputs, text.outputs, maps, text.attributes)
    except VerifyException as error:
        parser.raise_error(str(error), start, parser.pos)


class MatmulTransposeAOp(Synonym):
    """`linalg.matmul` with lhs[k,m]."""

    name = "linalg.matmul_transpose_a"

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _build_matmul(parser, MatmulOp, projection_maps(3, (2, 0), (2, 1), (0, 1)))


class MatmulTransposeBOp(Synonym):
    """`linalg.matmul` with rhs[n,k]."""

    name = "linalg.matmul_transpose_b"

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _build_matmul(parser, MatmulOp, projection_maps(3, (0, 2), (1, 2), (0, 1)))


class BatchMatmulTransposeAOp(Synonym):
    """`linalg.batch_matmul` with lhs[b,k,m]."""

    name = "linalg.batch_matmul_transpose_a"

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _build_matmul(parser, BatchMatmulOp, projection_maps(4, (0, 3, 1), (0, 3, 2), (0, 1, 2)))


class BatchMatmulTransposeBOp(Synonym):
    """`linalg.batch_matmul` with rhs[b,n,k]."""

    name = "linalg.batch_matmul_transpose_b"

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _build_matmul(parser, BatchMatmulOp, projection_maps(4, (0, 1, 3), (0, 2, 3), (0, 1, 2)))


class ContractOp(Synonym):
    """`linalg.contract`: a contraction whose loops the indexing maps name."""

    name = "linalg.contract"

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        start = parser.pos
        text = parse_named(parser)
        if text.maps is None or len(text.maps) != 3:
            parser.raise_error("indexing_maps must be three affine maps", start, parser.pos)
        if len(text.inputs) != 2:
            parser.raise_error("expected two inputs", start, parser.pos)
        output_map = text.maps.data[2].data
        kept = {expr.position for expr in output_map.results if isinstance(expr, AffineDimExpr)}
        kinds = [IteratorTypeAttr.parallel() if d in kept else IteratorTypeAttr.reduction() for d in range(output_map.num_dims)]
        cast = text.attributes.pop("cast", None)
        try:
            body = scalar_body(multiply_add, text.inputs, text.outputs, unsigned=is_unsigned(cast))
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        op = GenericOp(text.inputs, text.outputs, body, text.maps, kinds, text.results)
        op.attributes |= text.attributes
        return op


class ElementwiseOp(Synonym):
    """A named elementwise op; `FLOAT` and `INTEGER` build the scalar operation from the elements."""

    FLOAT: ClassVar[Builder | None]
    INTEGER: ClassVar[Builder | None]
    ARITY: ClassVar[int]

    @classmethod
    def parse(cls, parser: Parser) -> Operation:  # pyright: ignore[reportIncompatibleMethodOverride]
        start = parser.pos
        text = parse_named(parser)
        inputs, outputs = text.inputs, text.outputs
        if len(inputs) != cls.ARITY or len(outputs) != 1:
            parser.raise_error(f"expected {cls.ARITY} input(s) and one output", start, parser.pos)
        elements = [element_type(value) for value in (*inputs, *outputs)]
        builder = cls.FLOAT if isinstance(elements[-1], AnyFloat) else cls.INTEGER
        if builder is None or len(set(elements[-cls.ARITY - 1 + (cls.ARITY == 3) :])) != 1:
            parser.raise_error(f"{cls.name} does not take elements {', '.join(map(str, elements))}", start, parser.pos)
        rank = len(outputs[0].type.get_shape()) if isinstance(outputs[0].type, ShapedType) else 0
        op = GenericOp(
            inputs,
            outputs,
            _scalar_body(builder, elements),
            [projection_maps(rank, range(rank)).data[0]] * len(elements),
            [IteratorTypeAttr.parallel()] * rank,
            text.results,
        )
        op.attributes |= text.attributes
        return op


def _scalar_body(builder: Builder, elements: Sequence[Attribute]) -> Region:
    block = Block(arg_types=elements)
    result: SSAValue | None = None
    op = builder(*block.args[:-1])
    pending = [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]
    block.add_ops([*pending, op])
    result = op.results[0]
    block.add_op(YieldOp(result))
    return Region(block)


def _square(value: SSAValue) -> Operation:
    return arith.MulfOp(value, value)


def _reciprocal(value: SSAValue) -> Operation:
    kind = cast(AnyFloat, value.type)
    return arith.DivfOp(arith.ConstantOp(FloatAttr(1.0, kind)), value)


_ELEMENTWISE: dict[str, tuple[int, Builder | None, Builder | None]] = {
    "add": (2, arith.AddfOp, arith.AddiOp),
    "sub": (2, arith.SubfOp, arith.SubiOp),
    "mul": (2, arith.MulfOp, arith.MuliOp),
    "div": (2, arith.DivfOp, arith.DivSIOp),
    "div_unsigned": (2, None, arith.DivUIOp),
    "max": (2, arith.MaximumfOp, arith.MaxSIOp),
    "min": (2, arith.MinimumfOp, arith.MinSIOp),
    "powf": (2, math.PowFOp, None),
    "exp": (1, math.ExpOp, None),
    "log": (1, math.LogOp, None),
    "abs": (1, math.AbsFOp, None),
    "ceil": (1, math.CeilOp, None),
    "floor": (1, math.FloorOp, None),
    "negf": (1, arith.NegfOp, None),
    "reciprocal": (1, _reciprocal, None),
    "round": (1, math.RoundOp, None),
    "sqrt": (1, math.SqrtOp, None),
    "rsqrt": (1, math.RsqrtOp, None),
    "square": (1, _square, None),
    "tanh": (1, math.TanhOp, None),
    "erf": (1, math.ErfOp, None),
    "select": (3, arith.SelectOp, arith.SelectOp),
}


def _synonym(name: str, arity: int, on_float: Builder | None, on_integer: Builder | None) -> type[ElementwiseOp]:
    fields = {
        "name": f"linalg.{name}",
        "ARITY": arity,
        "FLOAT": staticmethod(on_float) if on_float else None,
        "INTEGER": staticmethod(on_integer) if on_integer else None,
    }
    return type(f"Linalg_{name}", (ElementwiseOp,), fields)


SYNONYMS: tuple[type[Operation], ...] = (
    MatmulTransposeAOp,
    MatmulTransposeBOp,
    BatchMatmulTransposeAOp,
    BatchMatmulTransposeBOp,
    ContractOp,
    *(_synonym(name, *entry) for name, entry in _ELEMENTWISE.items()),
)
