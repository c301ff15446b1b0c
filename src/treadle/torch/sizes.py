"""PyTorch's symbolic sizes as expressions: each symbol is the size of an axis of an argument."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import sympy

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
