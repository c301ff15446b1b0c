"""Reductions that are folded in parts: merges have the identity and are associative they are said to, and results are those of the loop."""

from random import Random

import numpy as np
import pytest
from analysis.test_coupled_reductions import INDEX, SOFTMAX, WEIGHTED, WELFORD, extrema
from numeric.test_coupled_reductions import ARRAYS, lowered
from transforms.reduction_texts import reduction

from treadle.analysis.folds import neutral_numbers, parts_of
from treadle.analysis.indexing import Reduction, classify, structured
from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.ir.builtin import attr_number, element_of
from treadle.ir.dialects import linalg
from treadle.ir.text import parse_module
from treadle.sim.check import check
from treadle.sim.program import run_program
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled
from treadle.sim.values import straight_line

COUNTED = WELFORD.replace(
    "%one = arith.constant 1.0 : f32\n%n_next = arith.addf %n, %one : f32",
    """%one = arith.constant 1 : i32
%n_next = arith.addi %n, %one : i32
%nf = arith.sitofp %n_next : i32 to f32""",
).replace("divf %d, %n_next", "divf %d, %nf")
PRODUCT = """%a = arith.mulf %x0, %p : f32
%b = arith.mulf %x1, %q : f32
%p_next = arith.subf %a, %b : f32
%c = arith.mulf %x0, %q : f32
%d = arith.mulf %x1, %p : f32
%q_next = arith.addf %c, %d : f32"""
F32 = {"n": "f32", "u": "f32", "s": "f32"}
BESIDE = f"{next(body for kind, ties, nan, body in extrema() if (kind, ties, nan) == ('argmax', 'first', 'skipped'))}\n"
CASES: dict[str, tuple[str, dict[str, str], int, list[float]]] = {
    "welford": (WELFORD, F32, 1, [0, 0, 0]),
    "welford_counted": (COUNTED, {"n": "i32", "u": "f32", "s": "f32"}, 1, [0, 0, 0]),
    "online_softmax": (SOFTMAX, {"m": "f32", "l": "f32"}, 1, [-np.inf, 0]),
    "online_softmax_base_2": (SOFTMAX.replace("math.exp ", "math.exp2 "), {"l": "f32", "m": "f32"}, 1, [0, -np.inf]),
    "online_softmax_weighted": (SOFTMAX + WEIGHTED, {"m": "f32", "l": "f32", "o": "f32"}, 2, [-np.inf, 0, 0]),
    "complex_product": (PRODUCT, {"p": "f32", "q": "f32"}, 2, [1, 0]),
    "argmax_beside_sum": (BESIDE + "%t_next = arith.addf %t, %x0 : f32", {"m": "f32", "t": "f32", "i": "i32"}, 1, [-np.inf, 0, -1]),
    "moments_beside_softmax": (
        WELFORD + "\n" + SOFTMAX.replace("%d", "%dd").replace("%e", "%ee").replace("%p", "%pp"),
        {**F32, "m": "f32", "l": "f32"},
        1,
        [0, 0, 0, -np.inf, 0],
    ),
}  # fmt: skip


def text_of(name: str, rows: int, columns: int) -> str:
    body, outputs, inputs, _ = CASES[name]
    text = reduction(body, outputs, inputs, shape=(rows, columns))
    if name == "complex_product":
        text = text.replace('"reduction"]}', '"reduction"], treadle.associative = [1.0 : f32, 0.0 : f32]}')
    return text


def arguments(name: str, rows: int, columns: int, generator: np.random.Generator, *, masked: bool = False) -> ARRAYS:
    _, outputs, inputs, starts = CASES[name]
    scale = 0.1 if name == "complex_product" else 3.0
    values = [(generator.standard_normal((rows, columns)) * scale).astype(np.float32) for _ in range(inputs)]
    if name == "complex_product":
        values[0] += 1
    if masked:
        hidden = generator.random((rows, columns)) < 0.4
        hidden[:, 0] = False
        values[0][hidden] = -np.inf
    dtypes = [np.int32 if type_ == "i32" else np.float32 for type_ in outputs.values()]
    return [*values, *(np.full(rows, start).astype(dtype) for start, dtype in zip(starts, dtypes, strict=True))]


def agrees(found: ARRAYS, text: str, given: ARRAYS) -> None:
    for got, want in zip(found, evaluate_module(parse_module(text, "test.mlir"), given), strict=True):
        verdict = check(got, want)
        assert verdict.ok, f"{verdict.worst} at {verdict.place}"


def merge_of(text: str) -> tile.ReduceOp:
    (op,) = {op for op in lowered(text, "sm_90a", "tile").walk() if isinstance(op, tile.ReduceOp)}
    return op


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_parts_are_merged(name: str, seed: int) -> None:
    """Random sizes around the extents of tiles, odd ones first."""
    random = Random(seed)
    rows, columns = [(3, 9), (1, 377)][seed] if seed < 2 else (random.randint(1, 40), random.choice([1, 2, 63, 65, 300, 700]))
    text = text_of(name, rows, columns)
    module = lowered(text, "sm_90a", "tile")
    assert any(isinstance(op, tile.ReduceOp) for op in module.walk()) == (columns > 1)
    given = arguments(name, rows, columns, np.random.default_rng(seed), masked="softmax" in name and "moments" not in name)
    agrees(run_program(module, given), text, given)


