"""Index arithmetic in IR: constants, size expressions, tile counts and the workgroup's place in the grid."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, cast

from treadle.dialects import tile
from treadle.ir.core import Block, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.emitter import Emitter
from treadle.plan.expr import Expr, compile_tuple
from treadle.records import dataclass

MOST_CHOSEN: Final = 16
"""Of so many values at most one is chosen by selections, one less than there are values; of more it is looked up in a table."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A symbol that has one of several values: the one whose place in the list has these `bits`, the highest first. `place`: that number,
    where tables are looked up at it; they are right behind it, ahead of the loops in which they are first asked for.
    """

    values: tuple[int, ...]
    bits: tuple[SSAValue, ...]
    place: SSAValue | None = None
    found: dict[tuple[int, ...], SSAValue] = field(default_factory=dict[tuple[int, ...], SSAValue])


class IndexBuilder(Emitter):
    """An emitter of index arithmetic over a kernel's index arguments `symbols`.

    `element`: the integer type of indices that are elements of tiles, as wide as an index. `listed`: symbols of which more is known, whose
    values in `symbols` are the same.
    """

    def __init__(self, builder: Builder, symbols: Mapping[str, SSAValue], element: builtin.IntegerType = builtin.i32) -> None:
        super().__init__(builder, symbols)
        self.element = element
        self.listed: dict[str, Listed] = {}

    def expression(self, expr: Expr) -> SSAValue:
        """A size expression over the symbols; of one that is listed alone, what it is for each value, where it takes fewer operations."""
        name = next(iter(expr.symbols()), "")
        known = self.listed.get(name)
        if known is None or len(expr.symbols()) > 1 or min(len(known.values), MOST_CHOSEN) > _operations(expr):
            return super().expression(expr)
        value_of = compile_tuple([expr], [name])
        return self.of_listed([value_of(value)[0] for value in known.values], known)

    def of_listed(self, values: Sequence[int], known: Listed) -> SSAValue:
        """The number that stands in `values` where the symbol's value stands in its list."""
        if known.place is None:
            return self.chosen(values, known.bits)
        first, step = values[0], values[1] - values[0]
        if all(value == first + step * at for at, value in enumerate(values)):
            return self.add(self.multiply(known.place, step), first)
        key = tuple(values)
        if key not in known.found:
            at = self.builder.insertion_point
            self.builder.insertion_point = InsertPoint.after(cast("Operation", known.place.owner))
            known.found[key] = self.looked_up(values, known.place)
            self.builder.insertion_point = at
        return known.found[key]

    def entry(self, values: Sequence[int], index: SSAValue) -> SSAValue:
        """The number of a table at an index, which proofs ask for of any number of a workgroup: the last one behind the table."""
        return self.looked_up(values, self.minimum(index, len(values) - 1))

    def looked_up(self, values: Sequence[int], index: SSAValue) -> SSAValue:
        """The same at an index that is never outside."""
        place = self.static(index)
        return self.insert(tile.LookupOp(values, index)) if place is None else self.constant(values[place])

    def chosen(self, values: Sequence[int], bits: Sequence[SSAValue]) -> SSAValue:
        """The number whose place among `values` has these bits, the highest first, which is none behind the last."""

        def among(low: int, level: int) -> SSAValue:
            half = 1 << len(bits) >> level >> 1
            if len(set(values[low : low + 2 * half])) <= 1:
                return self.constant(values[low])
            below = among(low, level + 1)
            if low + half >= len(values):
                return below
            return self.insert(arith.SelectOp(bits[level], among(low + half, level + 1), below))

        return among(0, 0)


def _operations(expr: Expr) -> int:
    """How many operations compute an expression, without folding."""
    if any(atom.kind == "table" for factors, _ in expr.terms for atom in factors):
        return MOST_CHOSEN
    within = [len(atom.args) - 1 + sum(map(_operations, atom.args)) for factors, _ in expr.terms for atom in factors if atom.args]
    products = [max(0, len(factors) - (coefficient == 1)) for factors, coefficient in expr.terms]
    return sum(products) + max(0, len(expr.terms) - 1) + sum(within)


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
