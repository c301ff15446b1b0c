"""The bounds of the error analysis: right results pass with room, wrong ones fail."""

import ml_dtypes
import numpy as np
import pytest

from treadle.ir.core import Attribute
from treadle.ir.text import parse_module
from treadle.options import Precision
from treadle.sim.check import check
from treadle.sim.reference import ReferenceResult, evaluate_module, function_named

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(3)
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": BF16}


def matmul(m: int, n: int, k: int, operand: str, accumulator: str, *, relu_to: str | None = None) -> str:
    a, b, c = f"tensor<{m}x{k}x{operand}>", f"tensor<{k}x{n}x{operand}>", f"tensor<{m}x{n}x{accumulator}>"
    out = f"tensor<{m}x{n}x{relu_to}>" if relu_to else c
    tail = (
        f"""%e1 = tensor.empty() : {out}
      %2 = linalg.map ins(%1 : {c}) outs(%e1 : {out}) (%x: {accumulator}, %y: {relu_to}) {{
        %zero = arith.constant 0.0 : {accumulator}
        %r = arith.maximumf %x, %zero : {accumulator}
        %t = arith.truncf %r : {accumulator} to {relu_to}
        linalg.yield %t : {relu_to}
      }}
      return %2 : {out}"""
        if relu_to
        else f"return %1 : {c}"
    )
    return f"""func.func @f(%a: {a}, %b: {b}) -> {out} {{
      %z = arith.constant 0.0 : {accumulator}
      %e = tensor.empty() : {c}
      %0 = linalg.fill ins(%z : {accumulator}) outs(%e : {c}) -> {c}
      %1 = linalg.matmul ins(%a, %b : {a}, {b}) outs(%0 : {c}) -> {c}
      {tail}
    }}"""


def reference(text: str, *arrays: np.ndarray, f32_precision: Precision = "ieee") -> ReferenceResult:
    return evaluate_module(parse_module(text, "test.mlir"), arrays, f32_precision=f32_precision)[0]


