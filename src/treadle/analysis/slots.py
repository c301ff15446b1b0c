"""Symbolic slots of multi-buffered memory: what is known of an index value, and whether two of them name the same slot. Pure.

An index is known as a *congruence*: it equals a linear form over atoms modulo some number. That is closed under what slot arithmetic is
made of: `(i + c) mod n`, wrapping by compare and select (both arms are congruent modulo n), parities, rotation of carried slots. (The
domain is that of Granger, "Static analysis of arithmetical congruences", 1989, with linear forms in place of constants.)
"""

from collections.abc import Callable, Hashable, Iterable
from math import gcd
from typing import Literal

from treadle.records import dataclass

Atom = Hashable
"""What a form is linear in: an SSA value, the number of an iteration, a quotient."""
Sameness = Literal["never", "always", "maybe"]


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant` + sum of coefficient * atom; no coefficient is zero."""

    constant: int = 0
    terms: frozenset[tuple[Atom, int]] = frozenset()

    def __add__(self, other: "Linear") -> "Linear":
        return _linear(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: "Linear") -> "Linear":
        return self + other * -1

    def __mul__(self, factor: int) -> "Linear":
        return _linear(self.constant * factor, ((atom, c * factor) for atom, c in self.terms))

    @property
    def is_constant(self) -> bool:
        """No atoms."""
        return not self.terms

    def coefficient(self, atom: Atom) -> int:
        """Of an atom, 0 where it does not occur."""
        return next((c for a, c in self.terms if a == atom), 0)

    def divided(self, divisor: int) -> "Linear":
        """The floor of this over a positive constant: multiples of it are pulled out, the rest becomes one atom."""
        whole = [(atom, c // divisor) for atom, c in self.terms if c % divisor == 0]
        rest = [(atom, c) for atom, c in self.terms if c % divisor]
        quotient, remainder = divmod(self.constant, divisor)
        if rest:
            whole.append((Quotient(_linear(remainder, rest), divisor), 1))
        return _linear(quotient, whole)


def _linear(constant: int, terms: Iterable[tuple[Atom, int]]) -> Linear:
    total: dict[Atom, int] = {}
    for atom, coefficient in terms:
        total[atom] = total.get(atom, 0) + coefficient
    return Linear(constant, frozenset((atom, c) for atom, c in total.items() if c))


def atom(of: Atom) -> Linear:
    """The form that is one atom."""
    return Linear(0, frozenset({(of, 1)}))


@dataclass(frozen=True, slots=True)
class Quotient:
    """An atom: the floor of a form over a constant."""

    numerator: Linear
    divisor: int


@dataclass(frozen=True, slots=True)
class Congruence:
    """A value equal to `form` modulo `modulus` (0: equal; 1: nothing is known); with `bound`, 0 <= value < bound."""

    form: Linear
    modulus: int = 0
    bound: int = 0

    @property
    def constant(self) -> int | None:
        """The value, where it is known."""
        if not self.form.is_constant:
            return None
        if not self.modulus:
            return self.form.constant
        return self.form.constant % self.modulus if 0 < self.bound <= self.modulus else None

    def __add__(self, other: "Congruence") -> "Congruence":
        return congruence(self.form + other.form, gcd(self.modulus, other.modulus))

    def __sub__(self, other: "Congruence") -> "Congruence":
        return congruence(self.form - other.form, gcd(self.modulus, other.modulus))

    def scaled(self, factor: int) -> "Congruence":
        """Times a constant."""
        return congruence(self.form * factor, self.modulus * abs(factor))

    def remainder(self, divisor: int) -> "Congruence":
        """Modulo a positive constant."""
        if (known := self.constant) is not None:
            return Congruence(Linear(known % divisor))
        return congruence(self.form, gcd(self.modulus, divisor), divisor)

    def quotient(self, divisor: int) -> "Congruence":
        """The floor over a positive constant."""
        if self.modulus % divisor == 0 and (not self.modulus or _splits(self.form, divisor)):
            return congruence(self.form.divided(divisor), self.modulus // divisor)
        return UNKNOWN

    def either(self, other: "Congruence") -> "Congruence":
        """What is known of a value that is one of the two."""
        difference = self.form - other.form
        modulus = gcd(self.modulus, other.modulus, difference.constant, *(c for _, c in difference.terms))
        bound = max(self.bound, other.bound) if self.bound and other.bound else 0
        return congruence(self.form, modulus, bound)

    def within(self, extent: int) -> "Congruence":
        """The same as an index into `extent` slots: a valid one is less, so that it is determined by its residue."""
        if self.modulus and 0 < self.bound <= extent:
            return self
        return congruence(self.form, self.modulus or extent, min(self.bound or extent, extent))

    def substitute(self, change: Callable[[Atom], "Congruence"]) -> "Congruence":
        """With every atom replaced by what is known of it."""
        value = Congruence(Linear(self.form.constant))
        for a, coefficient in self.form.terms:
            if isinstance(a, Quotient):
                inner = Congruence(a.numerator).substitute(change).quotient(a.divisor)
            else:
                inner = change(a)
            value = value + inner.scaled(coefficient)
        return congruence(value.form, gcd(value.modulus, self.modulus), self.bound)


def _splits(form: Linear, divisor: int) -> bool:
    """Whether the quotient of values congruent to `form` is congruent to the form's: no carry depends on what is not known."""
    return all(c % divisor == 0 for _, c in form.terms)


def congruence(form: Linear, modulus: int, bound: int = 0) -> Congruence:
    """In canonical form: constant and coefficients reduced."""
    if modulus and not (0 <= form.constant < modulus and all(0 < c < modulus for _, c in form.terms)):
        form = _linear(form.constant % modulus, ((a, c % modulus) for a, c in form.terms))
    return Congruence(form, modulus, bound)


UNKNOWN = Congruence(Linear(), 1)


def exactly(form: Linear) -> Congruence:
    """A value that equals a form."""
    return Congruence(form)


def same(a: Congruence, b: Congruence, extent: int) -> Sameness:
    """Whether two indices into `extent` slots are equal, whatever the atoms are.

    The answers "never" and "always" hold for all values of the atoms for which both indices are valid. "maybe" is exact where one residue
    system describes both: some values of the atoms make them equal, others do not.
    """
    x, y = a.within(extent), b.within(extent)
    one, other = x.constant, y.constant
    if one is not None and other is not None:
        return "always" if one == other else "never"
    if (one is not None and one >= y.bound) or (other is not None and other >= x.bound):
        return "never"
    modulus = gcd(x.modulus, y.modulus)
    difference = x.form - y.form
    if difference.constant % gcd(modulus, *(c for _, c in difference.terms)):
        return "never"
    if not all(c % modulus == 0 for _, c in difference.terms):
        return "maybe"
    return "always" if modulus >= max(x.bound, y.bound) else "maybe"
