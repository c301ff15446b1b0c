"""Wrong results planted on purpose: the check finds each kind in each program; and what it must not take for a right result."""

from collections.abc import Callable

import numpy as np
import pytest
from generators.modules import GeneratedModule, random_module

from treadle.errors import TreadleError
from treadle.ir.text import parse_module
from treadle.sim.check import check
from treadle.sim.element_types import is_float, storage_dtype
from treadle.sim.reference import ReferenceResult, evaluate_module

Fault = Callable[[np.ndarray, np.random.Generator], np.ndarray | None]


def reference(text: str, *arrays: np.ndarray) -> ReferenceResult:
    return evaluate_module(parse_module(text, "test.mlir"), arrays)[0]


def rounded(want: ReferenceResult) -> np.ndarray:
    with np.errstate(all="ignore"):
        return want.value.astype(storage_dtype(want.element))


def _place(array: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(rng.integers(0, n)) for n in array.shape)


def _wrong_element(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    wrong = right.copy()
    place = _place(right, rng)
    largest = np.abs(right.astype(np.float64)).max()
    wrong[place] = np.asarray(right[place].astype(np.float64) + (largest or 1.0) + 1).astype(right.dtype)
    return wrong


def _missing_tail(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The last elements along an axis were never stored: zeros."""
    wrong = np.atleast_1d(right.copy())
    axis = int(rng.integers(0, wrong.ndim))
    wrong[(slice(None),) * axis + (slice(wrong.shape[axis] - 1, None),)] = 0
    return wrong.reshape(right.shape)


def _not_a_number(right: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    if right.dtype.kind in "iub":
        return None
    wrong = right.copy()
    wrong[_place(right, rng)] = np.nan
    return wrong


def _uninitialised(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whatever the memory held: random bits."""
    bits = rng.integers(0, 256, (*right.shape, right.dtype.itemsize), dtype=np.uint8)
    return bits.view(right.dtype).reshape(right.shape)


def _another_row(right: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Stored one row further."""
    return np.roll(right, 1, axis=int(rng.integers(0, right.ndim))) if right.ndim else None


def _swapped(right: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Two axes taken for one another, in an array of the right shape."""
    return np.ascontiguousarray(right.swapaxes(0, 1)).reshape(right.shape) if right.ndim > 1 else None


def _negated(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return -right


FAULTS: tuple[Fault, ...] = (_wrong_element, _missing_tail, _not_a_number, _uninitialised, _another_row, _swapped, _negated)


def _differs(wrong: np.ndarray, right: np.ndarray, want: ReferenceResult) -> bool:
    """Whether the fault is one: some element that the reference is sure of has clearly moved."""
    bound = 0.0 if want.bound is None else np.asarray(want.bound)
    with np.errstate(all="ignore"):
        a, b = wrong.astype(np.float64), right.astype(np.float64)
        step = 4 * bound + (0.05 * np.abs(b) if is_float(want.element) else 0.0)
        return bool(((np.abs(a - b) > step) | (np.isnan(a) & np.isfinite(b))).any())


def _module(seed: int) -> tuple[GeneratedModule, ReferenceResult]:
    module = random_module(seed)
    return module, reference(module.text, *module.arrays())


@pytest.mark.parametrize("seed", range(40))
def test_planted_faults_are_found(seed: int) -> None:
    module, want = _module(seed)
    right = rounded(want)
    assert check(right, want).ok, module.text
    rng = np.random.default_rng(seed)
    missed: list[str] = []
    planted = 0
    if not right.size:
        return  # nothing can be wrong about no elements
    for fault in FAULTS:
        wrong = fault(right, rng)
        if wrong is None or not _differs(wrong, right, want):
            continue
        planted += 1
        verdict = check(wrong, want)
        if verdict.ok or not verdict.problem:
            missed.append(f"{fault.__name__}: {verdict}")
    assert not missed, f"{module.name}: {missed}"
    assert planted >= 2


PLAIN = [
    (
        "tensor<33x17xf32>",
        """%r = linalg.matmul ins(%a, %b : tensor<33x65xf32>, tensor<65x17xf32>) outs(%c : tensor<33x17xf32>) -> tensor<33x17xf32>""",
    ),
    (
        "tensor<65x33xf32>",
        """%e = tensor.empty() : tensor<65x33xf32>
  %r = linalg.transpose ins(%a : tensor<33x65xf32>) outs(%e : tensor<65x33xf32>) permutation = [1, 0]""",
    ),
    ("tensor<33x65xi32>", "%r = arith.fptosi %a : tensor<33x65xf32> to tensor<33x65xi32>"),
]


@pytest.mark.parametrize(("out", "body"), PLAIN)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_kind_is_found_in_plain_programs(fault: Fault, out: str, body: str) -> None:
    head = "func.func @f(%a: tensor<33x65xf32>, %b: tensor<65x17xf32>, %c: tensor<33x17xf32>)"
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s, dtype=np.float32) * 9 for s in ((33, 65), (65, 17), (33, 17))]
    want = reference(f"{head} -> {out} {{\n  {body}\n  return %r : {out}\n}}", *arrays)
    right = rounded(want)
    assert check(right, want).ok
    wrong = fault(right, rng)
    assert wrong is None or not check(wrong, want).ok


EMPTY = """func.func @f(%x: tensor<5x7xf32>, %i: tensor<5x7xi32>) -> {out} {{
  %e = tensor.empty() : tensor<5x7xf32>
  %n = tensor.empty() : tensor<5x7xi32>
  %z = arith.constant 0.0 : f32
  {body}
  return %r : {out}
}}"""


def unwritten_in(out: str, body: str) -> tuple[ReferenceResult, np.ndarray]:
    x, i = np.ones((5, 7), np.float32), np.ones((5, 7), np.int32)
    want = reference(EMPTY.format(out=out, body=body), x, i)
    return want, np.zeros(want.value.shape, np.bool_) if want.unwritten is None else np.broadcast_to(want.unwritten, want.value.shape)


READS = [
    ("tensor<5x7xf32>", "%r = arith.addf %x, %e : tensor<5x7xf32>"),
    ("tensor<5x7xi32>", "%r = arith.addi %i, %n : tensor<5x7xi32>"),
    ("tensor<5x7xi32>", "%r = arith.muli %n, %n : tensor<5x7xi32>"),
    ("tensor<5x7xf32>", "%r = linalg.add ins(%x, %x : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>"),
    ("tensor<5x7xf32>", "%r = linalg.max ins(%x, %e : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>"),
    (
        "tensor<5x7xf32>",
        """%p = linalg.fill ins(%z : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %r = arith.addf %p, %x : tensor<5x7xf32>""",
    ),
    (
        "tensor<5xf32>",
        """%o = tensor.empty() : tensor<5xf32>
  %r = linalg.reduce { arith.addf } ins(%x : tensor<5x7xf32>) outs(%o : tensor<5xf32>) dimensions = [1]""",
    ),
    (
        "tensor<5xf32>",
        """%o = tensor.empty() : tensor<5xf32>
  %p = linalg.fill ins(%z : f32) outs(%o : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.reduce { arith.maximumf } ins(%e : tensor<5x7xf32>) outs(%p : tensor<5xf32>) dimensions = [1]""",
    ),
    (
        "tensor<5x5xf32>",
        """%o = tensor.empty() : tensor<5x5xf32>
  %p = linalg.fill ins(%z : f32) outs(%o : tensor<5x5xf32>) -> tensor<5x5xf32>
  %t = tensor.empty() : tensor<7x5xf32>
  %r = linalg.matmul ins(%x, %t : tensor<5x7xf32>, tensor<7x5xf32>) outs(%p : tensor<5x5xf32>) -> tensor<5x5xf32>""",
    ),
]
WRITTEN = (False, False, False, True, False, True, False, False, False)


@pytest.mark.parametrize(("out", "body", "written"), [(*case, ok) for case, ok in zip(READS, WRITTEN, strict=True)])
def test_what_is_computed_from_uninitialised_memory_fails(out: str, body: str, written: bool) -> None:
    want, unwritten = unwritten_in(out, body)
    assert not unwritten.any() if written else unwritten.all()
    for got in (rounded(want), np.zeros_like(rounded(want))):
        verdict = check(got, want)
        if not written:
            assert not verdict.ok, "whatever the result is"
            assert "uninitialised" in verdict.problem
    assert check(rounded(want), want).ok == written


PLACES = [
    # What is inserted into, selected, padded or joined is uninitialised where nothing was written.
    (
        "tensor<5x7xf32>",
        """%s = tensor.extract_slice %x[0, 0] [5, 3] [1, 1] : tensor<5x7xf32> to tensor<5x3xf32>
  %r = tensor.insert_slice %s into %e[0, 2] [5, 3] [1, 1] : tensor<5x3xf32> into tensor<5x7xf32>""",
        (slice(None), [0, 1, 5, 6]),
    ),
    (
        "tensor<7x5xf32>",
        """%s = tensor.extract_slice %x[1, 0] [1, 7] [1, 1] : tensor<5x7xf32> to tensor<1x7xf32>
  %q = tensor.insert_slice %s into %e[3, 0] [1, 7] [1, 1] : tensor<1x7xf32> into tensor<5x7xf32>
  %o = tensor.empty() : tensor<7x5xf32>
  %r = linalg.transpose ins(%q : tensor<5x7xf32>) outs(%o : tensor<7x5xf32>) permutation = [1, 0]""",
        (slice(None), [0, 1, 2, 4]),
    ),
    (
        "tensor<5x7xf32>",
        """%c = linalg.index_rows
  %r = arith.select %c, %x, %e : tensor<5x7xi1>, tensor<5x7xf32>""",
        (slice(1, None),),
    ),
    (
        "tensor<6x7xf32>",
        """%r = tensor.pad %e low[1, 0] high[0, 0] {
  ^bb0(%k: index, %l: index): tensor.yield %z : f32
  } : tensor<5x7xf32> to tensor<6x7xf32>""",
        (slice(1, None),),
    ),
    ("tensor<10x7xf32>", "%r = tensor.concat dim(0) %x, %e : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<10x7xf32>", (slice(5, None),)),
]
ROWS = """arith.constant dense<[[true, true, true, true, true, true, true], [false, false, false, false, false, false, false],
    [false, false, false, false, false, false, false], [false, false, false, false, false, false, false],
    [false, false, false, false, false, false, false]]> : tensor<5x7xi1>"""


@pytest.mark.parametrize(("out", "body", "where"), PLACES)
def test_only_the_places_that_nothing_wrote(out: str, body: str, where: tuple[slice | list[int], ...]) -> None:
    want, unwritten = unwritten_in(out, body.replace("linalg.index_rows", ROWS))
    expected = np.zeros(want.value.shape, np.bool_)
    expected[where] = True
    assert np.array_equal(unwritten, expected)


def test_memory_that_decides_is_an_error() -> None:
    text = """func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {
  %i = arith.constant 0 : index
  %e = tensor.empty() : tensor<3xi1>
  %c = tensor.extract %e[%i] : tensor<3xi1>
  %r = scf.if %c -> (tensor<3xf32>) {
    scf.yield %x : tensor<3xf32>
  } else {
    scf.yield %x : tensor<3xf32>
  }
  return %r : tensor<3xf32>
}"""
    with pytest.raises(TreadleError) as caught:
        reference(text, np.ones(3, np.float32))
    assert caught.value.code == "TR322"
    assert caught.value.location is not None
    assert caught.value.location.line == 4


QUOTIENT = """func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = arith.divf %x, %y : tensor<4xf32>
  return %r : tensor<4xf32>
}"""


def test_the_users_own_nan_is_right() -> None:
    x, y = np.array([0, 1, -1, 3], np.float32), np.array([0, 0, 0, 2], np.float32)
    want = reference(QUOTIENT, x, y)
    with np.errstate(all="ignore"):
        assert check(x / y, want).ok
    assert not check(np.array([0, np.inf, -np.inf, 1.5], np.float32), want).ok


def test_nan_is_wrong_however_uncertain_a_finite_reference_is() -> None:
    want = reference(QUOTIENT, np.ones(4, np.float32), np.ones(4, np.float32))
    uncertain = ReferenceResult(want.value, np.full(4, np.inf), want.element)
    assert check(np.zeros(4, np.float32), uncertain).ok, "any number may be right"
    verdict = check(np.full(4, np.nan, np.float32), uncertain)
    assert not verdict.ok
    assert "not a number" in verdict.problem