def tf32(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


CASES = [
    (123, 45, 5000, "f32", None),
    (33, 65, 77, "f32", None),
    (77, 136, 2000, "bf16", "bf16"),
    (65, 33, 511, "f16", "f16"),
    (5, 3, 1, "f32", None),
]


@pytest.mark.parametrize(("m", "n", "k", "operand", "target"), CASES)
def test_matmul_verdicts(m: int, n: int, k: int, operand: str, target: str | None) -> None:
    a, b = RNG.standard_normal((m, k)).astype(NUMPY[operand]), RNG.standard_normal((k, n)).astype(NUMPY[operand])
    want = reference(matmul(m, n, k, operand, "f32", relu_to=target), a, b)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = np.zeros((m, n), np.float32)
        for k0 in range(0, k, 32):  # as a tiled kernel adds up
            total += a[:, k0 : k0 + 32].astype("f") @ b[k0 : k0 + 32].astype("f")
        return np.maximum(total, 0).astype(NUMPY[target]) if target else total

    right = kernel(a, b)
    assert check(right, want).ok
    assert check(right, want).worst < 0.7
    if k > 32:
        dropped = a.copy()
        dropped[:, 32:64] = 0
        assert not check(kernel(dropped, b), want).ok, "a dropped tile of the reduction"
        one = a.copy()
        one[:, k - 1] = 0
        assert target or not check(kernel(one, b), want).ok, "one dropped term"
    swapped = right.copy()
    swapped[[1, 2]] = swapped[[2, 1]]
    assert not check(swapped, want).ok, "two rows exchanged"
    unwritten = right.copy()
    unwritten[-1, -1] = np.nan
    assert not check(unwritten, want).ok, "an element left unwritten"
    assert check(unwritten, want).place == (m - 1, n - 1)
    assert not check(right[:, :-1], want).ok, "another shape"


def test_undeclared_tf32_fails_and_declared_passes() -> None:
    m, n, k = 123, 45, 3000
    a, b = RNG.standard_normal((m, k), dtype="f"), RNG.standard_normal((k, n), dtype="f")
    text = matmul(m, n, k, "f32", "f32")
    got = tf32(a) @ tf32(b)
    assert not check(got, reference(text, a, b)).ok
    assert check(got, reference(text, a, b, f32_precision="tf32")).ok
    dropped = a.copy()
    dropped[:, 32:64] = 0
    assert not check(tf32(dropped) @ tf32(b), reference(text, a, b, f32_precision="tf32")).ok


def test_double_rounding_of_an_accumulator_fails() -> None:
    """Sums kept in bf16 where f32 is declared are not good enough."""
    a, b = RNG.standard_normal((17, 300)).astype(BF16), RNG.standard_normal((300, 9)).astype(BF16)
    want = reference(matmul(17, 9, 300, "bf16", "f32"), a, b)
    assert check(a.astype("f") @ b.astype("f"), want).ok
    total = np.zeros((17, 9), BF16)
    for k in range(0, 300, 16):
        total = (total.astype("f") + a[:, k : k + 16].astype("f") @ b[k : k + 16].astype("f")).astype(BF16)
    assert not check(total.astype("f"), want).ok


def test_integers_must_be_exact() -> None:
    text = "func.func @f(%x: tensor<3xi32>) -> tensor<3xi32> {\n  %r = arith.addi %x, %x : tensor<3xi32>\n  return %r : tensor<3xi32>\n}"
    x = np.array([1, 2**30, -5], np.int32)
    want = reference(text, x)
    with np.errstate(over="ignore"):
        assert check(x + x, want).ok
    assert not check(x + x + np.array([0, 0, 1], np.int32), want).ok


def test_moved_data_must_be_exact() -> None:
    text = """func.func @f(%x: tensor<3x5xf32>) -> tensor<5x3xf32> {
      %e = tensor.empty() : tensor<5x3xf32>
      %t = linalg.transpose ins(%x : tensor<3x5xf32>) outs(%e : tensor<5x3xf32>) permutation = [1, 0]
      return %t : tensor<5x3xf32>
    }"""
    x = RNG.standard_normal((3, 5), dtype="f")
    assert check(np.ascontiguousarray(x.T), reference(text, x)).ok
    assert not check(np.ascontiguousarray(x.T) * np.float32(1 + 1e-6), reference(text, x)).ok


def test_infinities_and_nan() -> None:
    want = ReferenceResult(np.array([np.inf, np.nan, 65504.0, 70000.0, 1.0]), np.full(5, 1e-6), parse_type("f16"))
    assert check(np.array([np.inf, np.nan, 65504, np.inf, 1], np.float16), want).ok, "70000 overflows f16"
    assert not check(np.array([-np.inf, np.nan, 65504, np.inf, 1], np.float16), want).ok
    assert not check(np.array([np.inf, 0, 65504, np.inf, 1], np.float16), want).ok
    assert not check(np.array([np.inf, np.nan, 65504, np.inf, np.inf], np.float16), want).ok


def parse_type(name: str) -> Attribute:
    module = parse_module(f"func.func @f(%x: {name}) {{\n  return\n}}", "t")
    return function_named(module, None).body.block.args[0].type


def test_nothing_is_right() -> None:
    want = ReferenceResult(np.zeros((0, 3)), None, parse_type("f32"))
    assert check(np.zeros((0, 3), "f"), want).ok
    assert not check(np.zeros((0, 4), "f"), want).ok


def test_quotients_of_flushed_reciprocals() -> None:
    text = """func.func @f(%x: tensor<6xf32>) -> tensor<6xf32> {
      %e = tensor.empty() : tensor<6xf32>
      %0 = linalg.map ins(%x : tensor<6xf32>) outs(%e : tensor<6xf32>) (%v: f32, %o: f32) {
        %one = arith.constant 1.0 : f32
        %n = arith.negf %v : f32
        %p = math.exp %n : f32
        %d = arith.addf %p, %one : f32
        %q = arith.divf %v, %d : f32
        linalg.yield %q : f32
      }
      return %0 : tensor<6xf32>
    }"""
    x = np.array([-100.0, -88.0, -87.5, -87.0, -1.0, 3.0], np.float32)
    expected = reference(text, x)
    silu = (x / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    flushed = np.where(x < -87.4, np.float32(0), silu)
    assert check(silu, expected).ok
    assert check(flushed, expected).ok
    lost = np.where(x < -86.9, np.float32(0), silu)  # the reciprocal at -87 is a normal number
    assert not check(lost, expected).ok
