"""Divisors of index values."""

import pytest

from treadle.analysis.divisibility import EVERYTHING, constant_value, divisor, power_of_two_divisor
from treadle.ir.core import SSAValue
from treadle.ir.text import parse_module


def value_of(lines: str) -> SSAValue:
    """The operand of the last operation of a function on an unknown index %s."""
    module = parse_module(
        f"""func.func @f(%s: index, %c: i1) {{
  %c0 = arith.constant 0 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  {lines}
  "test.use"(%v) : (index) -> ()
  func.return
}}""".replace('"test.use"(%v) : (index) -> ()', "%use = arith.addi %v, %c0 : index"),
        "test",
    )
    return next(op for op in reversed(tuple(module.walk())) if op.name == "arith.addi").operands[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("%v = arith.addi %c12, %c12 : index", 4),
        ("%v = arith.muli %s, %c64 : index", 64),
        ("%v = arith.muli %s, %s : index", 1),
        ("%x = arith.muli %s, %c64 : index\n %v = arith.addi %x, %c12 : index", 4),
        ("%x = arith.muli %s, %c64 : index\n %v = arith.subi %x, %c64 : index", 64),
        ("%x = arith.muli %s, %c64 : index\n %v = arith.minsi %x, %c12 : index", 4),
        ("%x = arith.muli %s, %c64 : index\n %v = arith.divui %x, %c12 : index", 1),
        ("%c8 = arith.constant 8 : index\n %x = arith.muli %s, %c64 : index\n %v = arith.divui %x, %c8 : index", 8),
        ("%v = affine.apply affine_map<(d0) -> (d0 * 16 + 8)> (%s)", 8),
        ("%v = affine.apply affine_map<(d0)[s0] -> (d0 * 16 + s0 * 4)> (%s)[%s]", 4),
        ("%v = affine.apply affine_map<(d0) -> ((d0 * 64) floordiv 16)> (%s)", 4),
    ],
)
def test_divisors(lines: str, expected: int) -> None:
    assert divisor(value_of(lines)) == expected


def test_induction_variables() -> None:
    module = parse_module(
        """func.func @f(%n: index) {
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %z = scf.for %i = %c8 to %n step %c64 iter_args(%j = %c64) -> (index) {
    %k = arith.addi %j, %i : index
    scf.yield %k : index
  }
  func.return
}""",
        "test",
    )
    add = next(op for op in module.walk() if op.name == "arith.addi")
    carried, induction = add.operands
    assert (divisor(carried), divisor(induction)) == (1, 8)
    assert divisor(add.results[0], {carried: 16, induction: 4}) == 4


def test_constants() -> None:
    assert [power_of_two_divisor(v) for v in (0, 1, 12, -8)] == [EVERYTHING, 1, 4, 8]
    assert divisor(96) == 32
    assert constant_value(value_of("%v = arith.constant 5 : index")) == 5
    assert constant_value(value_of("%v = arith.muli %c12, %c12 : index")) is None
