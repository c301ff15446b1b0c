"""Slots against brute force: the symbolic answer holds for all values of the atoms, and gives up only where both occur."""

import itertools
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis.slots import Congruence, Linear, Quotient, Sameness, atom, congruence, exactly, same

VALUES = range(13)


def evaluate(form: Linear, env: dict[str, int]) -> int:
    total = form.constant
    for a, c in form.terms:
        total += c * (evaluate(a.numerator, env) // a.divisor if isinstance(a, Quotient) else env[str(a)])
    return total


def linear(constant: int, x: int = 0, y: int = 0) -> Linear:
    return Linear(constant) + atom("x") * x + atom("y") * y


forms = st.builds(linear, st.integers(0, 9), st.integers(-3, 3), st.integers(-2, 2))


def brute(one: list[int], other: list[int]) -> Sameness:
    equal = {a == b for a, b in zip(one, other, strict=True)}
    return "maybe" if len(equal) == 2 else "always" if equal == {True} else "never"


ENVS = [{"x": x, "y": y} for x, y in itertools.product(range(24), range(24))]


@settings(max_examples=300, deadline=None)
@given(forms, forms, st.integers(1, 9))
def test_same_residue_is_exact(a: Linear, b: Linear, slots: int) -> None:
    """(a mod n) against (b mod n): the answer is the true one, "maybe" included."""
    found = same(exactly(a).remainder(slots), exactly(b).remainder(slots), slots)
    truth = brute([evaluate(a, e) % slots for e in ENVS], [evaluate(b, e) % slots for e in ENVS])
    assert found == truth


@settings(max_examples=300, deadline=None)
@given(forms, forms, st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_different_residues_are_sound(a: Linear, b: Linear, one: int, other: int, spare: int) -> None:
    extent = max(one, other) + spare
    found = same(exactly(a).remainder(one), exactly(b).remainder(other), extent)
    truth = brute([evaluate(a, e) % one for e in ENVS], [evaluate(b, e) % other for e in ENVS])
    assert found in ("maybe", truth)


Step = Literal["rem", "div", "add", "scale", "either"]


@settings(max_examples=300, deadline=None)
@given(forms, st.lists(st.tuples(st.sampled_from(["rem", "div", "add", "scale", "either"]), st.integers(1, 6), forms), max_size=4))
def test_congruences_hold(start: Linear, steps: list[tuple[Step, int, Linear]]) -> None:
    """Every operation keeps the promise: value = form (mod modulus), and 0 <= value < bound."""
    for env in ENVS[::7]:
        known, value = exactly(start), evaluate(start, env)
        for number, (step, k, form) in enumerate(steps):
            match step:
                case "rem":
                    known, value = known.remainder(k), value % k
                case "div":
                    known, value = known.quotient(k), value // k
                case "add":
                    known, value = known + exactly(form), value + evaluate(form, env)
                case "scale":
                    known, value = known.scaled(k), value * k
                case "either":
                    known = known.either(exactly(form))
                    value = evaluate(form, env) if (env["x"] + number) % 2 else value
        difference = value - evaluate(known.form, env)
        assert difference % known.modulus == 0 if known.modulus else difference == 0
        assert not known.bound or 0 <= value < known.bound


@settings(max_examples=200, deadline=None)
@given(forms, st.integers(1, 7), st.integers(-3, 3), st.integers(1, 5))
def test_substitution_is_evaluation(form: Linear, slots: int, shift: int, divisor: int) -> None:
    known = exactly(form.divided(divisor)).remainder(slots)
    moved = known.substitute(lambda a: exactly(atom(a) + Linear(shift)) if a == "x" else exactly(atom(a)))
    for env in ENVS[::5]:
        there = evaluate(form, {**env, "x": env["x"] + shift}) // divisor
        assert (there - evaluate(moved.form, env)) % slots == 0


def test_distances() -> None:
    """What one iteration writes d steps ahead in n slots is what is read d iterations later, and nothing before."""
    t = exactly(atom("x"))
    for slots, ahead in itertools.product((2, 3, 5, 9), range(1, 9)):
        written = (t + exactly(Linear(ahead))).remainder(slots)
        for age in range(slots + 1):
            back = age  # iterations ago, seen from now
            then = written.substitute(lambda a, back=back: exactly(atom(a) - Linear(back)))
            expected = "always" if (ahead - age) % slots == 0 else "never"
            assert same(then, t.remainder(slots), slots) == expected


def test_bounds_and_constants() -> None:
    parity = exactly(atom("x")).remainder(2)
    assert same(parity, exactly(Linear(2)), 3) == "never"
    assert same(parity, exactly(Linear(1)), 3) == "maybe"
    assert same(parity, (parity + exactly(Linear(2))).remainder(2), 3) == "always"
    assert same(exactly(atom("x")), exactly(atom("x")), 5) == "always"
    assert same(exactly(atom("x")), exactly(atom("y")), 1) == "always"
    wrapped = exactly(atom("x") + Linear(1)).either(exactly(atom("x") - Linear(4)))
    assert same(wrapped, exactly(atom("x") + Linear(1)).remainder(5), 5) == "always"
    assert congruence(Linear(7), 5) == Congruence(Linear(2), 5)
