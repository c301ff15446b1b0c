"""Comparisons of places with sizes, made equal for elements that lie together.

Where 8 divides the size n, place p lies below n just where p rounded down to a multiple of 8 does. Threads hold runs of neighbouring
elements, which round to one place: a comparison each run is left of one each element.
"""

from typing import cast

from treadle.analysis.divisibility import divisor
from treadle.dialects import tile
from treadle.dialects.tile_types import tile_type
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.rewriting import InsertPoint, Pattern, PatternRewriter

_ROUNDED = (2, 5, 6, 9)
"""Predicates: slt, sge, ult, uge."""
_LONGEST_RUN = 16
"""Elements of the widest access: further rounding joins no more comparisons of a thread's."""


class CompareRuns(Pattern):
    """`iota < n`, and its opposite, where a power of two divides n."""

    @property
    def root(self) -> str:
        return arith.CmpiOp.name

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, arith.CmpiOp) or op.predicate.value.data not in _ROUNDED or not _is_place(op.lhs):
            return
        run = min(_divisor(op.rhs), _LONGEST_RUN)
        if run < 2:
            return
        kind = cast("builtin.TensorType[builtin.IntegerType]", tile_type(op.lhs))
        mask = arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(kind, [-run]))
        rounded = arith.AndIOp(op.lhs, mask.result)
        rewriter.insert(mask, InsertPoint.before(op))
        rewriter.insert(rounded, InsertPoint.before(op))
        rewriter.replace(op, arith.CmpiOp(rounded.result, op.rhs, op.predicate.value.data))


def _is_place(value: SSAValue) -> bool:
    return isinstance(_moved(value), tile.IotaOp)


def _moved(value: SSAValue) -> Operation | None:
    """What computes the elements of a tile that are only spread out."""
    op = value.owner
    while isinstance(op, tile.BroadcastOp):
        op = op.source.owner
    return op if isinstance(op, Operation) else None


def _divisor(value: SSAValue) -> int:
    """A power of two that divides each element of a tile that holds one number."""
    op = _moved(value)
    if isinstance(op, tile.SplatOp):
        return divisor(op.scalar)
    if isinstance(op, arith.ConstantOp) and isinstance(dense := op.value, builtin.DenseIntOrFPElementsAttr) and dense.is_splat():
        number = next(iter(dense.get_values()))
        return divisor(number) if isinstance(number, int) else 1
    return 1
