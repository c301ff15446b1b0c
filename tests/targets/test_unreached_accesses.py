"""Accesses that lie outside the array for all threads are not emitted: the tools would drop them, and the audits miss them."""

import re

import pytest

import treadle
from treadle.options import CompileOptions

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a")
RAGGED = """
#here = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @ragged(%a: tensor<47x3x127xbf16>, %b: tensor<3x47xbf16>, %c: tensor<f32>, %d: tensor<3x47x127xf32>) -> tensor<47x3x127xf32> {
  %e = tensor.empty() : tensor<47x3x127xf32>
  %0 = linalg.generic {indexing_maps = [#here, affine_map<(d0, d1, d2) -> (d1, d0)>, #here],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<47x3x127xbf16>, tensor<3x47xbf16>) outs(%e : tensor<47x3x127xf32>) {
  ^bb0(%x: bf16, %y: bf16, %o: f32):
    %p = arith.extf %x : bf16 to f32
    %q = arith.extf %y : bf16 to f32
    %r = arith.subf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<47x3x127xf32>
  %1 = linalg.generic {indexing_maps = [#here, affine_map<(d0, d1, d2) -> ()>, #here],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%0, %c : tensor<47x3x127xf32>, tensor<f32>) outs(%e : tensor<47x3x127xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.minimumf %x, %y : f32
    %q = math.absf %p : f32
    %r = arith.mulf %q, %q : f32
    linalg.yield %r : f32
  } -> tensor<47x3x127xf32>
  %2 = linalg.generic {indexing_maps = [#here, affine_map<(d0, d1, d2) -> (d1, d0, d2)>, #here],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%1, %d : tensor<47x3x127xf32>, tensor<3x47x127xf32>) outs(%e : tensor<47x3x127xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %p = arith.maximumf %x, %y : f32
    %q = math.exp %p : f32
    %r = arith.maximumf %q, %zero : f32
    linalg.yield %r : f32
  } -> tensor<47x3x127xf32>
  return %2 : tensor<47x3x127xf32>
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_three_of_the_four_stores_are_emitted(target: str) -> None:
    program = treadle.compile(RAGGED, target=target, options=CompileOptions(tuned=False))
    stores = re.findall(r"\bst\.global|^ *store .*addrspace\(1\)", program.stages["llvm"], re.MULTILINE)
    assert len(stores) == 3, "of the four that a thread's part of the tile has"
