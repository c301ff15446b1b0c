"""Every named operation of the table, compiled and run, against the float64 evaluation of its text."""

import numpy as np
import pytest
from generators.named_operations import random_case

import treadle
from treadle.dialects.mlir_ext.named_table import NAMED
from treadle.ir.text import parse_module
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module


def complaints(name: str, seed: int) -> list[str]:
    """What is wrong with a compiled case."""
    case = random_case(name, seed)
    text, arrays = case.with_constants("f", case.arrays(seed))
    (want,) = evaluate_module(parse_module(text, "named.mlir"), arrays)
    (got,) = treadle.compile(text, target="sim")(*arrays)
    verdict = check(np.asarray(got), want)
    return [] if verdict.ok else [f"{case}: {verdict}"]


@pytest.mark.parametrize("name", NAMED)
def test_compiled_operations_compute_what_their_text_says(name: str) -> None:
    assert [line for seed in (0, 3) for line in complaints(name, seed)] == []


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("name", ["pooling_nchw_max", "conv_2d_nhwc_hwcf_q", "depthwise_conv_1d_nwc_wcm", "mmt4d"])
def test_targets_compile(name: str, target: str) -> None:
    case = random_case(name, 2)
    treadle.compile(case.with_constants("f", case.arrays(0))[0], target=target)


POOL = """func.func @pool(%x: tensor<1x2x9x9xf32>) -> tensor<1x2x4x4xf32> {
  %lowest = arith.constant 0xFF800000 : f32
  %window = tensor.empty() : tensor<3x3xf32>
  %empty = tensor.empty() : tensor<1x2x4x4xf32>
  %start = linalg.fill ins(%lowest : f32) outs(%empty : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %r = linalg.pooling_nchw_max {strides = dense<2> : tensor<2xi64>} ins(%x, %window : tensor<1x2x9x9xf32>, tensor<3x3xf32>)
    outs(%start : tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  return %r : tensor<1x2x4x4xf32>
}"""


def test_a_pool_takes_the_largest_of_each_window() -> None:
    """Whatever the tensor that only gives the window its size holds."""
    x = -np.abs(np.random.default_rng(1).standard_normal((1, 2, 9, 9), dtype=np.float32)) - 1
    (got,) = treadle.compile(POOL, target="sim")(x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    assert np.array_equal(np.asarray(got), windows.max(axis=(4, 5)))
    (want,) = evaluate_module(parse_module(POOL, "pool.mlir"), [x])
    assert check(np.asarray(got), want).ok
