"""The least value of a size expression over all blocks: what must hold of one block must hold of each.

A block index runs from 0 to its extent - 1. Where all extents are numbers and few, every block is looked at. Else sums are moved into the
`min` and `max` around which they stand, and what only grows or only falls along a block index is least at one of its ends.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from itertools import product as cartesian
from math import prod
from typing import Final, Literal

from treadle.plan.expr import Expr, compile_tuple, constant, maximum, minimum, of_atom, remade
from treadle.plan.expr import symbol as symbol_of
from treadle.plan.expr_atoms import Atom
from treadle.plan.index_range import is_never_negative

MOST_BLOCKS: Final = 1 << 16
"""So many blocks are looked at one by one."""

Trend = Literal["constant", "rising", "falling", "linear", "unknown"]


def least(value: Expr, extents: Mapping[str, Expr]) -> list[Expr] | None:
    """Expressions without block indices the smallest of which is at most `value` in every block; None where that cannot be told.

    `extents`: of each block index, how many values it has. Where there is no block at all what is found may be below any value.
    """
    if (values := _in_all(value, extents)) is not None:
        return [constant(min(values, default=0))]
    names = sorted(value.symbols() & extents.keys())
    return _least_along(spread(value), names, extents) if names else [value]


def greatest(value: Expr, extents: Mapping[str, Expr]) -> list[Expr] | None:
    """Expressions without block indices the largest of which is at least `value` in every block; None where that cannot be told."""
    if (values := _in_all(value, extents)) is not None:
        return [constant(max(values, default=0))]
    found = least(-value, extents)
    return None if found is None else [-each for each in found]


def _in_all(value: Expr, extents: Mapping[str, Expr]) -> tuple[int, ...] | None:
    """The values of an expression of block indices in all blocks; None where these are not known, or too many."""
    names = tuple(sorted(value.symbols()))
    sizes = [extents[name].as_int() if name in extents else None for name in names]
    known = tuple([size for size in sizes if size is not None])
    return values_in(value, names, known) if 0 < len(names) == len(known) and prod(known) <= MOST_BLOCKS else None


@lru_cache(maxsize=1024)
def values_in(value: Expr, names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """An expression's values in all blocks. A kernel's parts are asked about by each form: to compile an expression takes longer than to
    look it up.
    """
    evaluate = compile_tuple([value], names)
    return tuple([evaluate(*place)[0] for place in cartesian(*(range(size) for size in sizes))])


def _least_along(value: Expr, names: list[str], extents: Mapping[str, Expr]) -> list[Expr] | None:
    if not names:
        return [value]
    atom = sole_extremum(value)
    if atom is not None and atom.kind == "min":
        parts = [_least_along(arm, [n for n in names if n in arm.symbols()], extents) for arm in atom.args]
        return None if any(part is None for part in parts) else [each for part in parts if part is not None for each in part]
    name, rest = names[0], names[1:]
    last = maximum(extents[name] - 1, 0)
    match trend(value, name):
        case "constant":
            return _least_along(value, rest, extents)
        case "rising":
            ends = [constant(0)]
        case "falling":
            ends = [last]
        case "linear":
            ends = [constant(0), last]
        case _:
            return _least_of_one(atom, names, extents)
    found = [_least_along(spread(value.substitute({name: end})), rest, extents) for end in ends]
    return None if any(part is None for part in found) else [each for part in found if part is not None for each in part]


def _least_of_one(atom: Atom | None, names: list[str], extents: Mapping[str, Expr]) -> list[Expr] | None:
    """A maximum is at least what any one of its arguments is."""
    for arm in atom.args if atom is not None and atom.kind == "max" else ():
        if (found := _least_along(arm, [n for n in names if n in arm.symbols()], extents)) is not None:
            return found
    return None


def of_the_launch(value: Expr, blocks: Collection[str], known: dict[Expr, Expr], name: Callable[[], str]) -> Expr:
    """The expression with every quotient, remainder, minimum and maximum that is the same in all blocks replaced by a symbol.

    `known`: the symbols so far, to which new ones, called `name()`, are added.
    """

    def settled(atom: Atom) -> Expr:
        whole = of_atom(atom)
        if atom.kind == "symbol":
            return whole
        if any(symbol in blocks for symbol in whole.symbols()):
            return remade(atom, [of_the_launch(argument, blocks, known, name) for argument in atom.args])
        if whole not in known:
            known[whole] = symbol_of(name())
        return known[whole]

    return value.rebuilt(settled)


def sole_extremum(value: Expr) -> Atom | None:
    """The `min` or `max` that an expression is; None for any other."""
    atom = value.sole_atom
    return atom if atom is not None and atom.kind in ("min", "max") else None


@lru_cache(maxsize=1024)
def spread(value: Expr) -> Expr:
    """The same value with what is added to a `min` or `max` moved into it, one after the other, where it stands alone in its term."""
    for factors, coefficient in value.terms:
        if len(factors) == 1 and factors[0].kind in ("min", "max") and abs(coefficient) == 1:
            atom = factors[0]
            others = value - Expr({factors: coefficient})
            arms = [spread(others + argument * coefficient) for argument in atom.args]
            return minimum(*arms) if (atom.kind == "min") == (coefficient == 1) else maximum(*arms)
    return value


def trend(value: Expr, name: str) -> Trend:
    """How an expression changes as one symbol grows, whatever the others are (none is negative)."""
    if name not in value.symbols():
        return "constant"
    if (atom := sole_extremum(value)) is not None:
        return _common([trend(argument, name) for argument in atom.args])
    slope = constant(0)
    others: list[Trend] = []
    for factors, coefficient in value.terms:
        within = [factor for factor in factors if name in of_atom(factor).symbols()]
        if not within:
            continue
        rest = Expr({tuple(factor for factor in factors if factor not in within): coefficient})
        if len(within) > 1 or not (is_never_negative(rest) or is_never_negative(-rest)):
            return "unknown"
        if within[0].kind == "symbol":
            slope = slope + rest
        else:
            others.append(_turned(_atom_trend(within[0], name), falls=not is_never_negative(rest)))
    if slope != constant(0):
        others.append("rising" if is_never_negative(slope) else "falling" if is_never_negative(-slope) else "linear")
    return _common(others)


def _atom_trend(atom: Atom, name: str) -> Trend:
    if atom.kind in ("min", "max"):
        return _common([trend(argument, name) for argument in atom.args])
    if atom.kind == "//" and name not in atom.args[1].symbols() and is_never_negative(atom.args[1]):
        found = trend(atom.args[0], name)
        return found if found in ("rising", "falling", "constant") else "unknown"
    return "unknown"


def _turned(found: Trend, *, falls: bool) -> Trend:
    turned: dict[Trend, Trend] = {"rising": "falling", "falling": "rising"}
    return turned.get(found, found) if falls else found


def _common(found: list[Trend]) -> Trend:
    moving = {each for each in found if each != "constant"}
    if not moving:
        return "constant"
    if len(moving) == 1 and (only := moving.pop()) in ("rising", "falling"):
        return only
    return "linear" if found == ["linear"] else "unknown"


@lru_cache(maxsize=1024)
def in_whole_steps(size: Expr, rest: Expr, step: int) -> bool:
    """Whether walking `size` elements in steps of so many never goes beyond them, unless it goes beyond the `rest` of the array too."""
    size = spread(size)
    if (atom := sole_extremum(size)) is not None:
        return all(in_whole_steps(argument, rest, step) for argument in atom.args)
    return size == spread(rest) or all(c * prod(a.divisor({}) for a in factors) % step == 0 for factors, c in size.terms)
