"""Values as affine forms of what the compiler does not know: sizes, workgroup ids, results of arithmetic that is not affine.

A form holds for all members of a class of unknown values; a number that every member of the class has needs none. Quotients by constants
are atoms of their own, so that remainders and numbers of steps are forms too.
"""

from collections.abc import Iterable, Sequence
from math import gcd

Terms = tuple[tuple[int, int], ...]
"""Atoms with their factors, sorted by atom."""
Iterations = tuple[tuple[int, int], ...]
"""Loops (by the number of the operation) with what a value grows by in each of their iterations, `UNEVENLY` where that is no one number."""
UNEVENLY = 0


class Form:
    """`sum of factor * atom + constant`, in one iteration of the loops of `iterations`, which stands for others of them, too.

    In those the value is larger, all that was computed in the iteration by as many iterations: a difference that grows by nothing is the
    same in all of them.
    """

    __slots__ = ("constant", "iterations", "terms")

    def __init__(self, terms: Terms, constant: int, iterations: Iterations = ()) -> None:
        self.terms, self.constant, self.iterations = terms, constant, iterations

    @property
    def key(self) -> tuple[Terms, int]:
        """The form without its loops."""
        return self.terms, self.constant

    @property
    def loops(self) -> frozenset[int]:
        """Loops whose iteration it holds for alone."""
        return frozenset([loop for loop, _ in self.iterations])


Symbol = Form | None
"""What stands beside a number: None where every member of the class has that number."""


def of(symbol: Symbol, value: int) -> Form:
    """The form of a value."""
    return Form((), value) if symbol is None else symbol


def combined(one: Form, other: Form, factor: int = 1) -> Form:
    """`one + factor * other`."""
    if not other.terms:
        terms = one.terms
    else:
        found = dict(one.terms)
        for atom, count in other.terms:
            found[atom] = found.get(atom, 0) + factor * count
        terms = tuple(sorted([(atom, count) for atom, count in found.items() if count]))
    iterations = grown(one.iterations, other.iterations, factor) if other.iterations else one.iterations
    return Form(terms, one.constant + factor * other.constant, iterations)


def grown(one: Iterations, other: Iterations, factor: int = 1) -> Iterations:
    """What `one + factor * other` grows by."""
    found = dict(one)
    for loop, each in other:
        before = found.get(loop)
        if before is None:
            found[loop] = factor * each
        elif UNEVENLY in (before, each):
            found[loop] = UNEVENLY
        elif before + factor * each:
            found[loop] = before + factor * each
        else:
            del found[loop]
    return tuple(sorted(found.items())) if factor else one


def scaled(form: Form, factor: int) -> Form:
    """`factor * form`."""
    if not factor:
        return Form((), 0)
    iterations = tuple([(loop, factor * each) for loop, each in form.iterations])
    return Form(tuple([(atom, factor * count) for atom, count in form.terms]), factor * form.constant, iterations)


def shifted(form: Form, constant: int) -> Form:
    """`form + constant`."""
    return Form(form.terms, form.constant + constant, form.iterations)


def kept(form: Form) -> Form:
    """A form whose value other iterations of its loops see."""
    return Form(form.terms, form.constant, tuple([(loop, UNEVENLY) for loop, _ in form.iterations])) if form.iterations else form


def _whole(count: int, divisor: int) -> int:
    """How often a divisor is in a factor, towards zero."""
    return count // divisor if count >= 0 else -(-count // divisor)


