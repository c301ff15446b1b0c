"""Size expressions: folding, text, evaluation against Python itself."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import TreadleError
from treadle.plan import expr_parser
from treadle.plan.expr import ZERO_DIVISOR, Expr, ceil_div, compile_tuple, constant, maximum, minimum, parse, symbol

S, T = symbol("s0"), symbol("s1")
NAMES = ("s0", "s1", "n")


def source_texts() -> st.SearchStrategy[str]:
    """Python texts built without any of our folding, fully parenthesised."""
    leaves = st.one_of(st.integers(-300, 300).map(lambda v: f"({v})"), st.sampled_from(NAMES))

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        calls = st.tuples(st.sampled_from(["min", "max"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda t: f"{t[0]}({', '.join(t[1])})"
        )
        return st.one_of(binary, calls, inner.map(lambda t: f"(-{t})"))

    return st.recursive(leaves, grow, max_leaves=8)


ENVS = st.fixed_dictionaries({name: st.one_of(st.integers(-9, 9), st.integers(-5000, 5000)) for name in NAMES})


@given(source_texts(), ENVS)
def test_agrees_with_python(text: str, env: dict[str, int]) -> None:
    try:
        expected = eval(text, {"min": min, "max": max}, dict(env))
    except ZeroDivisionError:
        return
    e = parse(text)
    assert e.evaluate(env) == expected
    assert eval(str(e), {"min": min, "max": max}, dict(env)) == expected
    assert e.substitute(env).as_int() == expected
    assert compile_tuple([e, 7], NAMES)(*(env[n] for n in NAMES)) == (expected, 7)


@given(source_texts())
def test_text_round_trips(text: str) -> None:
    try:
        e = parse(text)
    except TreadleError:
        return  # a division by a constant zero
    assert parse(str(e)) == e
    anew = expr_parser.read(str(e))  # `parse` remembers what was printed
    assert anew == e
    assert str(anew) == str(e)
    assert hash(anew) == hash(e)
    assert pickle.loads(pickle.dumps(e)) == e


@given(source_texts(), ENVS, st.sampled_from([1, 2, 4, 8, 48]))
def test_divisor_divides(text: str, env: dict[str, int], step: int) -> None:
    try:
        e = parse(text)
        value = e.evaluate({k: v * step for k, v in env.items()})
    except (TreadleError, ZeroDivisionError):
        return
    assert value % e.divisor(dict.fromkeys(NAMES, step)) == 0


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (S + 0, "s0"),
        (S * 1, "s0"),
        (S * 0, "0"),
        (2 * S * 77, "154 * s0"),
        ((S * 8) // 8, "s0"),
        ((S * T) // T, "s0"),
        ((S * 6 + 4) // 4, "3 * s0 // 2 + 1"),
        (ceil_div(S, 128), "(s0 + 127) // 128"),
        (ceil_div(S, 128) * 128, "128 * ((s0 + 127) // 128)"),
        (ceil_div(S * 128, 128), "s0"),
        ((S // 4) // 8, "s0 // 32"),
        ((S % 32) % 8, "s0 % 8"),
        ((S % 8) // 8, "0"),
        ((4 * S) % 16, "4 * (s0 % 4)"),
        (3 - S, "3 - s0"),
        (-(S // 4), "-(s0 // 4)"),
        (S * T - T * S, "0"),
        (minimum(S, S + 4, 128), "min(128, s0)"),
        (maximum(S, maximum(T, S)), "max(s0, s1)"),
        (minimum(3, 5), "3"),
        (S // T * 2, "2 * (s0 // s1)"),
        (S // (T + 1), "s0 // (s1 + 1)"),
        (S // (T // 2), "s0 // (s1 // 2)"),
    ],
)
def test_folds(built: Expr, text: str) -> None:
    assert str(built) == text
    assert parse(text) == built


@pytest.mark.parametrize(
    "text", ["", "s0 +", "s0 / 2", "f(s0)", "min()", "s0 ** 2", "s0.x", "1.5", "True", "s0 // 0", "g('x')", "min", "~s0", "[s0]"]
)
def test_rejects(text: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse(text)
    assert caught.value.code == "TR103"


def test_value_semantics() -> None:
    assert constant(4) == 4
    assert hash(constant(4)) == hash(4)
    assert {S + 1: "a"}[1 + S] == "a"
    assert (S * T + 1).symbols() == {"s0", "s1"}
    assert constant(0).divisor() == ZERO_DIVISOR
    assert (S * 16 + 8).divisor() == 8
    assert (S * 4).divisor({"s0": 4}) == 16
    with pytest.raises(TypeError):
        bool(S)
    with pytest.raises(AttributeError):
        S.terms = ()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(KeyError):
        S.evaluate({})


def test_what_was_printed_is_read_without_a_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass writes sizes as text, the next one reads them: parsing took a fifth of the choice of a kernel's form."""
    text = str(minimum(symbol("printed_0") // 3, 4 * symbol("printed_1") + 5))

    def refuse(text: str) -> None:
        pytest.fail(f"'{text}' was parsed")

    monkeypatch.setattr(expr_parser, "read", refuse)
    assert parse(text) == minimum(symbol("printed_0") // 3, 4 * symbol("printed_1") + 5)
