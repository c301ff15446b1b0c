"""Sizes as index values: those of the arguments' axes, and what is computed from them."""

from typing import Final

import sympy

from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.ir.emitter import Index
from treadle.ir.tensors import TensorEmitter
from treadle.torch.sizes import Size, in_terms_of
from treadle.torch.unsupported import Unsupported

_BINARY: Final = {"FloorDiv": arith.DivUIOp, "Mod": arith.RemUIOp, "PythonMod": arith.RemUIOp, "CleanDiv": arith.DivUIOp}
_EXTREMA: Final = {"Max": arith.MaxSIOp, "Min": arith.MinSIOp}


class SizeValues:
    """Index values of sizes. `learn` says which sizes arguments have; every other one is computed from those."""

    def __init__(self, emit: TensorEmitter) -> None:
        self._emit = emit
        self._known: dict[sympy.Expr, SSAValue] = {}
        self._places: dict[sympy.Expr, tuple[SSAValue, int]] = {}

    def learn(self, size: Size, value: SSAValue, axis: int) -> None:
        """`size` is that of an axis of a tensor."""
        if not isinstance(size, int):
            self._places.setdefault(size, (value, axis))

    def index(self, size: Size) -> Index:
        """A size as an index. Raises Unsupported where no argument tells it."""
        if isinstance(size, int):
            return size
        if size not in self._known:
            self._known[size] = self._computed(size)
        return self._known[size]

    def _computed(self, size: sympy.Expr) -> SSAValue:
        emit = self._emit
        if size in self._places:
            value, axis = self._places[size]
            return emit.value(emit.size(value, axis))
        if size.is_Integer:
            return emit.constant(int(size))
        if not all(symbol in self._places or symbol in self._known for symbol in size.free_symbols):
            size, stand_ins = in_terms_of(size, self._places)
            self._known.update({symbol: emit.value(self.index(found)) for symbol, found in stand_ins.items()})
            if size in self._known:
                return self._known[size]
        if size.is_Symbol:
            return self._solved(size)
        if size.is_Pow and size.exp.is_Integer and size.exp > 0:
            return emit.product([emit.value(self.index(size.base))] * int(size.exp))
        kind = type(size).__name__
        if size.is_Add or size.is_Mul or kind in _BINARY or kind in _EXTREMA:
            return self._folded(kind, [emit.value(self.index(arg)) for arg in size.args])
        raise Unsupported(f"the size {size} cannot be computed")

    def _folded(self, kind: str, values: list[SSAValue]) -> SSAValue:
        found, emit = values[0], self._emit
        for value in values[1:]:
            if kind == "Add":
                found = emit.add(found, value)
            elif kind == "Mul":
                found = emit.product([found, value])
            elif kind in _BINARY:
                found = emit.insert(_BINARY[kind](found, value))
            else:
                found = emit.insert(_EXTREMA[kind](found, value))
        return found

    def _solved(self, symbol: sympy.Expr) -> SSAValue:
        """A symbol that only products of sizes hold: the quotient of one and its other factors."""
        for size, (value, axis) in self._places.items():
            rest = size / symbol
            if size.is_Mul and symbol not in rest.free_symbols and all(s in self._places for s in rest.free_symbols):
                whole = self._emit.value(self._emit.size(value, axis))
                return self._emit.insert(arith.DivUIOp(whole, self._emit.value(self.index(rest))))
        raise Unsupported(f"no argument has the size {symbol}")
