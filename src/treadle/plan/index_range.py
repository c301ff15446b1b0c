"""Which index values 32 bits hold: the limits, and upper bounds of all that the evaluation of a size expression passes through."""

from collections.abc import Iterable
from typing import Final

from treadle.plan.expr import Expr, constant
from treadle.plan.expr_atoms import Atom

INDEX_LIMIT: Final = (1 << 31) - 1
"""The largest index of 32 bits."""

HEADROOM: Final = 1 << 20
"""What code adds to sizes and counts of tiles: extents of tiles, steps of loops, stages ahead. No tile or grid stride is as large."""

SIZE_LIMIT: Final = INDEX_LIMIT - HEADROOM
"""The largest size, stride or count of tiles that 32-bit indices walk over."""

WIDE_LIMIT: Final = (1 << 63) - 1
"""The largest index of 64 bits, and the largest array in bytes."""


def peaks(expr: Expr) -> frozenset[Expr]:
    """Upper bounds of the magnitude of every value on the way to `expr`, for symbols that are not negative.

    Terms are products that are added one after the other: no partial sum is beyond the sum of all positive ones, or of all negative ones.
    """
    found: set[Expr] = set()
    for sign in (1, -1):
        part = Expr({factors: sign * c for factors, c in expr.terms if sign * c > 0})
        found.add(part)
    for factors, _ in expr.terms:
        for atom in factors:
            for argument in atom.args:
                found |= peaks(argument)
    return frozenset(found - {constant(0)})


def is_never_negative(expr: Expr) -> bool:
    """Whether an expression is known to be at least 0 wherever its symbols are."""
    return all(c > 0 and all(_atom_is_never_negative(atom) for atom in factors) for factors, c in expr.terms)


def _atom_is_never_negative(atom: Atom) -> bool:
    if atom.kind == "table":
        return min(atom.values) >= 0
    if atom.kind == "max":
        return any(is_never_negative(argument) for argument in atom.args)
    return atom.kind == "symbol" or all(is_never_negative(argument) for argument in atom.args)


def largest(values: Iterable[Expr]) -> tuple[Expr, ...]:
    """The values that no other one is known to bound from above, in a stable order; constants among them as one."""
    kept: list[Expr] = []
    for value in sorted(set(values), key=str):
        if any(is_never_negative(other - value) for other in kept):
            continue
        kept = [other for other in kept if not is_never_negative(value - other)]
        kept.append(value)
    return tuple(kept)
