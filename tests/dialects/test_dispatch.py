"""The dispatch dialect: round trips and what its verifiers say."""

import pytest

from treadle.dialects import all_dialects_context
from treadle.errors import TreadleError
from treadle.ir.text import parse_module, print_module

CONTEXT = all_dialects_context()
KERNEL = """dispatch.kernel @k(%x: tensor<?x4xf16>, %s0: index) -> (tensor<4x?xf16>) attributes {
  symbols = ["s0"], arg_shapes = [["s0", "4"]], arg_strides = [["4", "1"]], arg_align = array<i64: 16>,
  result_shapes = [["4", "s0"]], result_strides = [["s0", "1"]], result_align = array<i64: 256>, origin = "transpose"} {
  %e = tensor.empty(%s0) : tensor<4x?xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"], dispatch.root} ins(%x : tensor<?x4xf16>) outs(%e : tensor<4x?xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<4x?xf16>
  dispatch.yield %r : tensor<4x?xf16>
}
"""
PROGRAM = """dispatch.program @f attributes {dims = {s0 = array<i64: 0, 0>, s1 = array<i64: 0, -1>}} {
  %x = dispatch.input 0 "x" shape ["s0", "4"] strides ["s1", "1"] align 16 : !dispatch.buffer<f16>
  %c = dispatch.constant dense<[1, 2]> : tensor<2xi32> : !dispatch.buffer<i32>
  dispatch.check "s0" "<=" "128", "too long"
  dispatch.check "s0" "==" "s1"
  %t = dispatch.alloc ["4", "s0"] : !dispatch.buffer<f16>
  dispatch.launch @k(%x : !dispatch.buffer<f16>) -> (%t : !dispatch.buffer<f16>) symbols {s0 = "s0"}
  %v = dispatch.view %t offset "0" shape ["4 * s0"] strides ["1"] : !dispatch.buffer<f16> to !dispatch.buffer<f16>
  dispatch.return %v : !dispatch.buffer<f16>
}
"""
READING = (
    KERNEL.replace("%s0: index)", "%t: tensor<3xi64>, %s0: index, %p0: index, %r0: index)")
    .replace('symbols = ["s0"]', 'symbols = ["s0"], block_symbols = ["p0"], block_extents = ["3"], READ')
    .replace("READ", 'read_symbols = ["r0"], read_arguments = array<i64: 1>, read_places = [["p0"]], read_bounds = ["s0"]')
    .replace('[["s0", "4"]]', '[["s0", "4"], ["3"]]')
    .replace('[["4", "1"]]', '[["4", "1"], ["1"]]')
    .replace("arg_align = array<i64: 16>", "arg_align = array<i64: 16, 16>")
)
BLOCKS = """func.func @f(%t: tensor<3x2xi32>, %i: index, %n: index) -> index {
  %r = dispatch.read_index %t[%i, %i] most %n : tensor<3x2xi32>
  return %r : index
}
"""
REGION = """func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {
  %r = dispatch.region -> tensor<3xf32> attributes {origin = "copy"} {
    dispatch.yield %x : tensor<3xf32>
  }
  return %r : tensor<3xf32>
}
"""


@pytest.mark.parametrize("text", [KERNEL, PROGRAM, REGION, READING, BLOCKS, KERNEL + PROGRAM])
def test_round_trip(text: str) -> None:
    printed = print_module(parse_module(text, "a.mlir", CONTEXT))
    assert print_module(parse_module(printed, "b.mlir", CONTEXT)) == printed
    for line in text.splitlines():
        if line.strip().startswith(("dispatch.launch", "dispatch.check", "%v = dispatch")):
            assert line.strip() in printed


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (KERNEL, '[["s0", "4"]]', '[["s0", "5"]]', "says 5 for axis 1"),
        (KERNEL, '[["s0", "4"]]', '[["s0"]]', "has 1 dimensions"),
        (KERNEL, '[["4", "1"]]', "[]", "arg_strides has 0 entries"),
        (KERNEL, "array<i64: 16>", "array<i64: 24>", "powers of two"),
        (KERNEL, "array<i64: 16>", "array<i64: 16, 16>", "arg_align has 2 entries"),
        (KERNEL, 'symbols = ["s0"]', "symbols = []", "tensors first"),
        (KERNEL, "-> (tensor<4x?xf16>) attributes", "-> (tensor<?x4xf16>) attributes", "says 4"),
        (KERNEL, "dispatch.yield %r : tensor<4x?xf16>", "dispatch.yield", "where \\(tensor"),
        (KERNEL, ", dispatch.root}", "}", "no operation with dispatch.root"),
        (READING, "tensor<3xi64>", "tensor<3xi8>", "no tensor of i32 or i64"),
        (READING, "read_arguments = array<i64: 1>", "read_arguments = array<i64: 0>", "no tensor of i32 or i64"),
        (READING, "read_arguments = array<i64: 1>", "read_arguments = array<i64: 2>", "no tensor of i32 or i64"),
        (READING, '[["p0"]]', '[["p0", "0"]]', "is read at 2 indices"),
        (READING, 'read_bounds = ["s0"]', "read_bounds = []", "have an entry each"),
        (BLOCKS, "[%i, %i]", "[%i]", "has 1 indices"),
        (PROGRAM, "array<i64: 0, 0>", "array<i64: 1, 0>", "has 1 inputs"),
        (PROGRAM, "array<i64: 0, 0>", "array<i64: 0, 2>", "has 2 dimensions"),
        (PROGRAM, "array<i64: 0, 0>", "3 : i64", "must be array"),
        (PROGRAM, 'strides ["s1", "1"]', 'strides ["1"]', "2 sizes and 1 strides"),
        (PROGRAM, '"<="', '"<"', "compares with"),
        (PROGRAM, "tensor<2xi32> : !dispatch.buffer<i32>", "tensor<2xi32> : !dispatch.buffer<f32>", "the constant holds i32"),
        (PROGRAM, 'strides ["1"] : !dispatch.buffer<f16>', 'strides ["1"] : !dispatch.buffer<i32>', "previously used"),
        (PROGRAM, '{s0 = "s0"}', "{s0 = 3 : i64}", "expression string"),
        (PROGRAM, "dispatch.return %v", "dispatch.yield %v", "must end with dispatch.return"),
        (REGION, "dispatch.yield %x : tensor<3xf32>", "dispatch.yield", "was declared"),
    ],
)
def test_verifiers(text: str, old: str, new: str, message: str) -> None:
    assert old in text
    with pytest.raises(TreadleError, match=message):
        parse_module(text.replace(old, new, 1), "a.mlir", CONTEXT)
