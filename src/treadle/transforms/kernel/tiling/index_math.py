"""Index arithmetic in IR: constants, size expressions, tile counts and the workgroup's place in the grid."""

from collections.abc import Mapping, Sequence

from treadle.ir.core import Block, Builder, InsertPoint, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.emitter import Emitter


class IndexBuilder(Emitter):
    """An emitter of index arithmetic over a kernel's index arguments `symbols`.

    `element`: the integer type of indices that are elements of tiles, as wide as an index.
    """

    def __init__(self, builder: Builder, symbols: Mapping[str, SSAValue], element: builtin.IntegerType = builtin.i32) -> None:
        super().__init__(builder, symbols)
        self.element = element


def builder_at_end(block: Block, symbols: Mapping[str, SSAValue]) -> IndexBuilder:
    """An index builder that appends to a block."""
    return IndexBuilder(Builder(InsertPoint.at_end(block)), symbols)


def delinearize(index: IndexBuilder, linear: SSAValue, counts: Sequence[SSAValue]) -> list[SSAValue]:
    """Split a linear id into one index for each count, the last running fastest."""
    result: list[SSAValue] = []
    rest = linear
    for count in reversed(counts[1:]):
        result.append(index.remainder(rest, count))
        rest = index.divide(rest, count)
    if counts:
        result.append(rest)
    return result[::-1]


def grouped_raster(index: IndexBuilder, linear: SSAValue, count_m: SSAValue, count_n: SSAValue, group: int) -> tuple[SSAValue, SSAValue]:
    """Tile coordinates (m, n) of a linear id when `group` rows of tiles are walked together, column by column, for reuse in the cache."""
    m, n = index.static(count_m), index.static(count_n)
    if group <= 1 or n == 1 or m == 1:
        return index.divide(linear, count_n), index.remainder(linear, count_n)
    if m is not None and m <= group:
        return index.remainder(linear, count_m), index.divide(linear, count_m)
    width = index.multiply(count_n, group)
    first = index.multiply(index.divide(linear, width), group)
    # Whole groups have a known number of rows: no division by a register.
    rows = (
        index.constant(group) if m is not None and m % group == 0 else index.minimum(index.subtract(count_m, first), index.constant(group))
    )
    within = index.remainder(linear, width)
    return index.add(first, index.remainder(within, rows)), index.divide(within, rows)
