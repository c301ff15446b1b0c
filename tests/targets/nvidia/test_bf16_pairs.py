"""Rounding to bf16 to see what is left: pairs in one word, by the instruction for two."""

import re

import pytest

import treadle

ROUNDED = """
func.func @rest(%x: tensor<512xf32>) -> tensor<512xf32> {
  %e = tensor.empty() : tensor<512xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<512xf32>) outs(%e : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = arith.truncf %a : f32 to bf16
    %c = arith.extf %b : bf16 to f32
    %d = arith.subf %a, %c : f32
    linalg.yield %d : f32
  } -> tensor<512xf32>
  return %y : tensor<512xf32>
}
"""


@pytest.mark.parametrize("size", [512, 1000])
def test_two_are_rounded_at_a_time_and_widened_in_place(size: int) -> None:
    code = treadle.compile(ROUNDED.replace("512", str(size)), target="sm_90a").stages["asm"]
    assert "cvt.rn.bf16x2.f32" in code
    assert not re.search(r"cvt\.rn\.bf16\.f32|cvt\.f32\.bf16", code)
