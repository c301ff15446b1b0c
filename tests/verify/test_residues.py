"""Classes by residues: the same members, in fewer quotients."""

from random import Random

import pytest

from treadle.verify.classes import Atoms, Class, Form, combined, scaled, shifted
from treadle.verify.residues import by_residues


def of_counters(atoms: Atoms, values: tuple[int, int], random: Random) -> Class:
    """What a run at these values says of slots and parities of rings: residues of multiples of sizes and of their quotients, and signs."""
    known = dict(enumerate(values))
    found = Class(atoms)
    bases = [atoms.unknown(0), atoms.unknown(1), atoms.ceiling(atoms.unknown(0), 4), combined(atoms.unknown(0), atoms.unknown(1))]
    for _ in range(random.randint(2, 12)):
        counter = shifted(scaled(random.choice(bases), random.randint(1, 4)), random.randint(0, 3))
        slots = random.choice((2, 3, 4))
        for form, modulus in ((counter, slots), (atoms.quotient(counter, slots), 2)):
            rest = atoms.remainder(form, modulus)
            found.zero(shifted(rest, -atoms.value(rest.terms, rest.constant, dict(known))))
        if random.random() < 0.3:
            form = combined(counter, random.choice(bases), -1)
            found.sign(form, atoms.value(form.terms, form.constant, dict(known)))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_members_are_the_same(seed: int) -> None:
    random = Random(seed)
    atoms = Atoms([0, 0])
    values = random.randint(0, 40), random.randint(0, 40)
    found = of_counters(atoms, values, random)
    other = by_residues(found)
    assert other.holds(values)
    assert other.size()[1] <= found.size()[1]
    points = [(n, m) for n in range(60) for m in range(60)]
    assert other.others(points) == found.others(points)


def test_a_counter_of_multiples_of_a_size_is_one_residue() -> None:
    atoms = Atoms([0])
    found = Class(atoms)
    for times in range(1, 20):
        slot = atoms.remainder(scaled(atoms.unknown(0), times), 3)
        parity = atoms.remainder(atoms.quotient(scaled(atoms.unknown(0), times), 3), 2)
        for form in (slot, parity):
            found.zero(shifted(form, -atoms.value(form.terms, form.constant, {0: 7})))
    assert found.size()[1] > 4
    assert by_residues(found).size()[1] <= 2
    assert [n for n in range(30) if by_residues(found).holds((n,))] == [1, 7, 13, 19, 25]


def test_what_cannot_be_stays() -> None:
    """No value has two remainders."""
    atoms = Atoms([0])
    found = Class(atoms)
    for residue in (1, 2):
        found.zero(shifted(atoms.remainder(atoms.unknown(0), 3), -residue))
    assert not any(by_residues(found).holds((n,)) for n in range(30))


@pytest.mark.parametrize("seed", range(40))
def test_quotients_have_their_values_in_any_form(seed: int) -> None:
    """Of sums with common factors, with factors beyond the divisor, of quotients."""
    random = Random(seed)
    atoms = Atoms([-50, -50])
    n, m = random.randint(-50, 50), random.randint(-50, 50)
    form, value = Form((), 0), 0
    for _ in range(6):
        at, factor, shift, divisor = random.randint(0, 1), random.randint(-9, 9), random.randint(-9, 9), random.randint(1, 12)
        form = atoms.quotient(shifted(combined(form, atoms.unknown(at), factor), shift), divisor)
        value = (value + factor * (n, m)[at] + shift) // divisor
        assert atoms.value(form.terms, form.constant, {0: n, 1: m}) == value
