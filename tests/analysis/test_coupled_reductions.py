"""Reductions with coupled outputs are recognised from their bodies, in every order of operands and outputs, and nothing else is."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from transforms.reduction_texts import reduction

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.indexing import Reduction, classify
from treadle.ir.dialects import linalg
from treadle.ir.text import parse_module
from treadle.sim.reference import evaluate_module

ROWS, COLUMNS = 3, 9


def coupled(text: str) -> tuple[Coupled, ...]:
    """The coupled outputs of the one reduction of a text."""
    (op,) = (op for op in parse_module(text, "test.mlir").walk() if isinstance(op, linalg.ops.GenericOp))
    kind = classify(op)
    assert isinstance(kind, Reduction)
    return kind.coupled


INDEX = "%j = linalg.index 1 : index\n %k = arith.index_cast %j : index to i32\n "
NEGATED = {"ogt": "ule", "oge": "ult", "olt": "uge", "ole": "ugt"}
MIRRORED = {"ogt": "olt", "oge": "ole", "olt": "ogt", "ole": "oge", "ugt": "ult", "ult": "ugt"}


def extrema() -> Iterator[tuple[str, str, str, str]]:
    """(kind, ties, nan, body) of every way to write the index of an extremum of floats that is recognised."""
    for predicate, mirrored in product(("ogt", "oge", "olt", "ole"), (False, True)):
        kind = "argmax" if predicate in ("ogt", "oge") else "argmin"
        ties = "first" if predicate in ("ogt", "olt") else "last"
        compare = f"{MIRRORED[predicate]}, %m, %x0" if mirrored else f"{predicate}, %x0, %m"
        condition = f"{INDEX}%c = arith.cmpf {compare} : f32\n "
        index = "%i_next = arith.select %c, %k, %i : i32"
        yield kind, ties, "skipped", f"{condition}%m_next = arith.select %c, %x0, %m : f32\n {index}"
        name = "max" if kind == "argmax" else "min"
        operands = "%m, %x0" if mirrored else "%x0, %m"
        yield kind, ties, "order", f"{condition}%m_next = arith.{name}imumf {operands} : f32\n {index}"
        yield kind, ties, "skipped", f"{condition}%m_next = arith.{name}numf {operands} : f32\n {index}"
    for predicate, kind in (("ugt", "argmax"), ("ult", "argmin")):
        pick = "%m_next = arith.select %c, %x0, %m : f32\n %i_next = arith.select %c, %k, %i : i32"
        number = "%n = arith.cmpf ord, %m, %m : f32\n "
        yield kind, "first", "order", f"{INDEX}%c = arith.cmpf {predicate}, %x0, %m : f32\n {pick}"
        yield kind, "first", "first", f"{INDEX}{number}%d = arith.cmpf {predicate}, %x0, %m : f32\n %c = arith.andi %d, %n : i1\n {pick}"
        ordered = predicate.replace("u", "o", 1)
        both = "%o = arith.cmpf uno, %x0, %x0 : f32\n %p = arith.andi %n, %o : i1\n "
        compared = f"%d = arith.cmpf {ordered}, %x0, %m : f32\n %c = arith.ori %p, %d : i1\n "
        yield kind, "first", "first", f"{INDEX}{number}{both}{compared}{pick}"


@pytest.mark.parametrize("order", ["mi", "im"])
@pytest.mark.parametrize(("kind", "ties", "nan", "body"), list(extrema()))
def test_the_index_of_an_extremum(kind: str, ties: str, nan: str, body: str, order: str) -> None:
    """What the record says of ties and NaN is what the operation computes."""
    types = {"m": "f32", "i": "i32"}
    text = reduction(body, {name: types[name] for name in order})
    (found,) = coupled(text)
    assert (found.kind, found.ties, found.nan) == (kind, ties, nan)
    assert [order[number] for number in found.outputs] == ["m", "i"]
    values = np.random.default_rng(3).integers(-2, 3, (ROWS, COLUMNS)).astype(np.float32)
    start = {"m": np.full(ROWS, -np.inf if kind == "argmax" else np.inf, np.float32), "i": np.full(ROWS, -1, np.int32)}
    for holes in (False, True):
        if holes and nan == "order":
            continue
        if holes:
            values[0, 2] = values[0, 5] = values[1, 0] = np.nan
        module = parse_module(text, "test.mlir")
        results = dict(zip(order, evaluate_module(module, [values, *(start[name] for name in order)]), strict=True))
        np.testing.assert_array_equal(results["i"].value, [expected_place(row, kind, ties, nan) for row in values])


def expected_place(row: np.ndarray, kind: str, ties: str, nan: str) -> int:
    signed = row if kind == "argmax" else -row
    if nan == "first" and np.isnan(row).any():
        return int(np.argmax(np.isnan(row)))
    best = np.flatnonzero(signed == np.nanmax(signed))
    return int(best[0] if ties == "first" else best[-1])


@pytest.mark.parametrize(
    ("predicate", "value", "kind", "ties"),
    [
        ("sgt", "select", "argmax", "first"),
        ("uge", "select", "argmax", "last"),
        ("slt", "minsi", "argmin", "first"),
        ("ult", "minui", "argmin", "first"),
        ("sgt", "maxui", "", ""),  # the value compares without signs, the index with them
        ("sgt", "minsi", "", ""),
        ("eq", "select", "", ""),
    ],
)
def test_integers(predicate: str, value: str, kind: str, ties: str) -> None:
    best = "arith.select %c, %x0, %m : i32" if value == "select" else f"arith.{value} %x0, %m : i32"
    body = f"{INDEX}%c = arith.cmpi {predicate}, %x0, %m : i32\n %m_next = {best}\n %i_next = arith.select %c, %k, %i : i32"
    (found,) = coupled(reduction(body, {"m": "i32", "i": "i32"}, element="i32"))
    assert (found.kind, found.ties, found.nan) == (kind, ties, "")


def commuted(body: str, names: Sequence[str], flip: int) -> str:
    """The body with the operands of the lines `%<name> = <op> a, b : type` exchanged whose bits are set in `flip`."""
    lines = body.split("\n")
    for position, name in enumerate(names):
        if flip >> position & 1:
            number = next(n for n, line in enumerate(lines) if line.strip().startswith(f"%{name} "))
            head, _, kind = lines[number].partition(" : ")
            operation, _, right = head.rpartition(", ")
            start, _, left = operation.rpartition(" ")
            lines[number] = f"{start} {right}, {left} : {kind}"
    return "\n".join(lines)


WELFORD = """%one = arith.constant 1.0 : f32
%n_next = arith.addf %n, %one : f32
%d = arith.subf %x0, %u : f32
%q = arith.divf %d, %n_next : f32
%u_next = arith.addf %u, %q : f32
%e = arith.subf %x0, %u_next : f32
%p = arith.mulf %d, %e : f32
%s_next = arith.addf %s, %p : f32"""


@pytest.mark.parametrize("flip", range(16))
@pytest.mark.parametrize("order", ["nus", "sun", "uns"])
def test_mean_and_variance(order: str, flip: int) -> None:
    text = reduction(commuted(WELFORD, ("n_next", "u_next", "p", "s_next"), flip), dict.fromkeys(order, "f32"))
    (found,) = coupled(text)
    assert found.kind == "mean_variance"
    assert [order[number] for number in found.outputs] == ["n", "u", "s"]
    values = np.random.default_rng(4).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    results = dict(zip(order, evaluate_module(parse_module(text, "test.mlir"), [values, *[np.zeros(ROWS)] * 3]), strict=True))
    np.testing.assert_allclose(results["u"].value, values.mean(axis=1, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(results["s"].value / COLUMNS, values.var(axis=1, dtype=np.float64), rtol=1e-12)


def test_mean_and_variance_with_a_counted_loop() -> None:
    body = WELFORD.replace("%n_next = arith.addf %n, %one : f32", "%k = arith.sitofp %j : i32 to f32\n%n_next = arith.addf %k, %one : f32")
    body = "%i = linalg.index 1 : index\n%j = arith.index_cast %i : index to i32\n" + body
    (found,) = coupled(reduction(body, {"u": "f32", "s": "f32"}))
    assert (found.kind, found.outputs, len(found.elements)) == ("mean_variance", (0, 1), 2)


SOFTMAX = """%m_next = arith.maximumf %x0, %m : f32
%d = arith.subf %m, %m_next : f32
%a = math.exp %d : f32
%e = arith.subf %x0, %m_next : f32
%p = math.exp %e : f32
%b = arith.mulf %l, %a : f32
%l_next = arith.addf %b, %p : f32"""
WEIGHTED = """
%c = arith.mulf %o, %a : f32
%w = arith.mulf %p, %x1 : f32
%o_next = arith.addf %c, %w : f32"""


@pytest.mark.parametrize("flip", range(16))
@pytest.mark.parametrize("base", ["exp", "exp2"])
@pytest.mark.parametrize("order", ["ml", "lm", "mlo", "olm"])
def test_online_softmax(order: str, base: str, flip: int) -> None:
    body = SOFTMAX + (WEIGHTED if "o" in order else "")
    body = commuted(body, ("m_next", "b", "l_next", "o_next" if "o" in order else "l_next"), flip)
    text = reduction(body.replace("math.exp ", f"math.{base} "), dict.fromkeys(order, "f32"), inputs=2 if "o" in order else 1)
    (found,) = coupled(text)
    assert (found.kind, found.base) == ("online_softmax", base)
    assert [order[number] for number in found.outputs] == list("mlo"[: len(order)])
    assert len(found.elements) == len(order) - 1


def test_fused_multiplications() -> None:
    body = SOFTMAX.replace("%b = arith.mulf %l, %a : f32\n", "").replace("arith.addf %b, %p", "math.fma %a, %l, %p")
    (found,) = coupled(reduction(body, {"m": "f32", "l": "f32"}))
    assert found.kind == "online_softmax"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arith.maximumf %x0, %m", "arith.minimumf %x0, %m"),
        ("%d = arith.subf %m, %m_next", "%d = arith.subf %m_next, %m"),
        ("%e = arith.subf %x0, %m_next", "%e = arith.subf %x0, %m"),
        ("%a = math.exp %d", "%a = math.exp2 %d"),
        ("arith.mulf %l, %a", "arith.mulf %l, %p"),
        ("%l_next = arith.addf %b, %p", "%l_next = arith.subf %b, %p"),
        ("arith.maximumf %x0, %m", "arith.maximumf %l, %m"),
    ],
)
def test_what_only_looks_like_it_is_not(old: str, new: str) -> None:
    (found,) = coupled(reduction(SOFTMAX.replace(old, new), {"m": "f32", "l": "f32"}))
    assert found == Coupled("", (0, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [("%e = arith.subf %x0, %u_next", "%e = arith.subf %x0, %u"), ("divf %d, %n_next", "divf %d, %n"), ("constant 1.0", "constant 2.0")],
)
def test_other_running_sums_are_no_mean(old: str, new: str) -> None:
    (found,) = coupled(reduction(WELFORD.replace(old, new), {"n": "f32", "u": "f32", "s": "f32"}))
    assert found.kind == ""


def test_separate_outputs_are_not_coupled() -> None:
    """A sum beside an argmax: three outputs, of which two are combined together."""
    body = f"{next(extrema())[3]}\n %t_next = arith.addf %t, %x0 : f32"
    (found,) = coupled(reduction(body, {"m": "f32", "t": "f32", "i": "i32"}))
    assert found.outputs == (0, 2)
    body = "%m_next = arith.maximumf %m, %x0 : f32\n %t_next = arith.addf %t, %x0 : f32"
    assert coupled(reduction(body, {"m": "f32", "t": "f32"})) == ()
