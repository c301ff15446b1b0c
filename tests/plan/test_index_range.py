"""Bounds of size expressions: no partial value of an evaluation is beyond them."""

import random

import pytest

from treadle.plan.expr import Expr, constant, maximum, minimum, symbol
from treadle.plan.index_range import INDEX_LIMIT, SIZE_LIMIT, is_never_negative, largest, peaks

NAMES = ("a", "b", "c")


def random_expr(rng: random.Random, depth: int = 3) -> Expr:
    if not depth or rng.random() < 0.2:
        return symbol(rng.choice(NAMES)) if rng.random() < 0.7 else constant(rng.randint(-300, 300))
    left, right = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    kind = rng.choice("++-**/%m")
    if kind in "/%":
        right = maximum(right, 1)
        return left // right if kind == "/" else left % right
    return {"+": left + right, "-": left - right, "*": left * right, "m": minimum(left, right)}[kind]


def partial_values(expr: Expr, env: dict[str, int]) -> list[int]:
    """What a machine holds while it evaluates term by term, the arguments of divisions and minima among it."""
    found, total = [0], 0
    for factors, coefficient in expr.terms:
        term = coefficient
        for atom in factors:
            term *= atom.evaluate(env)
            for argument in atom.args:
                found += partial_values(argument, env)
        total += term
        found += [term, total]
    return found


@pytest.mark.parametrize("seed", range(200))
def test_no_partial_value_is_beyond_the_peaks(seed: int) -> None:
    rng = random.Random(seed)
    expr = random_expr(rng)
    bounds = peaks(expr)
    for _ in range(20):
        env = {name: rng.choice([0, 1, 2, rng.randrange(5000), 1 << rng.randrange(40)]) for name in NAMES}
        values = [abs(value) for value in partial_values(expr, env)]
        # Atoms that may be negative are bounded by their arguments' peaks, which products of them are not.
        if all(is_never_negative(Expr({f: 1})) for f, _ in expr.terms):
            assert max(values) <= max([0, *(bound.evaluate(env) for bound in bounds)])


@pytest.mark.parametrize("seed", range(100))
def test_what_is_left_out_is_implied(seed: int) -> None:
    rng = random.Random(seed)
    values = [random_expr(rng, 2) for _ in range(6)]
    kept = largest(values)
    assert set(kept) <= set(values)
    for _ in range(20):
        env = {name: rng.randrange(1 << rng.randrange(1, 33)) for name in NAMES}
        assert max(v.evaluate(env) for v in values) == max(v.evaluate(env) for v in kept)
    assert largest(kept) == kept


@pytest.mark.parametrize("seed", range(100))
def test_never_negative(seed: int) -> None:
    rng = random.Random(seed)
    expr = random_expr(rng)
    if is_never_negative(expr):
        assert all(expr.evaluate({n: rng.randrange(1 << 20) for n in NAMES}) >= 0 for _ in range(20))


def test_limits() -> None:
    assert SIZE_LIMIT < INDEX_LIMIT == 2**31 - 1
    a, b = symbol("a"), symbol("b")
    assert largest([a, a + 127, b, constant(5), constant(9), a * b]) == tuple(sorted([a + 127, b, a * b], key=str))
    assert peaks(a * b - a) == {a * b, a}
