"""expand-scalars: sums with their carry and whole products of every width against Python's integers; the kinds of all small floats."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import treadle
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module
from treadle.transforms.tensor.expand_scalars import ExpandScalarsPass
from treadle.transforms.tensor.generalize_named_ops import GeneralizeNamedOpsPass

NUMPY = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
COUNT = 77


def numbers(width: int, seed: int) -> list[int]:
    """Signed numbers of a width, the extreme ones and their neighbours first, in random order."""
    rng = np.random.default_rng([width, seed])
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    extremes = [low, high, 0, -1, max(low, -2), low // 2, high // 2, min(high, 1), low | (high >> (width // 2))]
    more = [int(rng.integers(low, high, endpoint=True)) if width < 64 else int(rng.integers(low, high)) for _ in range(COUNT)]
    return [int(v) for v in rng.permutation(np.array((extremes + more)[:COUNT], dtype=np.int64))]


def stored(values: list[int], width: int) -> np.ndarray:
    masked = np.array([v % (1 << width) for v in values], dtype=np.uint64)
    return masked.astype(np.bool_) if width == 1 else masked.astype(f"u{width // 8}").view(f"i{width // 8}")


def unsigned(value: int, width: int) -> int:
    return value % (1 << width)


Exact = Callable[[int, int, int], tuple[int, int]]
EXACT: dict[str, Exact] = {
    "addui": lambda a, b, w: (a + b, (unsigned(a, w) + unsigned(b, w)) >> w),
    "mulsi": lambda a, b, w: (a * b, (a * b) >> w),
    "mului": lambda a, b, w: (a * b, (unsigned(a, w) * unsigned(b, w)) >> w),
}


def program(name: str, element: str, *, in_body: bool) -> str:
    kind = f"tensor<{COUNT}x{element}>"
    second = "i1" if name == "addui" else element
    other = f"tensor<{COUNT}x{second}>"
    head = f"func.func @f(%a: {kind}, %b: {kind}) -> ({kind}, {other}) {{"
    if not in_body:
        types = f"{kind}, {other}" if name == "addui" else kind
        return f"{head}\n  %l, %h = arith.{name}_extended %a, %b : {types}\n  return %l, %h : {kind}, {other}\n}}"
    types = f"{element}, {second}" if name == "addui" else element
    return f"""#id = affine_map<(d0) -> (d0)>
{head}
  %e = tensor.empty() : {kind}
  %o = tensor.empty() : {other}
  %r:2 = linalg.generic {{indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]}}
      ins(%a, %b : {kind}, {kind}) outs(%e, %o : {kind}, {other}) {{
  ^bb0(%x: {element}, %y: {element}, %u: {element}, %v: {second}):
    %l, %h = arith.{name}_extended %x, %y : {types}
    linalg.yield %l, %h : {element}, {second}
  }} -> ({kind}, {other})
  return %r#0, %r#1 : {kind}, {other}
}}"""


@pytest.mark.parametrize("in_body", [False, True], ids=["tensors", "body"])
@pytest.mark.parametrize("element", NUMPY)
@pytest.mark.parametrize("name", EXACT)
def test_both_results_are_exact(name: str, element: str, *, in_body: bool) -> None:
    width = int(element[1:])
    left, right = numbers(width, 0), numbers(width, 1)
    pairs = [EXACT[name](a, b, width) for a, b in zip(left, right, strict=True)]
    expected = [stored([p[0] for p in pairs], width), stored([p[1] for p in pairs], 1 if name == "addui" else width)]
    text, arrays = program(name, element, in_body=in_body), [stored(left, width), stored(right, width)]
    for got, want, reference in zip(
        treadle.compile(text, target="sim")(*arrays), expected, evaluate_module(parse_module(text, "f.mlir"), arrays), strict=True
    ):
        assert np.array_equal(np.asarray(got), want)
        assert check(want, reference).ok


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("name", EXACT)
def test_every_target_compiles_the_widest(name: str, target: str) -> None:
    treadle.compile(program(name, "i64", in_body=True), target=target)


def test_other_arithmetic_is_left_alone_and_index_is_refused() -> None:
    text = """func.func @f(%x: tensor<5xi64>) -> tensor<5xi64> {
  %e = tensor.empty() : tensor<5xi64>
  %r = linalg.map ins(%x : tensor<5xi64>) outs(%e : tensor<5xi64>) (%a: i64, %o: i64) {
    %i = arith.index_cast %a : i64 to index
    %l, %h = arith.mulsi_extended %i, %i : index
    %s = arith.index_cast %h : index to i64
    linalg.yield %s : i64
  }
  return %r : tensor<5xi64>
}"""
    with pytest.raises(TreadleError) as caught:
        treadle.compile(text, target="sim")
    assert caught.value.code == "TR301"
    assert caught.value.location is not None
    assert caught.value.location.line == 5


SMALL = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


def expanded(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [GeneralizeNamedOpsPass(), ExpandScalarsPass()])
    return module


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "isnormal"])
@pytest.mark.parametrize("element", SMALL)
def test_the_kind_of_every_number_of_a_type(name: str, element: str) -> None:
    bits = np.dtype(SMALL[element]).itemsize * 8
    values = np.arange(1 << bits, dtype=f"u{bits // 8}").view(SMALL[element])
    text = f"""func.func @f(%a: tensor<{1 << bits}x{element}>) -> tensor<{1 << bits}xi1> {{
  %0 = math.{name} %a : tensor<{1 << bits}x{element}>
  return %0 : tensor<{1 << bits}xi1>
}}"""
    wide = values.astype(np.float64)
    smallest = float(ml_dtypes.finfo(SMALL[element]).smallest_normal)
    kinds = {"isnan": np.isnan(wide), "isinf": np.isinf(wide), "isfinite": np.isfinite(wide)}
    expected = kinds.get(name, np.isfinite(wide) & (np.abs(wide) >= smallest))
    module = expanded(text)
    assert not [op for op in module.walk() if op.name == f"math.{name}"]
    for found in (evaluate_module(module, [values]), evaluate_module(parse_module(text, "test.mlir"), [values])):
        assert np.array_equal(found[0].value.astype(bool), expected)


def test_leaves_other_operations_alone() -> None:
    text = "func.func @f(%a: f32) -> f32 {\n  %0 = math.exp %a : f32\n  return %0 : f32\n}"
    assert print_module(expanded(text)) == print_module(parse_module(text, "test.mlir"))
