"""Values as affine forms of what the compiler does not know: sizes, workgroup ids, results of arithmetic that is not affine.

A form holds for all members of a class of unknown values; a number that every member of the class has needs none. Quotients by constants
are atoms of their own, so that remainders and numbers of steps are forms too.
"""

from collections.abc import Sequence

Terms = tuple[tuple[int, int], ...]
"""Atoms with their factors, sorted by atom."""
NO_LOOPS: frozenset[int] = frozenset()


class Form:
    """`sum of factor * atom + constant`. `loops`: loops (by the number of the operation) whose iteration it holds for alone."""

    __slots__ = ("constant", "loops", "terms")

    def __init__(self, terms: Terms, constant: int, loops: frozenset[int] = NO_LOOPS) -> None:
        self.terms, self.constant, self.loops = terms, constant, loops

    @property
    def key(self) -> tuple[Terms, int]:
        """The form without its loops."""
        return self.terms, self.constant


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
    return Form(terms, one.constant + factor * other.constant, one.loops | other.loops)


def scaled(form: Form, factor: int) -> Form:
    """`factor * form`."""
    return Form(tuple([(atom, factor * count) for atom, count in form.terms]) if factor else (), factor * form.constant, form.loops)


def shifted(form: Form, constant: int) -> Form:
    """`form + constant`."""
    return Form(form.terms, form.constant + constant, form.loops)


class Atoms:
    """The atoms of a kernel's forms: its unknown values, in their order, then quotients `floor(form / divisor)`."""

    def __init__(self, unknowns: int) -> None:
        self.unknowns = unknowns
        self._quotients: list[tuple[Form, int]] = []
        self._known: dict[tuple[Terms, int, int], int] = {}

    def unknown(self, at: int, factor: int = 1, constant: int = 0) -> Form:
        """`factor * unknown + constant`."""
        return Form(((at, factor),), constant)

    def quotient(self, form: Form, divisor: int) -> Form:
        """`floor(form / divisor)` for a positive divisor."""
        whole = [(atom, count // divisor) for atom, count in form.terms if count % divisor == 0]
        rest = Form(tuple([(atom, count) for atom, count in form.terms if count % divisor]), form.constant % divisor)
        taken = Form(tuple(whole), form.constant // divisor, form.loops)
        if not rest.terms:
            return taken
        if divisor == 1:
            return Form(form.terms, form.constant, form.loops)
        key = (*rest.key, divisor)
        atom = self._known.get(key)
        if atom is None:
            atom = self._known[key] = self.unknowns + len(self._quotients)
            self._quotients.append((rest, divisor))
        return combined(taken, Form(((atom, 1),), 0))

    def ceiling(self, form: Form, divisor: int) -> Form:
        """`ceil(form / divisor)` for a positive divisor."""
        return self.quotient(shifted(form, divisor - 1), divisor)

    def remainder(self, form: Form, divisor: int) -> Form:
        """`form - divisor * floor(form / divisor)`."""
        return combined(form, self.quotient(form, divisor), -divisor)

    def value(self, terms: Terms, constant: int, values: Sequence[int]) -> int:
        """The value of a form for these values of the unknowns."""
        total = constant
        for atom, count in terms:
            if atom < self.unknowns:
                total += count * values[atom]
            else:
                form, divisor = self._quotients[atom - self.unknowns]
                total += count * (self.value(form.terms, form.constant, values) // divisor)
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
