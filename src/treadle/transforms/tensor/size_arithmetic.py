"""Size expressions as `arith` operations on the index arguments of a kernel."""

from collections.abc import Mapping

from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import Atom, Expr


class SizeEmitter:
    """Appends to `block` what computes expressions from `symbols`; equal expressions are computed once.

    Sizes are not negative, so floor division and remainder are the signed operations on index.
    """

    def __init__(self, block: Block, symbols: Mapping[str, SSAValue]) -> None:
        self.block = block
        self.symbols = symbols
        self._made: dict[str, SSAValue] = {}

    def emit(self, size: Expr) -> SSAValue:
        """The value of `size`."""
        text = str(size)
        if text not in self._made:
            self._made[text] = self._emit(size)
        return self._made[text]

    def _emit(self, size: Expr) -> SSAValue:
        if (number := size.as_int()) is not None:
            return self._add(arith.ConstantOp(builtin.IntegerAttr(number, builtin.IndexType())))
        total: SSAValue | None = None
        for factors, coefficient in size.terms:
            term: SSAValue | None = None
            for atom in factors:
                value = self._atom(atom)
                term = value if term is None else self._add(arith.MuliOp(term, value))
            if term is None or coefficient != 1:
                number_value = self._add(arith.ConstantOp(builtin.IntegerAttr(coefficient, builtin.IndexType())))
                term = number_value if term is None else self._add(arith.MuliOp(term, number_value))
            total = term if total is None else self._add(arith.AddiOp(total, term))
        if total is None:
            raise InternalError(f"empty expression {size}")
        return total

    def _atom(self, atom: Atom) -> SSAValue:
        if atom.kind == "symbol":
            return self.symbols[atom.name]
        values = [self.emit(arg) for arg in atom.args]
        operations = {"//": arith.FloorDivSIOp, "%": arith.RemSIOp, "min": arith.MinSIOp, "max": arith.MaxSIOp}
        result = values[0]
        for value in values[1:]:
            result = self._add(operations[atom.kind](result, value))
        return result

    def _add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]
