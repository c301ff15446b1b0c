"""Index arithmetic in IR: constants, size expressions, tile counts and the workgroup's place in the grid."""

from collections.abc import Mapping, Sequence

from treadle.analysis.divisibility import constant_value
from treadle.ir.core import Block, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import Expr, as_expr

INDEX = builtin.IndexType()


class IndexBuilder:
    """Emits index arithmetic at a movable insertion point; folds what is static.

    `symbols`: the kernel's index arguments by name. `element`: the integer type of indices that are elements of tiles, as wide as an index.
    """

    def __init__(self, builder: Builder, symbols: Mapping[str, SSAValue], element: builtin.IntegerType = builtin.i32) -> None:
        self.builder = builder
        self.symbols = dict(symbols)
        self.element = element

    def insert(self, op: Operation) -> SSAValue:
        """Insert an operation of one result and return that."""
        self.builder.insert(op)
        return op.results[0]

    def constant(self, value: int) -> SSAValue:
        """An index constant."""
        return self.insert(arith.ConstantOp(builtin.IntegerAttr(value, INDEX)))

    def static(self, value: SSAValue) -> int | None:
        """The value of an index constant, None for anything else."""
        return constant_value(value)

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A + b"""
        x, y = self.static(a), self.static(b)
        if x == 0:
            return b
        if y == 0:
            return a
        return self.constant(x + y) if x is not None and y is not None else self.insert(arith.AddiOp(a, b, result_type=INDEX))

    def multiply(self, a: SSAValue, factor: int) -> SSAValue:
        """A * factor"""
        x = self.static(a)
        if factor == 1:
            return a
        if factor == 0 or x is not None:
            return self.constant((x or 0) * factor)
        return self.insert(arith.MuliOp(a, self.constant(factor), result_type=INDEX))

    def divide(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A / b for non-negative values, rounded down."""
        x, y = self.static(a), self.static(b)
        if y == 1:
            return a
        return self.constant(x // y) if x is not None and y else self.insert(arith.DivUIOp(a, b))

    def remainder(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A % b for non-negative values."""
        x, y = self.static(a), self.static(b)
        if y == 1:
            return self.constant(0)
        return self.constant(x % y) if x is not None and y else self.insert(arith.RemUIOp(a, b))

    def minimum(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller of two."""
        x, y = self.static(a), self.static(b)
        return self.constant(min(x, y)) if x is not None and y is not None else self.insert(arith.MinSIOp(a, b))

    def subtract(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """A - b"""
        x, y = self.static(a), self.static(b)
        if y == 0:
            return a
        return self.constant(x - y) if x is not None and y is not None else self.insert(arith.SubiOp(a, b, result_type=INDEX))

    def product(self, values: Sequence[SSAValue]) -> SSAValue:
        """The product of the values; 1 if there are none."""
        result, factor = None, 1
        for value in values:
            if (known := self.static(value)) is not None:
                factor *= known
            else:
                result = value if result is None else self.insert(arith.MuliOp(result, value, result_type=INDEX))
        return self.constant(factor) if result is None else self.multiply(result, factor)

    def expression(self, expr: Expr) -> SSAValue:
        """A size expression over the kernel's symbols."""
        total: SSAValue | None = None
        for factors, coefficient in expr.terms:
            values: list[SSAValue] = []
            for atom in factors:
                if atom.kind == "symbol":
                    values.append(self.symbols[atom.name])
                    continue
                args = [self.expression(as_expr(a)) for a in atom.args]
                if atom.kind == "//":
                    values.append(self.divide(args[0], args[1]))
                elif atom.kind == "%":
                    values.append(self.remainder(args[0], args[1]))
                else:
                    op = arith.MinSIOp if atom.kind == "min" else arith.MaxSIOp
                    reduced = args[0]
                    for arg in args[1:]:
                        reduced = self.insert(op(reduced, arg))
                    values.append(reduced)
            term = self.multiply(self.product(values), coefficient) if values else self.constant(coefficient)
            total = term if total is None else self.add(total, term)
        return total if total is not None else self.constant(0)


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
