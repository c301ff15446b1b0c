"""Operations that are read but never kept: named linalg ops that newer MLIR has dropped, or that are no more than a `linalg.generic`.

`linalg.add`, `linalg.exp`, ... become a `linalg.generic`; `linalg.matmul_transpose_b` and its kin become `linalg.matmul` with indexing
maps; `linalg.contract` becomes a `linalg.generic` with a multiply-accumulate body. Nothing behind the parser ever sees these names.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from treadle.dialects.mlir_ext.contractions import BatchMatmulOp, MatmulOp, projection_maps
from treadle.dialects.mlir_ext.elementwise import ELEMENTWISE
from treadle.dialects.mlir_ext.linalg_base import IteratorTypeAttr, parse_named
from treadle.dialects.mlir_ext.named import Maps, NamedOp
from treadle.dialects.mlir_ext.scalar_bodies import multiply_add, same_body, scalar_body
from treadle.dialects.mlir_ext.structured import GenericOp
from treadle.dialects.mlir_ext.synonym import Synonym
from treadle.dialects.mlir_ext.type_fn import is_unsigned
from treadle.ir.builtin import AffineMapAttr, is_array_of, tensor_types
from treadle.ir.core import AffineDimExpr, AffineMap, Attribute, Operation, Parser, Region, SSAValue, VerifyException


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


def _iterators(output_map: AffineMap) -> list[IteratorTypeAttr]:
    """Loops that the output's map names are parallel."""
    kept = {expr.position for expr in output_map.results if isinstance(expr, AffineDimExpr)}
    return [IteratorTypeAttr.parallel() if d in kept else IteratorTypeAttr.reduction() for d in range(output_map.num_dims)]


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
        kinds = _iterators(text.maps.data[2].data)
        cast = text.attributes.pop("cast", None)
        try:
            body = scalar_body(multiply_add, text.inputs, text.outputs, unsigned=is_unsigned(cast))
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        op = GenericOp(text.inputs, text.outputs, body, text.maps, kinds, text.results)
        op.attributes |= text.attributes
        return op

    @classmethod
    def create(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        *,
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = MappingProxyType({}),
        attributes: Mapping[str, Attribute] = MappingProxyType({}),
        regions: Sequence[Region] = (),
        **_: object,
    ) -> Operation:
        """What stands for the generic form, whose text has the body."""
        maps = properties.get("indexing_maps")
        if not is_array_of(maps, AffineMapAttr) or len(operands) != 3 or len(maps) != 3 or len(regions) != 1:
            raise VerifyException("expected three operands, three indexing maps and a body")
        body = scalar_body(multiply_add, operands[:2], operands[2:], unsigned=is_unsigned(properties.get("cast")))
        if not same_body(regions[0], body):
            raise VerifyException("the body is not the operation's own; write it as linalg.generic")
        op = GenericOp(operands[:2], operands[2:], body, maps, _iterators(maps.data[2].data), list(result_types))
        op.attributes |= dict(attributes)
        return op


SYNONYMS: tuple[type[Operation], ...] = (
    MatmulTransposeAOp,
    MatmulTransposeBOp,
    BatchMatmulTransposeAOp,
    BatchMatmulTransposeBOp,
    ContractOp,
    *ELEMENTWISE,
)
