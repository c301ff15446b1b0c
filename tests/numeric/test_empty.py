"""Extents of 0: nothing to compute, and reductions over nothing."""

import numpy as np
import pytest

import treadle
from treadle.ir.text import parse_module
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module


def run(text: str, *arrays: np.ndarray) -> None:
    """Compile for the simulator, run, compare."""
    (got,) = treadle.compile(text, target="sim")(*arrays)
    (want,) = evaluate_module(parse_module(text, "empty.mlir"), arrays)
    verdict = check(np.asarray(got), want)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 7), (5, 0, 7), (5, 3, 0), (0, 0, 0), (1, 1, 0)])
def test_matmul(m: int, n: int, k: int) -> None:
    a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    text = f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %0 = linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
      return %0 : {c}
    }}"""
    run(text, np.ones((m, k), "f"), np.ones((k, n), "f"), np.full((m, n), 3, "f"))


@pytest.mark.parametrize(("rows", "columns"), [(4, 0), (0, 4), (0, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_reduction(rows: int, columns: int, axis: int) -> None:
    kept = columns if axis == 0 else rows
    x, r = f"tensor<{rows}x{columns}xf32>", f"tensor<{kept}xf32>"
    text = f"""func.func @f(%x: {x}) -> {r} {{
      %one = arith.constant 1.0 : f32
      %e = tensor.empty() : {r}
      %i = linalg.fill ins(%one : f32) outs(%e : {r}) -> {r}
      %0 = linalg.reduce {{ arith.addf }} ins(%x : {x}) outs(%i : {r}) dimensions = [{axis}]
      return %0 : {r}
    }}"""
    run(text, np.ones((rows, columns), "f"))


def test_elementwise_and_transpose() -> None:
    text = """func.func @f(%x: tensor<0x3xf16>) -> tensor<3x0xf16> {
      %e = tensor.empty() : tensor<3x0xf16>
      %t = linalg.transpose ins(%x : tensor<0x3xf16>) outs(%e : tensor<3x0xf16>) permutation = [1, 0]
      %y = arith.addf %t, %t : tensor<3x0xf16>
      return %y : tensor<3x0xf16>
    }"""
    run(text, np.zeros((0, 3), np.float16))


@pytest.mark.parametrize("extent", [0, 4, 20])
def test_an_axis_split_by_a_quotient(extent: int) -> None:
    text = """func.func @f(%a: tensor<?xf32>) -> tensor<?x4xf32> {
      %c0 = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %m = tensor.dim %a, %c0 : tensor<?xf32>
      %q = arith.divsi %m, %c4 : index
      %s = tensor.expand_shape %a [[0, 1]] output_shape [%q, 4] : tensor<?xf32> into tensor<?x4xf32>
      %e = math.exp %s : tensor<?x4xf32>
      return %e : tensor<?x4xf32>
    }"""
    run(text, np.linspace(0, 1, extent, dtype="f"))
