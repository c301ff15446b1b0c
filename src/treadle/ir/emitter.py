"""Emitting operations one after the other, and arithmetic on indices that is folded where it is known."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from treadle.ir.builtin import IndexType, IntegerAttr
from treadle.ir.core import Block, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, tensor
from treadle.ir.locations import set_location
from treadle.ir.simplify import constant_index
from treadle.ir.tables import table_constant
from treadle.plan.expr import Expr, as_expr
from treadle.plan.expr_atoms import Factors

INDEX = IndexType()

Index: TypeAlias = SSAValue | int
"""An index as an operand of arithmetic: a value, or the number that it is."""
LONG_SUM = 64
"""Terms from which on a sum is added up in halves: those of a list of groups are as many as the groups, and what follows operations back to
what they are computed from would go as deep.
"""


class Emitter:
    """Inserts at a movable place. Operations without a location get that of `like`.

    `symbols`: the values of symbols in size expressions. Quotients and remainders are those of numbers that are not negative.
    """

    def __init__(self, builder: Builder, symbols: Mapping[str, SSAValue] | None = None, like: Operation | None = None) -> None:
        self.builder = builder
        self.symbols = dict(symbols or {})
        self.like = like

    def put(self, op: Operation) -> None:
        """Insert an operation."""
        if self.like is not None:
            set_location(op, self.like)
        self.builder.insert(op)

    def insert(self, op: Operation) -> SSAValue:
        """Insert an operation and return its first result."""
        self.put(op)
        return op.results[0]

    def constant(self, value: int) -> SSAValue:
        """An index constant."""
        return self.insert(arith.ConstantOp(IntegerAttr(value, INDEX)))

    def value(self, index: Index) -> SSAValue:
        """The index as a value."""
        return self.constant(index) if isinstance(index, int) else index

    def static(self, index: Index) -> int | None:
        """The number that an index is known to be, None where it is not."""
        return index if isinstance(index, int) else constant_index(index)

    def add(self, a: Index, b: Index) -> SSAValue:
        """A + b"""
        x, y = self.static(a), self.static(b)
        if x == 0:
            return self.value(b)
        if y == 0:
            return self.value(a)
        if x is not None and y is not None:
            return self.constant(x + y)
        return self.insert(arith.AddiOp(self.value(a), self.value(b), result_type=INDEX))

    def multiply(self, a: Index, factor: int) -> SSAValue:
        """A * factor"""
        x = self.static(a)
        if factor == 1:
            return self.value(a)
        if factor == 0 or x is not None:
            return self.constant((x or 0) * factor)
        return self.insert(arith.MuliOp(self.value(a), self.constant(factor), result_type=INDEX))

    def divide(self, a: Index, b: Index) -> SSAValue:
        """A / b for non-negative values, rounded down."""
        x, y = self.static(a), self.static(b)
        if y == 1:
            return self.value(a)
        return self.constant(x // y) if x is not None and y else self.insert(arith.DivUIOp(self.value(a), self.value(b)))

    def remainder(self, a: Index, b: Index) -> SSAValue:
        """A % b for non-negative values."""
        x, y = self.static(a), self.static(b)
        if y == 1:
            return self.constant(0)
        return self.constant(x % y) if x is not None and y else self.insert(arith.RemUIOp(self.value(a), self.value(b)))

    def minimum(self, a: Index, b: Index) -> SSAValue:
        """The smaller of two."""
        x, y = self.static(a), self.static(b)
        return self.constant(min(x, y)) if x is not None and y is not None else self.insert(arith.MinSIOp(self.value(a), self.value(b)))

    def subtract(self, a: Index, b: Index) -> SSAValue:
        """A - b"""
        x, y = self.static(a), self.static(b)
        if y == 0:
            return self.value(a)
        if x is not None and y is not None:
            return self.constant(x - y)
        return self.insert(arith.SubiOp(self.value(a), self.value(b), result_type=INDEX))

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
        """A size expression over the symbols."""
        return self._sum(expr.terms)

    def entry(self, values: Sequence[int], index: SSAValue) -> SSAValue:
        """The number of a table at an index."""
        return self.insert(tensor.ExtractOp(self.insert(table_constant(values)), [index], INDEX))

    def _sum(self, terms: Sequence[tuple[Factors, int]]) -> SSAValue:
        if len(terms) > LONG_SUM:
            half = len(terms) // 2
            return self.add(self._sum(terms[:half]), self._sum(terms[half:]))
        total: SSAValue | None = None
        for factors, coefficient in terms:
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
                elif atom.kind == "table":
                    values.append(self.entry(atom.values, args[0]))
                else:
                    op = arith.MinSIOp if atom.kind == "min" else arith.MaxSIOp
                    reduced = args[0]
                    for arg in args[1:]:
                        reduced = self.insert(op(reduced, arg))
                    values.append(reduced)
            term = self.multiply(self.product(values), coefficient) if values else self.constant(coefficient)
            total = term if total is None else self.add(total, term)
        return total if total is not None else self.constant(0)


def before(anchor: Operation, symbols: Mapping[str, SSAValue] | None = None) -> Emitter:
    """Emits in front of an operation, at its location."""
    return Emitter(Builder(InsertPoint.before(anchor)), symbols, like=anchor)


def at_end(block: Block, symbols: Mapping[str, SSAValue] | None = None) -> Emitter:
    """Emits at the end of a block."""
    return Emitter(Builder(InsertPoint.at_end(block)), symbols)


def at_start(block: Block) -> Emitter:
    """Emits at the start of a block."""
    return Emitter(Builder(InsertPoint.at_start(block)))
