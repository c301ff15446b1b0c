"""What size expressions are products of: a symbol, a division, remainder, minimum or maximum of expressions, or the entry of a table of
numbers at an expression; and their text.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from treadle.plan.expr import Expr

Operator = Literal["//", "%", "min", "max"]
Kind = Literal["symbol", "table"] | Operator

ZERO_DIVISOR = 1 << 62
"""What `divisor` answers for 0, which every power of two divides."""


class Atom:
    """A factor of a product: a symbol (`name`, no args), an operation on `args`, or the entry of `values` at its only argument. `text` is
    its source and its sort key. Immutable.
    """

    __slots__ = ("args", "kind", "name", "text", "values")
    kind: Kind
    name: str
    args: "tuple[Expr, ...]"
    text: str
    values: tuple[int, ...]

    def __init__(self, kind: Kind, name: str, args: "tuple[Expr, ...]", text: str, values: tuple[int, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.args = args
        self.text = text
        self.values = values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Atom):
            return NotImplemented
        return (self.text, self.kind, self.name, self.args) == (other.text, other.kind, other.name, other.args)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Atom({self.text!r})"

    @property
    def is_call(self) -> bool:
        """True if the text needs no parentheses anywhere (symbol, table, min, max)."""
        return self.kind not in ("//", "%")

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under `env`. Raises KeyError for a symbol that is not in `env`, ZeroDivisionError, IndexError beyond a table."""
        if self.kind == "symbol":
            return env[self.name]
        values = [arg.evaluate(env) for arg in self.args]
        match self.kind:
            case "//":
                return values[0] // values[1]
            case "%":
                return values[0] % values[1]
            case "min":
                return min(values)
            case "max":
                return max(values)
            case "table":
                return self.values[values[0]]

    def divisor(self, facts: Mapping[str, int]) -> int:
        """A power of two known to divide the value."""
        match self.kind:
            case "symbol":
                return power_of_two(facts.get(self.name, 1))
            case "//":
                by = self.args[1].as_int()
                known = self.args[0].divisor(facts)
                return known // by if by is not None and by > 0 and by & (by - 1) == 0 and known % by == 0 else 1
            case "%" | "min" | "max":
                return min(arg.divisor(facts) for arg in self.args)
            case "table":
                return min(map(power_of_two, self.values))


Factors: TypeAlias = tuple[Atom, ...]


def power_of_two(value: int) -> int:
    """The largest power of two that divides `value`; `ZERO_DIVISOR` for 0."""
    return value & -value if value else ZERO_DIVISOR


def render(terms: Sequence[tuple[Factors, int]]) -> str:
    """A sum of products, given with their coefficients, in Python syntax; "" for none."""
    # Positive terms first, then negative ones; the constant closes its group.
    ordered = sorted(terms, key=lambda term: (term[1] < 0, not term[0]))
    text = ""
    for i, (factors, coefficient) in enumerate(ordered):
        sign = ("-" if i == 0 else " - ") if coefficient < 0 else ("" if i == 0 else " + ")
        text += sign + _render_product(factors, abs(coefficient), after_sign=i == 0 and coefficient < 0)
    return text


def _render_product(factors: Factors, coefficient: int, after_sign: bool) -> str:
    parts = [] if coefficient == 1 and factors else [str(coefficient)]
    for a in factors:
        # A leading quotient binds as it stands, except behind a sign: -a // b is (-a) // b.
        bare = a.is_call or (not parts and not after_sign)
        parts.append(a.text if bare else f"({a.text})")
    return " * ".join(parts)
