"""inline-calls: copies of what is called, one function left, refusals of what calls itself."""

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import compare, program

from treadle.errors import TreadleError
from treadle.ir.dialects import builtin, func
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.tensor.inline_calls import InlineCallsPass

CALLEE = """func.func private @twice(%x: tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>) {
  %0 = arith.addf %x, %x : tensor<7xf32>
  return %0, %x : tensor<7xf32>, tensor<7xf32>
}
"""


def inlined(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [InlineCallsPass()])
    return module


def test_results_take_the_place_of_calls() -> None:
    text = f"""{CALLEE}func.func @f(%a: tensor<7xf32>) -> tensor<7xf32> {{
  %0:2 = call @twice(%a) : (tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>)
  %1:2 = call @twice(%0#0) : (tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>)
  %2 = arith.mulf %1#0, %0#1 : tensor<7xf32>
  return %2 : tensor<7xf32>
}}"""
    functions = [op for op in inlined(text).body.block.ops if isinstance(op, func.FuncOp)]
    assert [op.sym_name.data for op in functions] == ["f"]
    assert not [op for op in functions[0].walk() if isinstance(op, func.CallOp)]
    assert program(compare(text, np.arange(7.0))).sym_name.data == "f"


def test_leaves_functions_without_calls_alone() -> None:
    text = "func.func @f(%a: tensor<7xf32>) -> tensor<7xf32> { return %a : tensor<7xf32> }"
    assert print_module(inlined(text)) == print_module(parse_module(text, "test.mlir"))


def test_calls_of_itself_are_refused_at_their_line() -> None:
    text = """func.func @f(%a: tensor<7xf32>) -> tensor<7xf32> {
  %0 = call @g(%a) : (tensor<7xf32>) -> tensor<7xf32>
  return %0 : tensor<7xf32>
}
func.func private @g(%a: tensor<7xf32>) -> tensor<7xf32> {
  %0 = call @f(%a) : (tensor<7xf32>) -> tensor<7xf32>
  return %0 : tensor<7xf32>
}"""
    with pytest.raises(TreadleError, match="f -> g -> f") as caught:
        inlined(text)
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR301", 6)
