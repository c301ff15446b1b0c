"""convert-conditionals: both sides and a selection; refusals of sides that do more than compute."""

import pytest

from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.tensor.convert_conditionals import ConvertConditionalsPass


def converted(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [ConvertConditionalsPass()])
    return module


def names(module: builtin.ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if op.name.split(".")[0] in ("arith", "scf", "linalg", "math")]


def test_both_sides_stand_before_the_selections() -> None:
    text = """func.func @f(%a: tensor<7xf32>, %c: i1, %d: i1) -> (tensor<7xf32>, tensor<7xf32>) {
  %r:2 = scf.if %c -> (tensor<7xf32>, tensor<7xf32>) {
    %s = scf.if %d -> (tensor<7xf32>) {
      %0 = math.exp %a : tensor<7xf32>
      scf.yield %0 : tensor<7xf32>
    } else {
      scf.yield %a : tensor<7xf32>
    }
    scf.yield %s, %a : tensor<7xf32>, tensor<7xf32>
  } else {
    %1 = arith.negf %a : tensor<7xf32>
    scf.yield %a, %1 : tensor<7xf32>, tensor<7xf32>
  }
  return %r#0, %r#1 : tensor<7xf32>, tensor<7xf32>
}"""
    assert names(converted(text)) == ["math.exp", "arith.select", "arith.negf", "arith.select", "arith.select"]


def test_leaves_straight_code_alone() -> None:
    text = "func.func @f(%a: tensor<7xf32>) -> tensor<7xf32> {\n  %0 = math.exp %a : tensor<7xf32>\n  return %0 : tensor<7xf32>\n}"
    assert print_module(converted(text)) == print_module(parse_module(text, "test.mlir"))


def test_loops_in_a_side_are_refused_at_their_line() -> None:
    text = """func.func @f(%a: tensor<7xf32>, %c: i1, %n: index) -> tensor<7xf32> {
  %z = arith.constant 0 : index
  %o = arith.constant 1 : index
  %r = scf.if %c -> (tensor<7xf32>) {
    %s = scf.for %i = %z to %n step %o iter_args(%x = %a) -> (tensor<7xf32>) {
      scf.yield %x : tensor<7xf32>
    }
    scf.yield %s : tensor<7xf32>
  } else {
    scf.yield %a : tensor<7xf32>
  }
  return %r : tensor<7xf32>
}"""
    with pytest.raises(TreadleError, match=r"scf\.for") as caught:
        converted(text)
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR301", 5)