class Atoms:
    """The atoms of a kernel's forms: its unknown values, in their order, then quotients `floor(form / divisor)`.

    `lows`: the least value of each unknown.
    """

    def __init__(self, lows: Sequence[int]) -> None:
        self.unknowns = len(lows)
        self._lows: list[int | None] = list(lows)
        self._quotients: list[tuple[Form, int]] = []
        self._known: dict[tuple[Terms, int, int], int] = {}

    def unknown(self, at: int, factor: int = 1, constant: int = 0) -> Form:
        """`factor * unknown + constant`."""
        return Form(((at, factor),), constant)

    def quotient(self, form: Form, divisor: int) -> Form:
        """`floor(form / divisor)` for a positive divisor."""
        whole = [(atom, times) for atom, count in form.terms if (times := _whole(count, divisor))]
        left = [(atom, rest) for atom, count in form.terms if (rest := count - divisor * _whole(count, divisor))]
        rest = Form(tuple(left), form.constant % divisor)
        evenly = tuple([(loop, each // divisor if each % divisor == 0 else UNEVENLY) for loop, each in form.iterations])
        taken = Form(tuple(whole), form.constant // divisor, evenly)
        if not rest.terms:
            return taken
        if (common := gcd(divisor, *[count for _, count in left])) > 1:
            smaller = Form(tuple([(atom, count // common) for atom, count in left]), rest.constant // common)
            return combined(taken, self.quotient(smaller, divisor // common))
        if len(rest.terms) == 1 and rest.terms[0][1] == 1 and rest.terms[0][0] >= self.unknowns:
            # A quotient of a quotient is one of its dividend.
            divided, before = self._quotients[rest.terms[0][0] - self.unknowns]
            return combined(taken, self.quotient(shifted(divided, before * rest.constant), before * divisor))
        key = (*rest.key, divisor)
        atom = self._known.get(key)
        if atom is None:
            atom = self._known[key] = self.unknowns + len(self._quotients)
            self._quotients.append((rest, divisor))
            least = self._least(rest)
            self._lows.append(None if least is None else least // divisor)
        return combined(taken, Form(((atom, 1),), 0))

    def ceiling(self, form: Form, divisor: int) -> Form:
        """`ceil(form / divisor)` for a positive divisor."""
        return self.quotient(shifted(form, divisor - 1), divisor)

    def remainder(self, form: Form, divisor: int) -> Form:
        """`form - divisor * floor(form / divisor)`."""
        return combined(form, self.quotient(form, divisor), -divisor)

    def is_never_negative(self, form: Form) -> bool:
        """Whether a form is zero or more for all values of the unknowns because it is a sum of remainders and of what has no less."""
        left = form
        for atom, count in form.terms:
            if atom >= self.unknowns and count < 0:
                divided, divisor = self._quotients[atom - self.unknowns]
                if count % divisor:
                    return False
                left = combined(left, self.remainder(divided, divisor), count // divisor)
        least = self._least(left)
        return least is not None and least >= 0

    def _least(self, form: Form) -> int | None:
        """No more than the least value of a form; None where nothing is known of it."""
        total = form.constant
        for atom, count in form.terms:
            low = self._lows[atom]
            if count < 0 or low is None:
                return None
            total += count * low
        return total

    def parts(self, atom: int) -> tuple[Form, int] | None:
        """What a quotient divides, and by what; None for an unknown."""
        return self._quotients[atom - self.unknowns] if atom >= self.unknowns else None

    def quotients_in(self, atoms: Iterable[int]) -> set[int]:
        """The quotients among atoms, and those in them."""
        found, work = set[int](), list(atoms)
        while work:
            atom = work.pop()
            if atom >= self.unknowns and atom not in found:
                found.add(atom)
                work += [inner for inner, _ in self._quotients[atom - self.unknowns][0].terms]
        return found

    def value(self, terms: Terms, constant: int, values: dict[int, int]) -> int:
        """The value of a form for these values of the unknowns, by their numbers; those of quotients are added to them."""
        total = constant
        for atom, count in terms:
            known = values.get(atom)
            if known is None:
                form, divisor = self._quotients[atom - self.unknowns]
                known = values[atom] = self.value(form.terms, form.constant, values) // divisor
            total += count * known
        return total

    def text(self, terms: Terms, constant: int, names: Sequence[str]) -> str:
        """A form in the notation of integer sets."""
        parts = [str(constant)] if constant or not terms else []
        for atom, count in terms:
            if atom < self.unknowns:
                name = names[atom]
            else:
                form, divisor = self._quotients[atom - self.unknowns]
                name = f"floor(({self.text(form.terms, form.constant, names)}) / {divisor})"
            parts.append(name if count == 1 else f"{count} * {name}")
        return " + ".join(parts)
