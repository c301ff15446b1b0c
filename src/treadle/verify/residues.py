"""Constraints of a class in terms of the residues that it fixes: slots and parities of rings whose counters are multiples of a size.

Such a class says of one size what it is modulo 3, 6, 12 and so on in as many ways as the run came by: `n mod 3 = 1`, `floor(n / 3) mod 2
= 0`, `floor((2 * n + 1) / 3) mod 2 = 1`. Each equation of the form `a mod d = r` is put in for `a` wherever it stands, as
`d * floor(a / d) + r`; of the others most are true then. The same values are left.
"""

from collections.abc import Iterable

from treadle.verify.classes import Atoms, Class, Form, combined, scaled, shifted


class Residues:
    """What equations say of the remainders of atoms: each is `modulus * parameter + residue`, its parameter the quotient."""

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self._known: dict[int, tuple[int, int, int]] = {}
        self._parameters: set[int] = set()
        self._reduced: dict[int, Form] = {}

    def learn_all(self, equations: Iterable[Form]) -> None:
        """Learn what forms say that are zero, as often as one of them says more for what others have said."""
        left = list(equations)
        while True:
            remaining = [form for form in left if not self._learn(form)]
            if len(remaining) == len(left):
                return
            left = remaining

    def _learn(self, form: Form) -> bool:
        """Whether a form that is zero is one atom less a multiple of its quotient and a remainder, which is then known."""
        form = self.reduced(form)
        if len(form.terms) != 2:
            return False
        for (atom, one), (parameter, other) in (form.terms, form.terms[::-1]):
            modulus, residue = -other * one, -form.constant * one
            if one in (1, -1) and modulus > 1 and 0 <= residue < modulus and atom not in self._known:
                if self.atoms.quotient(Form(((atom, 1),), 0), modulus).key == (((parameter, 1),), 0):
                    self._known[atom] = modulus, residue, parameter
                    self._parameters.add(parameter)
                    self._reduced.clear()
                    return True
        return False

    def reduced(self, form: Form) -> Form:
        """The form with what is known put in. Of the same value wherever the equations hold that were learnt."""
        found = Form((), form.constant)
        for atom, count in form.terms:
            found = combined(found, scaled(self._of(atom), count))
        return found

    def definitions(self) -> list[Form]:
        """The equations that were learnt, as forms that are zero."""
        return [Form(tuple(sorted([(a, 1), (q, -modulus)])), -residue) for a, (modulus, residue, q) in self._known.items()]

    def _of(self, atom: int) -> Form:
        found = self._reduced.get(atom)
        if found is None:
            found = self._reduced[atom] = self._work_out(atom)
        return found

    def _work_out(self, atom: int) -> Form:
        if (known := self._known.get(atom)) is not None:
            modulus, residue, parameter = known
            return shifted(scaled(self._of(parameter), modulus), residue)
        plain, parts = Form(((atom, 1),), 0), self.atoms.parts(atom)
        if parts is None or atom in self._parameters:
            return plain
        divided, divisor = parts
        inner = self.reduced(divided)
        if inner.key == divided.key:
            return plain
        found = self.atoms.quotient(inner, divisor)
        return found if any(a == atom for a, _ in found.terms) else self.reduced(found)


def by_residues(covered: Class) -> Class:
    """The class with the same members, its constraints in terms of the residues that it fixes."""
    residues, found = Residues(covered.atoms), Class(covered.atoms)
    residues.learn_all([Form(*key) for key, rounds in covered.equations if not rounds])
    for key in covered.inequalities:
        form = residues.reduced(Form(*key))
        found.not_negative(form if form.terms or form.constant >= 0 else Form(*key))
    for key, rounds in covered.equations:
        form = residues.reduced(Form(*key))
        found.pumped(form if form.terms or rounds or not form.constant else Form(*key), rounds)
    for form in residues.definitions():
        found.zero(form)
    return found
