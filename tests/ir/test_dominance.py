"""A value that is used ahead of its definition, or for itself, is an error at the use; values from outside and from above are not."""

import pytest

from treadle.errors import TreadleError
from treadle.ir.dominance import used_too_early
from treadle.ir.text import parse_module

RIGHT = """func.func @f(%x: f32, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = arith.addf %x, %x : f32
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %a) -> (f32) {
    %0 = arith.addf %acc, %a : f32
    %1 = arith.mulf %0, %x : f32
    scf.yield %1 : f32
  }
  return %r : f32
}
"""
WRONG = {
    "itself": ("%0 = arith.addf %acc, %a", "%0 = arith.addf %0, %a", 6),
    "a later value": ("%0 = arith.addf %acc, %a", "%0 = arith.addf %1, %a", 6),
    "the result of its own loop": ("%1 = arith.mulf %0, %x", "%1 = arith.mulf %0, %r", 7),
    "a value behind": ("%a = arith.addf %x, %x", "%a = arith.addf %x, %r", 4),
    "a variable of the loop outside of it": ("step %c1", "step %i", 5),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses(name: str) -> None:
    old, new, line = WRONG[name]
    assert old in RIGHT
    with pytest.raises(TreadleError, match="before it is defined") as caught:
        parse_module(RIGHT.replace(old, new), "a.mlir")
    assert caught.value.code == "TR201"
    assert caught.value.location is not None and caught.value.location.line == line


def test_right_uses() -> None:
    module = parse_module(RIGHT, "a.mlir")
    assert used_too_early(module) is None
    for op in module.walk():
        assert used_too_early(op) is None, "what an operation reads from outside counts as defined"
