"""PyTorch's symbolic sizes as index values: each symbol is the size of an axis of an argument."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import sympy

from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.ir.emitter import Index
from treadle.ir.tensors import TensorEmitter
from treadle.torch.unsupported import Unsupported

Size: TypeAlias = "int | sympy.Expr"
"""A number, or PyTorch's expression over symbols that are not negative."""


def size_of(given: Any) -> Size:
    """A size or number as PyTorch's nodes hold it: an int, or a `SymInt`. Raises Unsupported for anything else."""
    if isinstance(given, int):
        return given
    node = getattr(given, "node", None)
    if node is None:
        raise Unsupported(f"'{given}' is no size")
    expr: Any = sympy.sympify(node.expr).replace(_is_quotient, _divided)
    return int(expr) if expr.is_Integer else expr


def _is_quotient(part: Any) -> bool:
    return type(part).__name__ in _QUOTIENTS


def _divided(part: Any) -> Any:
    """A quotient that leaves nothing over, whatever the symbols are, without the division: axes of one size make `s**2 // s`."""
    found = sympy.cancel(part.args[0] / part.args[1])
    return found if found.as_numer_denom()[1] == 1 else part


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are one whatever the symbols are."""
    return a == b or sympy.simplify(sympy.sympify(a) - sympy.sympify(b)) == 0


def equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are one whatever the symbols are."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def product(sizes: "list[Size] | tuple[Size, ...]") -> Size:
    """The product; 1 of none."""
    found = sympy.Integer(1)
    for size in sizes:
        found = found * size
    return int(found) if found.is_Integer else found


def in_terms_of(size: sympy.Expr, known: Iterable[sympy.Expr]) -> tuple[sympy.Expr, dict[sympy.Symbol, sympy.Expr]]:
    """A size with symbols of its own in place of what known sizes hold, `2 * x` for `2 * (s // 2) + 2` where `s // 2 + 1` is known; and
    which of them each stands for.
    """
    places: dict[sympy.Symbol, sympy.Expr] = {}
    for found in known:
        constant, rest = found.as_coeff_Add()
        if rest.is_Symbol or not size.has(rest):
            continue
        place = sympy.Dummy(integer=True, nonnegative=True)
        size = sympy.expand(size.subs(rest, place - constant))
        places[place] = found
    return size, places


_QUOTIENTS: Final = ("FloorDiv", "CleanDiv")
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
