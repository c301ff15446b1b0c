"""Which power of two is known to divide an index value.

A flow-insensitive walk over the definitions: constants, sums, products, minima, affine maps, induction variables.
What nothing is known about (kernel symbols, workgroup ids) counts as 1. Sources of facts beyond the IR are handed in as `facts`.
"""

from collections.abc import Mapping

from treadle.ir.core import (
    AffineBinaryOpExpr,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
    BlockArgument,
    Operation,
    OpResult,
    SSAValue,
)
from treadle.ir.dialects import affine, arith, builtin, scf

EVERYTHING = 1 << 30
"""What divides zero: larger than any width or alignment a question is asked about."""

Facts = Mapping[SSAValue, int]


def power_of_two_divisor(value: int) -> int:
    """The largest power of two that divides `value`; `EVERYTHING` for zero."""
    return min(value & -value, EVERYTHING) if value else EVERYTHING


def constant_value(value: SSAValue) -> int | None:
    """The value of an integer or index constant, else None."""
    if isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp):
        attribute = value.op.value
        if isinstance(attribute, builtin.IntegerAttr):
            return attribute.value.data
    return None


def divisor(value: SSAValue | int, facts: Facts | None = None) -> int:
    """The largest power of two known to divide `value`, at most `EVERYTHING`."""
    if isinstance(value, int):
        return power_of_two_divisor(value)
    if facts is not None and value in facts:
        return facts[value]
    if isinstance(value, BlockArgument):
        return _argument_divisor(value, facts)
    if isinstance(value, OpResult):
        return _result_divisor(value.op, facts)
    return 1


def _argument_divisor(value: BlockArgument, facts: Facts | None) -> int:
    loop = value.block.parent_op()
    if isinstance(loop, scf.ForOp) and value.index == 0:
        return min(divisor(loop.lb, facts), divisor(loop.step, facts))
    return 1


def _result_divisor(op: Operation, facts: Facts | None) -> int:
    match op:
        case arith.ConstantOp():
            attribute = op.value
            return power_of_two_divisor(attribute.value.data) if isinstance(attribute, builtin.IntegerAttr) else 1
        case arith.AddiOp() | arith.SubiOp() | arith.MinSIOp() | arith.MaxSIOp() | arith.MinUIOp() | arith.MaxUIOp():
            return min(divisor(op.operands[0], facts), divisor(op.operands[1], facts))
        case arith.MuliOp():
            return min(divisor(op.operands[0], facts) * divisor(op.operands[1], facts), EVERYTHING)
        case arith.SelectOp():
            return min(divisor(op.operands[1], facts), divisor(op.operands[2], facts))
        case arith.RemSIOp() | arith.RemUIOp():
            return min(divisor(op.operands[0], facts), divisor(op.operands[1], facts))
        case arith.DivSIOp() | arith.DivUIOp():
            by = constant_value(op.operands[1])
            of = divisor(op.operands[0], facts)
            return max(1, of // by) if by is not None and by > 0 and by & (by - 1) == 0 else 1
        case arith.IndexCastOp():
            return divisor(op.operands[0], facts)
        case affine.ApplyOp():
            return _map_divisor(op.map.data, tuple(op.mapOperands), facts)
        case _:
            return 1


def _map_divisor(affine_map: AffineMap, operands: tuple[SSAValue, ...], facts: Facts | None) -> int:
    def walk(expression: AffineExpr) -> int:
        match expression:
            case AffineConstantExpr():
                return power_of_two_divisor(expression.value)
            case AffineDimExpr():
                return divisor(operands[expression.position], facts)
            case AffineSymExpr():
                return divisor(operands[affine_map.num_dims + expression.position], facts)
            case AffineBinaryOpExpr():
                return binary(expression)
            case _:
                return 1

    def binary(expression: AffineBinaryOpExpr) -> int:
        left, right = walk(expression.lhs), walk(expression.rhs)
        match expression.kind.name:
            case "Add" | "Mod":
                return min(left, right)
            case "Mul":
                return min(left * right, EVERYTHING)
            case _:  # divisions: exact only by a known power of two
                by = expression.rhs.value if isinstance(expression.rhs, AffineConstantExpr) else 0
                return max(1, left // by) if by > 0 and by & (by - 1) == 0 else 1

    return walk(affine_map.results[0])
