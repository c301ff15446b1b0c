"""Powers of differences from a maximum, as a softmax sums them: the largest is 1, so that those below the normal range add nothing.

Each power is 2^(c x - c m) where m is at least the maximum of x along a row. What is summed of them, or multiplied and summed, has a term
with the power 1 from where the maximum was found; a power below 2^-126 is less than half a unit of that in any format.
"""

from treadle.analysis.needed_precision import constant_float
from treadle.dialects import tile
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, math

_MOVES = ("tile.broadcast", "tile.permute")
_MAXIMA = ("arith.maximumf", "arith.maxnumf")


def stands_beside_one(power: math.Exp2Op) -> bool:
    """Whether a power is of a difference from a maximum along its row, and goes into sums alone."""
    return _is_below_maximum(power.operands[0]) and all(_is_summed(use.operation) for use in power.results[0].uses)


def _is_summed(user: Operation) -> bool:
    if isinstance(user, arith.TruncFOp):
        return all(isinstance(use.operation, tile.ContractOp) for use in user.results[0].uses)
    return isinstance(user, tile.ReduceOp) and _combines_by(user, ("arith.addf",))


def _combines_by(reduction: tile.ReduceOp, names: tuple[str, ...]) -> bool:
    inner = [op.name for region in reduction.regions for op in region.walk()]
    return len(inner) == 2 and inner[0] in names


def _is_below_maximum(value: SSAValue) -> bool:
    """Whether a value is c x - c m, or c (x - m), with c positive."""
    difference, outer = _unscaled(value)
    if outer <= 0 or not isinstance(difference, OpResult) or not isinstance(difference.op, arith.SubfOp):
        return False
    (x, factor), (limit, other) = (_unscaled(operand) for operand in difference.op.operands)
    limit, inner = _unscaled(_unmoved(limit))
    return factor > 0 and factor == other * inner and _is_maximum_of(x, _unmoved(limit))


def _is_maximum_of(x: SSAValue, limit: SSAValue) -> bool:
    """Whether a value is the maximum of `x` along an axis, or that and something else's."""
    if not isinstance(limit, OpResult):
        return False
    if isinstance(limit.op, tile.ReduceOp):
        return limit.op.operands[limit.index] is x and _combines_by(limit.op, _MAXIMA)
    return limit.op.name in _MAXIMA and any(_is_maximum_of(x, _unmoved(operand)) for operand in limit.op.operands)


def _unmoved(value: SSAValue) -> SSAValue:
    while isinstance(value, OpResult) and value.op.name in _MOVES:
        value = value.op.operands[0]
    return value


def _unscaled(value: SSAValue) -> tuple[SSAValue, float]:
    """A value without a constant factor, and that."""
    if isinstance(value, OpResult) and isinstance(value.op, arith.MulfOp):
        a, b = value.op.operands
        for one, other in ((a, b), (b, a)):
            if (number := constant_float(_unmoved(other))) is not None:
                return one, number
    return value, 1.0