@pytest.mark.parametrize("name", CASES)
def test_merges_are_associative_and_have_their_identity(name: str) -> None:
    """On accumulators that folds have made; the identity leaves any of them as it is, to the bit, infinities too."""
    text = text_of(name, 64, 40)
    combine = straight_line(merge_of(text).combiner.block)
    (op,) = (op for op in parse_module(text, "test.mlir").walk() if isinstance(op, linalg.ops.GenericOp))
    view, kind = structured(op), classify(op)
    assert view is not None
    assert isinstance(kind, Reduction)
    parts = parts_of(view, kind) or ()
    types = [element_of(value.type) for value in op.results]
    neutral = [attr_number(number) or 0 for number in neutral_numbers(parts, types)]
    generator = np.random.default_rng(5)
    dtypes = [np.int32 if type_ == "i32" else np.float32 for type_ in CASES[name][1].values()]
    a, b, c = (
        [np.asarray(v.value).astype(t) for v, t in zip(evaluate_module(parse_module(text, "t"), given), dtypes, strict=True)]
        for given in (arguments(name, 64, 40, generator) for _ in range(3))
    )
    empty = [np.full_like(x, neutral[i] if x.dtype.kind == "f" else np.int64(neutral[i]).astype(x.dtype)) for i, x in enumerate(a)]
    with np.errstate(all="ignore"):
        for left, right in ((a, empty), (empty, a), (empty, empty)):
            want = a if left is a or right is a else empty
            for got, value in zip(combine([*left, *right]), want, strict=True):
                np.testing.assert_array_equal(got, value)
        left, right = combine([*combine([*a, *b]), *c]), combine([*a, *combine([*b, *c])])
        for x, y in zip(left, right, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


def test_minus_infinity_alone_counts_as_nothing() -> None:
    text = text_of("online_softmax", 4, 130)
    given = arguments("online_softmax", 4, 130, np.random.default_rng(1))
    given[0][0, :] = -np.inf
    given[0][1, :129] = -np.inf
    given[0][2, 7] = np.nan
    given[0][3, 7] = np.inf
    top, total = run_program(lowered(text, "sm_90a", "tile"), given)
    assert top[0] == -np.inf and total[0] == 0
    assert top[1] == given[0][1, 129] and total[1] == 1
    assert np.isnan(total[2]) and np.isnan(total[3])


def test_more_places_than_elements_leave_moments_as_they_are() -> None:
    """One element a row: its mean to the bit, infinities too, and what the initial values count."""
    text = text_of("welford", 5, 1)
    values = np.array([[1.1], [np.inf], [-3.3], [np.nan], [0]], np.float32)
    found = run_program(lowered(text, "sm_90a", "tile"), [values, *[np.zeros(5, np.float32)] * 3])
    np.testing.assert_array_equal(found[0], 1)
    np.testing.assert_array_equal(found[1], values[:, 0])
    given = [values[[0, 2]], np.full(2, 3, np.float32), np.full(2, 2.5, np.float32), np.full(2, 7, np.float32)]
    two = text_of("welford", 2, 1)
    agrees(run_program(lowered(two, "sm_90a", "tile"), given), two, given)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("shape", [(3, 520), (70, 33)])
@pytest.mark.parametrize("name", CASES)
def test_schedules_are_proven_and_right(name: str, shape: tuple[int, int], target: str) -> None:
    text = text_of(name, *shape)
    module = lowered(text, target, "schedule")
    given = arguments(name, *shape, np.random.default_rng(3))
    report = run_program_scheduled(module, given, "late", 0)
    assert report.ok, str(report)
    agrees(list(report.outputs), text, given)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[1.0 : f32, 0.0 : f32]", "[1.0 : f32]", "one number of each one's type"),
        ("[1.0 : f32, 0.0 : f32]", "[1.0 : f64, 0.0 : f32]", "one number of each one's type"),
        ("%a = arith.mulf %x0, %p : f32", f"{INDEX}%a = arith.mulf %x0, %p : f32", "reads more than"),
    ],
)
def test_what_cannot_be_declared_is_refused(old: str, new: str, reason: str) -> None:
    text = text_of("complex_product", 3, 9).replace(old, new)
    with pytest.raises(TreadleError, match=f"TR307.*{reason}") as caught:
        lowered(text, "sm_90a", "tile")
    assert caught.value.location is not None


def test_uniform_and_repeated_elements_stay_elements() -> None:
    """Inputs that other reductions give up: a splat, and one tensor read twice."""
    text = text_of("complex_product", 4, 70).replace("ins(%a0, %a1", "ins(%a0, %a0")
    assert merge_of(text) is not None
    given = arguments("complex_product", 4, 70, np.random.default_rng(2))
    agrees(run_program(lowered(text, "sm_90a", "tile"), given), text, given)
