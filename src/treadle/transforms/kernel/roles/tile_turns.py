"""Which tiles a role works on: the loop over those that a workgroup takes in turn, and of them every other one in ping-pong."""

from typing import NamedTuple

from treadle.dialects import tile
from treadle.dialects.role_plan import RolePlan
from treadle.dialects.stages import TURNS
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType, StringAttr
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.plan.expr import Expr, as_expr, constant
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


class TileLoop(NamedTuple):
    """Bounds of a loop over tiles. `first` and `apart`: its number is that of a round, in which the tile is `first` + number * `apart`;
    None where it is the tile's own number.
    """

    low: SSAValue
    high: SSAValue
    step: SSAValue
    first: SSAValue | None = None
    apart: SSAValue | None = None

    def tile(self, index: IndexBuilder, number: SSAValue) -> SSAValue:
        """The number of the tile."""
        if self.first is None or self.apart is None:
            return number
        return index.add(self.first, index.insert(arith.MuliOp(number, self.apart, result_type=IndexType())))


def takers(kernel: tile.KernelOp, plan: RolePlan) -> Expr | None:
    """How many workgroups take the tiles in turn; None where each has one."""
    if not plan.by_grid:
        return constant(plan.workgroups) if plan.workgroups else None
    found = kernel.attributes.get(TURNS)
    if not isinstance(found, StringAttr):
        raise InternalError(f"kernel {kernel.sym_name.data} does not say how many workgroups take its tiles")
    return as_expr(found.data)


def tile_loop(index: IndexBuilder, first: SSAValue, tiles: Expr, count: Expr, sets: int, turn: int) -> TileLoop:
    """The loop of set `turn` of `sets` of workgroup `first`. Where only the call knows how many workgroups there are, it goes by rounds:
    the sets share a workgroup's rounds out, by numbers that are the same however far apart its tiles are.
    """
    if (known := count.as_int()) is not None:
        low, step = index.add(first, index.constant(turn * known)), index.constant(sets * known)
        return TileLoop(low, index.expression(tiles), step)
    apart = index.expression(count)
    left = index.subtract(index.expression(tiles), first)
    rounds = index.divide(index.add(left, index.subtract(apart, index.constant(1))), apart)
    return TileLoop(index.constant(turn), rounds, index.constant(sets), first, apart)
