"""Entries of tables as size expressions: numbers that differ from block to block, such as where the groups of a list begin.

The text is Python's, `(0, 611, 1635)[p0]`. However many numbers there are, the expression is one atom.
"""

from collections.abc import Sequence

from treadle.errors import InternalError
from treadle.plan.expr import Expr, constant, of_atom
from treadle.plan.expr_atoms import Atom, render


def entry(values: Sequence[int], index: Expr) -> Expr:
    """The number of `values` at `index`, which is never outside; a product and a sum where the numbers rise evenly."""
    if not values:
        raise InternalError("an entry of an empty table")
    if (place := index.as_int()) is not None:
        if not 0 <= place < len(values):
            raise InternalError(f"entry {place} of a table of {len(values)} numbers")
        return constant(values[place])
    first, step = values[0], values[1] - values[0] if len(values) > 1 else 0
    if all(value == first + step * at for at, value in enumerate(values)):
        return index * step + first
    return of_atom(Atom("table", "", (index,), f"({', '.join(map(str, values))})[{index}]", tuple(values)))


def shortened(value: Expr, entries: int = 8) -> str:
    """The text of an expression for people, long tables with their first entries alone."""

    def changed(atom: Atom) -> Expr:
        if atom.kind != "table" or len(atom.values) <= entries:
            return of_atom(atom)
        text = f"({', '.join(map(str, atom.values[:entries]))}, .. {len(atom.values)} numbers)[{atom.args[0]}]"
        return of_atom(Atom("table", "", atom.args, text, atom.values))

    # Not `str`, which would remember the text as one to be read.
    return render(value.rebuilt(changed).terms) or "0"
