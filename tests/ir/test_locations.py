"""The user's line survives parsing, printing, cloning, rewriting and ten passes."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

import treadle.dialects  # pyright: ignore[reportUnusedImport]
import treadle.ir.simplify  # noqa: F401 # pyright: ignore[reportUnusedImport]
from treadle.errors import UNSUPPORTED, InternalError, SourceLocation, TreadleError
from treadle.ir.builtin import ModuleOp, UnitAttr
from treadle.ir.context import Context
from treadle.ir.core import Operation
from treadle.ir.dialects import arith
from treadle.ir.passes import Pass, parse_passes, run_passes
from treadle.ir.rewriting import Pattern, PatternRewriter, rewrite_greedily, set_location
from treadle.ir.text import location_of, parse_module, print_module

TEXT = """// a comment first
func.func @f(%x: tensor<7x3xf32>, %o: tensor<7x3xf32>) -> tensor<7x3xf32> {
  %0 = linalg.add ins(%x, %x
      : tensor<7x3xf32>, tensor<7x3xf32>) outs(%o : tensor<7x3xf32>) -> tensor<7x3xf32>
  %c2 = arith.constant 2 : index
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      outs(%0 : tensor<7x3xf32>) {
  ^bb0(%e: f32):
    %y = arith.addf %e, %e : f32
    %z = math.exp %y : f32 loc("model.py":42:9)
    linalg.yield %z : f32
  } -> tensor<7x3xf32>
  return %1 : tensor<7x3xf32>
}
"""


def lines(module: Operation) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for op in module.walk():
        place = location_of(op)
        assert place is not None, op
        found.setdefault(op.name, []).append(place.line)
    return found


def test_every_operation_has_the_line_of_its_name() -> None:
    found = lines(parse_module(TEXT, "user.mlir"))
    assert found["func.func"] == [2]
    assert found["linalg.generic"] == [3, 6]  # the first is `linalg.add`
    assert found["arith.addf"] == [3, 9]  # inside the hidden body, and written
    assert found["arith.constant"] == [5]
    assert found["func.return"] == [13]


def test_a_given_location_wins_and_survives_printing() -> None:
    module = parse_module(TEXT, "user.mlir")
    wanted = SourceLocation("model.py", 42, 9)
    assert [location_of(op) for op in module.walk() if op.name == "math.exp"] == [wanted]
    assert "loc(" not in print_module(module)
    again = parse_module(print_module(module, locations=True), "printed.mlir")
    assert [location_of(op) for op in again.walk() if op.name == "math.exp"] == [wanted]
    assert lines(again)["arith.addf"] == [3, 9]


def test_clones_keep_their_lines() -> None:
    module = parse_module(TEXT, "user.mlir")
    assert lines(module.clone()) == lines(module)


def test_an_operation_without_a_location_has_that_of_what_encloses_it() -> None:
    module = parse_module(TEXT, "user.mlir")
    body = next(op for op in module.walk() if op.name == "linalg.yield" and location_of(op) == SourceLocation("user.mlir", 11, 5))
    block = body.parent
    assert block is not None
    new = arith.NegfOp(block.args[0])
    block.insert_op_before(new, body)
    place = location_of(new)
    assert place is not None
    assert place.line == 6


class DoubleBySum(Pattern):
    """A sum becomes a difference and a difference a sum, without end; each step makes two new operations."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, arith.AddfOp):
            negated = arith.NegfOp(op.operands[1])
            rewriter.replace(op, [negated, arith.SubfOp(op.operands[0], negated)])
        elif isinstance(op, arith.SubfOp):
            negated = arith.NegfOp(op.operands[1])
            new = arith.AddfOp(op.operands[0], negated)
            rewriter.replace(op, [negated, new])


@dataclass(frozen=True)
class Churn(Pass):
    """One step of the rewriting, without going on to a fixed point."""

    name: ClassVar[str] = "churn"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        with pytest.raises(InternalError, match="DoubleBySum"):
            rewrite_greedily(module, [DoubleBySum()], max_iterations=1)


