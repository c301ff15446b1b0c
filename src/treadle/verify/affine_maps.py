"""The maps of `affine.apply`, `affine.min` and `affine.max`, followed in whatever stands for an index value: numbers, signs, forms."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from treadle.ir.core import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
    Operation,
)
from treadle.ir.dialects import builtin

T = TypeVar("T")


def affine_map_of(op: Operation) -> AffineMap | None:
    """The map of `affine.apply`, `affine.min` or `affine.max`; None for other operations."""
    attribute = op.properties.get("map")
    return attribute.data if isinstance(attribute, builtin.AffineMapAttr) and op.name.startswith("affine.") else None


def results_of(
    affine_map: AffineMap,
    operands: Sequence[T | None],
    constant: Callable[[int], T],
    binary: Callable[[AffineBinaryOpKind, T, T], T | None],
) -> list[T | None]:
    """What stands for each result of a map, given what stands for its operands; None where nothing does."""

    def found(expr: AffineExpr) -> T | None:
        match expr:
            case AffineConstantExpr():
                return constant(expr.value)
            case AffineDimExpr():
                return operands[expr.position]
            case AffineSymExpr():
                return operands[affine_map.num_dims + expr.position]
            case AffineBinaryOpExpr():
                left, right = found(expr.lhs), found(expr.rhs)
                return None if left is None or right is None else binary(expr.kind, left, right)
            case _:
                return None

    return [found(expr) for expr in affine_map.results]
