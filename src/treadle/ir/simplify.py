"""Cleaning up: `cse`, `dce` and `canonicalize`.

Level: any. Reads: constants, uses, effects. Writes: removes operations and folds index arithmetic. Leaves alone: operations with
effects (or effects nobody knows), floating-point arithmetic, and every location.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.transforms.common_subexpression_elimination import OperationInfo, cse
from xdsl.transforms.dead_code_elimination import is_trivially_dead, region_dce

from treadle.ir import arith
from treadle.ir.builtin import IndexType, IntegerAttr, ModuleOp
from treadle.ir.context import Context
from treadle.ir.core import AffineMap, Operation, OpResult, SSAValue
from treadle.ir.passes import Pass, register_pass
from treadle.ir.rewriting import Pattern, PatternRewriter, rewrite_greedily
from treadle.records import dataclass

_INDEX_FOLDS: dict[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.MinSIOp: min,
    arith.MaxSIOp: max,
}
_NEUTRAL_RIGHT: dict[type[Operation], int] = {arith.AddiOp: 0, arith.SubiOp: 0, arith.MuliOp: 1, arith.DivSIOp: 1, arith.DivUIOp: 1}
_AFFINE: dict[str, Callable[[Sequence[int]], int]] = {"affine.apply": lambda values: values[0], "affine.min": min, "affine.max": max}


def constant_index(value: SSAValue) -> int | None:
    """The value of an index constant, else None."""
    if isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp) and isinstance(value.type, IndexType):
        attribute = value.op.value
        return attribute.value.data if isinstance(attribute, IntegerAttr) else None
    return None


def _index_constant(value: int) -> arith.ConstantOp:
    return arith.ConstantOp(IntegerAttr(value, IndexType()))


class FoldIndexArithmetic(Pattern):
    """Constant `index` arithmetic, and operations with their neutral element on the right."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if len(op.operands) != 2 or len(op.results) != 1 or not isinstance(op.results[0].type, IndexType):
            return
        left, right = constant_index(op.operands[0]), constant_index(op.operands[1])
        fold = _INDEX_FOLDS.get(type(op))
        if fold is not None and left is not None and right is not None:
            rewriter.replace(op, _index_constant(fold(left, right)))
        elif right is not None and _NEUTRAL_RIGHT.get(type(op)) == right:
            rewriter.replace(op, (), [op.operands[0]])


class FoldAffine(Pattern):
    """`affine.apply`, `min` and `max` of constants."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        combine = _AFFINE.get(op.name)
        if combine is None:
            return
        values = [constant_index(operand) for operand in op.operands]
        known = [value for value in values if value is not None]
        if len(known) != len(values):
            return
        affine_map: AffineMap = getattr(op.properties["map"], "data")  # noqa: B009 - an AffineMapAttr by the op's verifier
        results = affine_map.eval(known[: affine_map.num_dims], known[affine_map.num_dims :])
        rewriter.replace(op, _index_constant(combine(results)))


class EraseDead(Pattern):
    """Operations whose results nobody uses and which have no other effect."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.results and is_trivially_dead(op):
            rewriter.erase(op)


def _hash(self: OperationInfo) -> int:
    """Operations differ in their operands mostly, and constants in their value: upstream hashes every type and attribute, at every look."""
    op = self.op
    return hash((op.name, *op.operands) if op.operands else (op.name, *op.properties.values(), *op.result_types))


def _equal(self: OperationInfo, other: object) -> bool:
    if not isinstance(other, OperationInfo):
        return False
    one, two = self.op, other.op
    parts = one.operands == two.operands and one.properties == two.properties and one.attributes == two.attributes
    same = parts and self.name == other.name and one.result_types == two.result_types
    return same and all(a.is_structurally_equivalent(b) for a, b in zip(one.regions, two.regions, strict=True))


OperationInfo.__hash__, OperationInfo.__eq__ = _hash, _equal


@register_pass
@dataclass(frozen=True)
class CsePass(Pass):
    """Merge operations that compute the same."""

    name: ClassVar[str] = "cse"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        cse(module)


@register_pass
@dataclass(frozen=True)
class DcePass(Pass):
    """Remove what nobody uses."""

    name: ClassVar[str] = "dce"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        region_dce(module.body)


@register_pass
@dataclass(frozen=True)
class CanonicalizePass(Pass):
    """Fold constants of index arithmetic and affine operations and remove what becomes dead."""

    name: ClassVar[str] = "canonicalize"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        rewrite_greedily(module, [EraseDead(), FoldIndexArithmetic(), FoldAffine()])
