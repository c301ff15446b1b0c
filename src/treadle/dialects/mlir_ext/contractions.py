"""Named contractions of linalg with mixed operand types and `indexing_maps`.

Each named op is a set of default indexing maps; the body is `out + cast(lhs) * cast(rhs)` in the element type of the output, as MLIR
defines it (f16 x f16 -> f32, i8 x i8 -> i32 signed, f8 x f8 -> f32 and so on). Loops are (batch, m, n, k), as far as the op has them.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

from treadle.dialects.mlir_ext.linalg_base import (
    IteratorTypeAttr,
    NamedOperation,
    TensorEffects,
    YieldOp,
    cast_scalar,
    element_type,
    parse_operand_group,
    parse_result_types,
    print_operand_group,
    print_result_types,
)
from treadle.dialects.mlir_ext.loops import verify_structured
from treadle.ir.builtin import AffineMapAttr, AnyFloat, ArrayAttr, IntegerType, is_array_of, tensor_types
from treadle.ir.core import (
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Attribute,
    Block,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    opt_prop_def,
    traits_def,
)
from treadle.ir.dialects import arith, linalg

Maps = ArrayAttr[AffineMapAttr]


def projection_maps(loops: int, *results: Sequence[int]) -> Maps:
    """One indexing map per entry of `results`, which lists the loops of the operand's dimensions."""
    return ArrayAttr([AffineMapAttr(AffineMap(loops, 0, tuple(AffineExpr.dimension(dim) for dim in result))) for result in results])


