"""Integer size expressions over named symbols, in Python syntax.

An `Expr` is kept in a canonical form: a sum of integer-weighted products of *atoms*, where an atom is a symbol or one of `//`, `%`, `min`,
`max` over expressions. Two expressions that are equal as polynomials over their atoms are therefore equal objects, `s0*s1 - s1*s0` is 0,
and `parse(str(e)) == e`. Division and remainder are Python's (rounding towards minus infinity). Folding never makes an expression mean
something else, with one exception on purpose: `(a * s) // s` is `a` although the original would divide by zero at s = 0.
"""

import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, Self, TypeAlias

from treadle.errors import InternalError
from treadle.plan.expr_atoms import ZERO_DIVISOR, Atom, Factors, Operator, power_of_two, render
from treadle.plan.expr_texts import recalled, remember

ExprLike: TypeAlias = "Expr | int"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DIGITS = re.compile(r"(0|[1-9][0-9]{0,18})\Z")
_ONE: Final[tuple[tuple[Factors, int], ...]] = (((), 1),)


class Expr:
    """An immutable integer expression; build with `symbol`, `constant`, `parse` and operators.

    Expressions compare and hash by value (a constant equals its `int`). There is no truth value and no order: both would need the symbols.
    """

    __slots__ = ("_hash", "_symbols", "_text", "terms")
    terms: tuple[tuple[Factors, int], ...]
    """Pairs (product of atoms, non-zero coefficient), sorted by the product's text; the empty product is the constant part."""
    _hash: int
    _symbols: frozenset[str] | None
    _text: str | None

    def __init__(self, terms: Mapping[Factors, int]) -> None:
        ordered = [(f, c) for f, c in terms.items() if c]
        if len(ordered) > 1:
            ordered.sort(key=_text_of_term)
        object.__setattr__(self, "terms", tuple(ordered))
        value = self.as_int()
        object.__setattr__(self, "_hash", hash(self.terms) if value is None else hash(value))
        object.__setattr__(self, "_symbols", None)
        object.__setattr__(self, "_text", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Expr is immutable ({name})")

    def __reduce__(self) -> tuple[Callable[[str], "Expr"], tuple[str]]:
        return parse, (str(self),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def as_int(self) -> int | None:
        """The value if this is a constant, else None."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_constant(self) -> bool:
        """True if no symbol is left."""
        return self.as_int() is not None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr):
            return self.terms == other.terms
        return isinstance(other, int) and self.as_int() == other

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError("a size expression has no truth value; compare it with ==")

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __str__(self) -> str:
        if self._text is None:
            object.__setattr__(self, "_text", text := render(self.terms) or "0")
            remember(text, self)
        return self._text or "0"

    # operators

    def __add__(self, other: ExprLike) -> "Expr":
        right = as_expr(other)
        if not right.terms or not self.terms:
            return right if right.terms else self
        terms = dict(self.terms)
        for factors, coefficient in right.terms:
            terms[factors] = terms.get(factors, 0) + coefficient
        return Expr(terms)

    def __radd__(self, other: int) -> "Expr":
        return self + other

    def __neg__(self) -> "Expr":
        return Expr({f: -c for f, c in self.terms})

    def __sub__(self, other: ExprLike) -> "Expr":
        return self + -as_expr(other)

    def __rsub__(self, other: int) -> "Expr":
        return constant(other) - self

    def __mul__(self, other: ExprLike) -> "Expr":
        right = as_expr(other)
        if right.terms == _ONE:
            return self
        if self.terms == _ONE:
            return right
        terms: dict[Factors, int] = {}
        for fa, ca in self.terms:
            for fb, cb in right.terms:
                factors = tuple(sorted(fa + fb, key=lambda a: a.text)) if fa and fb else fa or fb
                terms[factors] = terms.get(factors, 0) + ca * cb
        return Expr(terms)

    def __rmul__(self, other: int) -> "Expr":
        return self * other

    def __floordiv__(self, other: ExprLike) -> "Expr":
        return _floor_div(self, as_expr(other))

    def __rfloordiv__(self, other: int) -> "Expr":
        return _floor_div(constant(other), self)

    def __mod__(self, other: ExprLike) -> "Expr":
        return _modulo(self, as_expr(other))

    def __rmod__(self, other: int) -> "Expr":
        return _modulo(constant(other), self)

    # queries

    def symbols(self) -> frozenset[str]:
        """Names of all symbols in the expression."""
        found = self._symbols
        if found is None:
            atoms = [atom for factors, _ in self.terms for atom in factors]
            own = frozenset(atom.name for atom in atoms if atom.kind == "symbol")
            found = own.union(*(argument.symbols() for atom in atoms for argument in atom.args))
            object.__setattr__(self, "_symbols", found)
        return found

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under `env`. Raises KeyError for a symbol that is not in `env` and ZeroDivisionError."""
        return sum(c * math.prod(a.evaluate(env) for a in f) for f, c in self.terms)

    def substitute(self, mapping: Mapping[str, ExprLike]) -> "Expr":
        """The expression with symbols replaced (all at once); symbols that are not in `mapping` stay."""

        def replaced(atom: Atom) -> Expr:
            if atom.kind == "symbol":
                return as_expr(mapping[atom.name]) if atom.name in mapping else of_atom(atom)
            return remade(atom, [arg.substitute(mapping) for arg in atom.args])

        return self.rebuilt(replaced)

    def rebuilt(self, change: Callable[[Atom], "Expr"]) -> "Expr":
        """The expression with every factor of its terms replaced by what `change` makes of it."""
        total = constant(0)
        for factors, coefficient in self.terms:
            term = constant(coefficient)
            for atom in factors:
                term = term * change(atom)
            total = total + term
        return total

    @property
    def sole_atom(self) -> Atom | None:
        """The symbol or operation that the expression is; None for sums, products and constants."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    def divisor(self, facts: Mapping[str, int] | None = None) -> int:
        """Largest power of two known to divide the value; `facts` gives divisors of symbols (default 1). 0 answers `ZERO_DIVISOR`."""
        if not self.terms:
            return ZERO_DIVISOR
        return min(power_of_two(c) * math.prod(a.divisor(facts or {}) for a in f) for f, c in self.terms)


def _text_of_term(term: tuple[Factors, int]) -> tuple[str, ...]:
    return tuple([atom.text for atom in term[0]])


@lru_cache(4096)
def constant(value: int) -> Expr:
    """The expression that is the number `value`."""
    return Expr({(): int(value)})


def symbol(name: str) -> Expr:
    """The expression that is the symbol `name` (a Python identifier other than `min` and `max`)."""
    if not _NAME.match(name) or keyword.iskeyword(name) or name in ("min", "max"):
        raise InternalError(f"'{name}' cannot name a size")
    return of_atom(Atom("symbol", name, (), name))


def as_expr(value: "ExprLike | str") -> Expr:
    """`value` as an expression: an `Expr` as it is, an int as a constant, a string parsed."""
    if isinstance(value, Expr):
        return value
    return parse(value) if isinstance(value, str) else constant(value)


def of_atom(atom: Atom) -> Expr:
    """The expression that is one symbol or operation."""
    return Expr({(atom,): 1})


def remade(atom: Atom, args: Sequence[Expr]) -> Expr:
    """The operation that an atom is, on other expressions, folded."""
    if atom.kind == "min" or atom.kind == "max":
        return _extremum(atom.kind, args)
    if atom.kind == "table":
        from treadle.plan.expr_tables import entry

        return entry(atom.values, args[0])
    return args[0] // args[1] if atom.kind == "//" else args[0] % args[1]


def ceil_div(a: ExprLike, b: ExprLike) -> Expr:
    """`a / b` rounded up, for b > 0."""
    return (as_expr(a) + as_expr(b) - 1) // b


def minimum(*values: ExprLike) -> Expr:
    """The smallest of one or more values."""
    return _extremum("min", values)


def maximum(*values: ExprLike) -> Expr:
    """The largest of one or more values."""
    return _extremum("max", values)


def product(values: Iterable[ExprLike]) -> Expr:
    """The product of the values; 1 if there are none."""
    result = constant(1)
    for value in values:
        result = result * value
    return result


def compile_tuple(values: Iterable[ExprLike], symbols: Iterable[str]) -> Callable[..., tuple[int, ...]]:
    """A Python function of the symbols (positional, in the order given) that returns all values as a tuple."""
    texts = [str(as_expr(v)) for v in values]
    # The text is printed from the canonical form, so it holds nothing but numbers, symbols and the six operations.
    source = f"lambda {', '.join(symbols)}: ({''.join(text + ', ' for text in texts)})"
    return eval(source, {"__builtins__": {}, "min": min, "max": max})


# folding


def _opaque(kind: Operator, args: tuple[Expr, ...]) -> Expr:
    if kind in ("min", "max"):
        text = f"{kind}({', '.join(map(str, args))})"
    else:
        left, right = args
        left_text = f"({left})" if len(left.terms) > 1 else str(left)
        simple = right.is_constant or (len(right.terms) == 1 and str(right) == right.terms[0][0][0].text and right.terms[0][0][0].is_call)
        text = f"{left_text} {kind} {right if simple and (right.as_int() or 0) >= 0 else f'({right})'}"
    return of_atom(Atom(kind, "", args, text))


def _split(a: Expr, divisor: int) -> tuple[dict[Factors, int], dict[Factors, int]]:
    """`a` as `divisor * q + r`: whole terms that divide go to q, the constant is split with 0 <= constant of r < divisor."""
    quotient: dict[Factors, int] = {}
    rest: dict[Factors, int] = {}
    for factors, coefficient in a.terms:
        if not factors or coefficient % divisor == 0:
            quotient[factors] = coefficient // divisor
            rest[factors] = coefficient % divisor
        else:
            rest[factors] = coefficient
    return quotient, rest


def _floor_div(a: Expr, b: Expr) -> Expr:
    divisor = b.as_int()
    if divisor is None:
        exact = _divide_exactly(a, b)
        return _opaque("//", (a, b)) if exact is None else exact
    if divisor < 0:
        return _floor_div(-a, constant(-divisor))
    if divisor == 0:
        raise ZeroDivisionError(f"({a}) // 0")
    quotient, rest = _split(a, divisor)
    remainder = Expr(rest)
    if remainder.is_constant:  # 0 <= constant < divisor
        return Expr(quotient)
    # floor(n / (g * d)) = floor(floor(n / g) / d), and g divides every coefficient but the constant one.
    common = math.gcd(divisor, *(c for f, c in remainder.terms if f))
    if common > 1:
        reduced = Expr({f: c // common for f, c in remainder.terms})
        return Expr(quotient) + _floor_div(reduced, constant(divisor // common))
    atom = remainder.sole_atom
    if atom is not None and atom.kind in ("//", "%"):
        inner = atom.args[1].as_int()
        if atom.kind == "//" and inner is not None:
            return Expr(quotient) + _floor_div(atom.args[0], constant(inner * divisor))
        if atom.kind == "%" and inner is not None and inner <= divisor:
            return Expr(quotient)
    return Expr(quotient) + _opaque("//", (remainder, constant(divisor)))


def _divide_exactly(a: Expr, b: Expr) -> Expr | None:
    """`a / b` where b is one product and divides every term of a; None where it does not."""
    if a.terms == b.terms:
        return constant(1)
    if len(b.terms) != 1 or not a.terms:
        return None if a.terms else a
    b_factors, b_coefficient = b.terms[0]
    terms: dict[Factors, int] = {}
    for factors, coefficient in a.terms:
        left = list(factors)
        for factor in b_factors:
            if factor not in left:
                return None
            left.remove(factor)
        if coefficient % b_coefficient:
            return None
        terms[tuple(left)] = coefficient // b_coefficient
    return Expr(terms)


def _modulo(a: Expr, b: Expr) -> Expr:
    divisor = b.as_int()
    if divisor is None:
        return constant(0) if _divide_exactly(a, b) is not None else _opaque("%", (a, b))
    if divisor < 0:
        return -_modulo(-a, constant(-divisor))
    if divisor == 0:
        raise ZeroDivisionError(f"({a}) % 0")
    remainder = Expr({f: c % divisor for f, c in a.terms})
    value = remainder.as_int()
    if value is not None:
        return constant(value)
    common = math.gcd(divisor, *(c for _, c in remainder.terms))
    if common > 1:
        reduced = Expr({f: c // common for f, c in remainder.terms})
        return _modulo(reduced, constant(divisor // common)) * common
    atom = remainder.sole_atom
    if atom is not None and atom.kind == "%" and (inner := atom.args[1].as_int()) is not None:
        if inner <= divisor:
            return remainder
        if inner % divisor == 0:
            return _modulo(atom.args[0], b)
    return _opaque("%", (remainder, b))


def _extremum(kind: Literal["min", "max"], values: Iterable[ExprLike]) -> Expr:
    kept: list[Expr] = []
    pending = [as_expr(v) for v in values]
    if not pending:
        raise InternalError(f"{kind} of nothing")
    while pending:
        value = pending.pop()
        atom = value.sole_atom
        if atom is not None and atom.kind == kind:
            pending.extend(atom.args)
            continue
        for i, other in enumerate(kept):
            gap = (value - other).as_int()
            if gap is not None:  # comparable: keep the one that wins
                if (gap < 0) == (kind == "min"):
                    kept[i] = value
                break
        else:
            kept.append(value)
    if len(kept) == 1:
        return kept[0]
    return _opaque(kind, tuple(sorted(kept, key=str)))


def parse(text: str) -> Expr:
    """Read an expression: integers, names, `+ - * // %`, `min(..)`, `max(..)`, parentheses. Raises `TreadleError` TR103 otherwise."""
    if (found := recalled(text)) is None:
        remember(text, found := constant(int(text)) if _DIGITS.match(text) else _read(text))
    return found


def _read(text: str) -> Expr:
    from treadle.plan.expr_parser import read

    return read(text)