@dataclass(frozen=True)
class RefuseNegation(Pass):
    """A pass that reports the user's mistake at the end of a long pipeline."""

    name: ClassVar[str] = "refuse-negation"

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        found = [op for op in module.walk() if op.name == "arith.negf"]
        raise TreadleError(UNSUPPORTED, location_of(found[-1]), what="negation", hint="do without")


def test_an_error_after_ten_passes_names_the_users_line() -> None:
    module = parse_module(TEXT, "user.mlir")
    passes = [Churn()] * 7 + list(parse_passes("canonicalize,cse,dce"))
    with pytest.raises(TreadleError) as caught:
        run_passes(module, [*passes, RefuseNegation()])
    assert str(caught.value.location) == "user.mlir:9:10"
    assert str(caught.value).startswith("user.mlir:9:10: error TR301")
    assert set(lines(module)["arith.negf"]) == {3, 9}


def test_what_a_pattern_inserts_elsewhere_has_the_line_of_the_match() -> None:
    class NoteExp(Pattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            if op.name == "math.exp" and "done" not in op.attributes:
                rewriter.insert(arith.NegfOp(op.operands[0]))
                op.attributes["done"] = UnitAttr()

    module = parse_module(TEXT, "user.mlir")
    assert rewrite_greedily(module, [NoteExp()])
    assert [location_of(op) for op in module.walk() if op.name == "arith.negf"] == [SourceLocation("model.py", 42, 9)]


def test_set_location() -> None:
    module = parse_module(TEXT, "user.mlir")
    old = next(op for op in module.walk() if op.name == "math.exp")
    new = arith.NegfOp(old.operands[0])
    set_location(new, old)
    assert location_of(new) == SourceLocation("model.py", 42, 9)


def test_location_aliases_may_follow_their_use() -> None:
    text = """#loc1 = loc("model.py":7:3)
func.func @f(%x: tensor<3xf32> loc("a":1:1), %o: tensor<3xf32>) -> tensor<3xf32> {
  %0 = linalg.exp ins(%x : tensor<3xf32>) outs(%o : tensor<3xf32>) -> tensor<3xf32> loc(#loc1)
  %1 = linalg.exp ins(%0 : tensor<3xf32>) outs(%o : tensor<3xf32>) -> tensor<3xf32> loc(#loc3)
  %2 = linalg.exp ins(%1 : tensor<3xf32>) outs(%o : tensor<3xf32>) -> tensor<3xf32> loc("a name alone")
  %3 = linalg.exp ins(%2 : tensor<3xf32>) outs(%o : tensor<3xf32>) -> tensor<3xf32> loc(fused["x":1:2, "y":3:4])
  return %3 : tensor<3xf32> loc(unknown)
} loc(#loc2)
#loc3 = loc(callsite(#loc2 at #loc1))
#loc2 = loc("other.py":9:5)
"""
    module = parse_module(text, "user.mlir")
    generics = [str(location_of(op)) for op in module.walk() if op.name == "linalg.generic"]
    assert generics == ["model.py:7:3", "other.py:9:5", "user.mlir:5:8", "x:1:2"]
    assert [str(location_of(op)) for op in module.walk() if op.name.startswith("func.")] == ["other.py:9:5", "user.mlir:7:3"]


def test_an_undefined_location_alias_is_an_error() -> None:
    with pytest.raises(TreadleError, match=r"user.mlir:2:19: error TR101"):
        parse_module("func.func @f() {\n  return loc(#loc9)\n}\n#loc8 = loc(#loc9)\n", "user.mlir")


def test_a_replacement_has_the_line_of_what_it_replaces_not_of_the_match() -> None:
    class MultiplyFirst(Pattern):
        """Matches the exponential, replaces the sum before it."""

        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            operand = op.operands[0].owner if op.name == "math.exp" else None
            if isinstance(operand, arith.AddfOp):
                rewriter.replace(operand, arith.MulfOp(operand.operands[0], operand.operands[1]))

    module = parse_module(TEXT, "user.mlir")
    assert rewrite_greedily(module, [MultiplyFirst()])
    assert [location_of(op) for op in module.walk() if op.name == "arith.mulf"] == [SourceLocation("user.mlir", 9, 10)]