def contraction_body(inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
    """`out + cast(lhs) * cast(rhs)` on scalars; as in MLIR, truth values are joined by and, then by or."""
    types = [element_type(value) for value in (*inputs, *outputs)]
    if len(types) != 3 or not all(isinstance(kind, AnyFloat | IntegerType) for kind in types):
        raise VerifyException("a contraction takes two inputs and one output of float or integer elements")
    block = Block(arg_types=types)
    lhs, rhs = (cast_scalar(block, argument, types[2]) for argument in block.args[:2])
    multiply, add = arith.MuliOp, arith.AddiOp
    if isinstance(types[2], AnyFloat):
        multiply, add = arith.MulfOp, arith.AddfOp
    elif types[2] == IntegerType(1):
        multiply, add = arith.AndIOp, arith.OrIOp
    product = multiply(lhs, rhs)
    total = add(block.args[2], product)
    block.add_ops([product, total, YieldOp(total)])
    return Region(block)


class ContractionMixin(NamedOperation):
    """Maps, iterator types, text and verification of the contraction ops; subclasses set `DEFAULT_MAPS`."""

    PRINT_ATTRS_IN_FRONT: ClassVar[bool] = True
    DEFAULT_MAPS: ClassVar[Maps]
    traits = traits_def(TensorEffects())

    def __init__(
        self,
        inputs: Sequence[SSAValue | Operation],
        outputs: Sequence[SSAValue | Operation],
        indexing_maps: Maps | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        """`indexing_maps` where they are not the op's default ones (transposed or broadcast operands)."""
        ins = [SSAValue.get(value) for value in inputs]
        outs = [SSAValue.get(value) for value in outputs]
        NamedOperation.__init__(
            self,
            ins=ins,
            outs=outs,
            result_types=[tensor_types([value.type for value in outs])],
            properties={"indexing_maps": self.DEFAULT_MAPS if indexing_maps is None else indexing_maps},
            attributes=attributes,
            hidden_region=contraction_body(ins, outs),
        )

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        return contraction_body(inputs, outputs)

    def get_indexing_maps(self) -> Maps:
        maps = self.properties.get("indexing_maps")
        return maps if is_array_of(maps, AffineMapAttr) else self.DEFAULT_MAPS

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        return tuple(entry.data for entry in self.get_indexing_maps())

    def get_iterator_types(self) -> ArrayAttr[IteratorTypeAttr]:
        maps = self.get_indexing_maps().data
        kept = {expr.position for expr in maps[-1].data.results if isinstance(expr, AffineDimExpr)}
        return ArrayAttr(
            [IteratorTypeAttr.parallel() if dim in kept else IteratorTypeAttr.reduction() for dim in range(maps[-1].data.num_dims)]
        )

    def verify_(self) -> None:
        default = self.DEFAULT_MAPS.data
        maps = self.get_indexing_maps().data
        if len(maps) != len(default) or any(m.data.num_dims != d.data.num_dims for m, d in zip(maps, default, strict=True)):
            raise VerifyException(f"expected {len(default)} indexing maps over {default[0].data.num_dims} loops")
        if maps[-1] != default[-1]:
            raise VerifyException(f"the output's indexing map must be {default[-1].data}")
        for number, (given, standard) in enumerate(zip(maps[:-1], default[:-1], strict=True)):
            allowed = set(standard.data.results)
            if not given.data.results or not set(given.data.results) <= allowed or len(set(given.data.results)) != len(given.data.results):
                raise VerifyException(f"indexing map {number} must name each of some of the loops of {standard.data} once")
        verify_structured(self)
        super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        start = parser.pos
        maps: Attribute | None = None
        if parser.parse_optional_keyword("indexing_maps"):
            parser.parse_punctuation("=")
            maps = parser.parse_attribute()
        attributes = parser.parse_optional_attr_dict()
        maps = attributes.pop("indexing_maps", maps)
        if maps is None:
            maps = cls.DEFAULT_MAPS
        if not is_array_of(maps, AffineMapAttr):
            parser.raise_error("indexing_maps must be an array of affine maps", start, parser.pos)
        inputs = parse_operand_group(parser, "ins")
        outputs = parse_operand_group(parser, "outs")
        result_types = parse_result_types(parser)
        try:
            body = contraction_body(inputs, outputs)
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        return cls.build(
            operands=[inputs, outputs],
            result_types=[result_types],
            properties={"indexing_maps": maps},
            attributes=attributes,
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        maps = self.get_indexing_maps()
        if maps != self.DEFAULT_MAPS:
            printer.print_string(" indexing_maps = ")
            printer.print_attribute(maps)
        printer.print_op_attributes(self.attributes)
        print_operand_group(printer, "ins", self.inputs)
        print_operand_group(printer, "outs", self.outputs)
        print_result_types(printer, self.res.types)


class MatmulOp(ContractionMixin, linalg.ops.MatmulOp):
    """out[m,n] += lhs[m,k] * rhs[k,n]; also an instance of upstream's class."""

    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(3, (0, 2), (2, 1), (0, 1))


class _ContractionOp(ContractionMixin):
    indexing_maps = opt_prop_def(ArrayAttr[AffineMapAttr])


@irdl_op_definition
class BatchMatmulOp(_ContractionOp):
    """out[b,m,n] += lhs[b,m,k] * rhs[b,k,n]"""

    name = "linalg.batch_matmul"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(4, (0, 1, 3), (0, 3, 2), (0, 1, 2))


@irdl_op_definition
class BatchReduceMatmulOp(_ContractionOp):
    """out[m,n] += lhs[b,m,k] * rhs[b,k,n], summed over b too"""

    name = "linalg.batch_reduce_matmul"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(4, (0, 1, 3), (0, 3, 2), (1, 2))


@irdl_op_definition
class MatvecOp(_ContractionOp):
    """out[m] += lhs[m,k] * rhs[k]"""

    name = "linalg.matvec"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(2, (0, 1), (1,), (0,))


@irdl_op_definition
class VecmatOp(_ContractionOp):
    """out[n] += lhs[k] * rhs[k,n]"""

    name = "linalg.vecmat"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(2, (1,), (1, 0), (0,))


@irdl_op_definition
class DotOp(_ContractionOp):
    """out[] += lhs[k] * rhs[k]"""

    name = "linalg.dot"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(1, (0,), (0,), ())


@irdl_op_definition
class BatchMatvecOp(_ContractionOp):
    """out[b,m] += lhs[b,m,k] * rhs[b,k]"""

    name = "linalg.batch_matvec"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(3, (0, 1, 2), (0, 2), (0, 1))


@irdl_op_definition
class BatchVecmatOp(_ContractionOp):
    """out[b,n] += lhs[b,k] * rhs[b,k,n]"""

    name = "linalg.batch_vecmat"
    DEFAULT_MAPS: ClassVar[Maps] = projection_maps(3, (0, 2), (0, 2, 1), (0, 1))


CONTRACTIONS: tuple[type[ContractionMixin], ...] = (
    MatmulOp,
    BatchMatmulOp,
    BatchReduceMatmulOp,
    MatvecOp,
    VecmatOp,
    DotOp,
    BatchMatvecOp,
    BatchVecmatOp,
)
