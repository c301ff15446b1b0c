"""The program of a tile where it is known to be a wide or a narrow one (`plan.mixed_widths`)."""

from collections.abc import Sequence
from typing import NamedTuple

from treadle.analysis.divisibility import constant_value
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.builtin import IntegerAttr, i64
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith
from treadle.plan.expr import Expr, constant
from treadle.plan.mixed_widths import MixedWidths

NOT_BELOW = 9
"""The number of the comparison "uge"."""


class TileWidth(NamedTuple):
    """What is known of a tile: whether it is a narrow one (None: tiles have one width), and the columns it needs (0: all)."""

    narrow: bool | None = None
    columns: int = 0


def tile_widths(mixed: MixedWidths | None, tiles: Expr) -> list[tuple[TileWidth, Expr]]:
    """The widths of a kernel's tiles in the order of their numbers, with the number at which each ends."""
    if mixed is None:
        return [(TileWidth(), tiles)]
    return [(TileWidth(narrow=False), constant(mixed.first_narrow)), (TileWidth(True, mixed.narrow), tiles)]


def limit_columns(result: SSAValue, columns: int) -> None:
    """Leave the other columns of a contraction undefined."""
    op = result.owner
    if not isinstance(op, tile.ContractOp):
        raise InternalError("the result of no contraction")
    op.properties["columns"] = IntegerAttr(columns, i64)


def decided(body: Sequence[Operation], mixed: MixedWidths | None, width: TileWidth) -> dict[Operation, SSAValue]:
    """The selections of a tile's program that depend on its number alone and are known for tiles of that width: what they choose.

    The program compares the tile's number (its workgroup id) with the numbers at which blocks of tiles begin.
    """
    found: dict[Operation, SSAValue] = {}
    if mixed is None or width.narrow is None:
        return found
    for op in body:
        if isinstance(op, arith.SelectOp) and (begin := _compared_with(op.cond)) is not None:
            if width.narrow and begin <= mixed.first_narrow:
                found[op] = op.lhs
            elif not width.narrow and begin >= mixed.first_narrow:
                found[op] = op.rhs
    return found


def _compared_with(condition: SSAValue) -> int | None:
    """The constant that a condition finds the tile's number not below; None for other conditions."""
    op = condition.owner
    if not isinstance(op, arith.CmpiOp) or op.predicate.value.data != NOT_BELOW or not isinstance(op.lhs.owner, tile.ProgramIdOp):
        return None
    return constant_value(op.rhs)
