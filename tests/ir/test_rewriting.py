"""The greedy rewriter reaches fixed points, and says which pattern does not."""

import pytest

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport]
from treadle.errors import InternalError
from treadle.ir.builtin import FloatAttr, f32
from treadle.ir.core import Operation
from treadle.ir.dialects import arith
from treadle.ir.rewriting import Pattern, PatternRewriter, rewrite_greedily
from treadle.ir.text import parse_module

TEXT = """func.func @f(%x: f32, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %x) -> (f32) {
    %0 = arith.addf %acc, %x : f32
    %1 = arith.addf %0, %x : f32
    scf.yield %1 : f32
  }
  %2 = arith.addf %r, %x : f32
  return %2 : f32
}"""


class SumToProduct(Pattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, arith.AddfOp):
            rewriter.replace(op, arith.MulfOp(op.operands[0], op.operands[1]))


class ProductToSum(Pattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, arith.MulfOp):
            rewriter.replace(op, arith.AddfOp(op.operands[0], op.operands[1]))


class DropLoops(Pattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name == "scf.for":
            rewriter.replace(op, (), [op.operands[3]])


class Fails(Pattern):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, arith.AddfOp):
            rewriter.replace(op, arith.ConstantOp(FloatAttr(1.0, f32)), [])


def names(module: Operation) -> list[str]:
    return [op.name for op in module.walk()]


def test_settles_and_tells_whether_it_changed() -> None:
    module = parse_module(TEXT, "user.mlir")
    assert rewrite_greedily(module, [SumToProduct()])
    assert names(module).count("arith.mulf") == 3
    assert not rewrite_greedily(module, [SumToProduct()])
    module.verify()


def test_skips_what_another_rewrite_erased() -> None:
    module = parse_module(TEXT, "user.mlir")
    assert rewrite_greedily(module, [DropLoops(), SumToProduct()])
    assert "scf.for" not in names(module)
    assert names(module).count("arith.mulf") == 1
    module.verify()


def test_an_endless_pair_is_named() -> None:
    module = parse_module(TEXT, "user.mlir")
    with pytest.raises(InternalError, match=r"pattern (SumToProduct|ProductToSum) did not settle within 9 iterations"):
        rewrite_greedily(module, [SumToProduct(), ProductToSum()], max_iterations=9)


def test_a_failing_pattern_is_named_with_the_line() -> None:
    module = parse_module(TEXT, "user.mlir")
    with pytest.raises(InternalError, match=r"pattern Fails failed on 'arith.addf' at user.mlir:5:10"):
        rewrite_greedily(module, [Fails()])


def test_does_not_visit_what_lay_inside_an_erased_operation() -> None:
    visited: list[str] = []

    class Visit(Pattern):
        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            visited.append(op.name)

    rewrite_greedily(parse_module(TEXT, "user.mlir"), [DropLoops(), Visit()], max_iterations=2)
    assert visited.count("arith.addf") == 2  # the one behind the loop, in each of two sweeps
    assert "scf.yield" not in visited


def test_patterns_are_shown_no_operation_that_they_do_not_look_at() -> None:
    """A sweep over thousands of operations asks the few patterns that may rewrite each."""
    seen: list[str] = []

    class Watching(Pattern):
        def may_rewrite(self, name: str) -> bool:
            return name.startswith("arith.")

        def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
            seen.append(op.name)

    text = "func.func @f(%x: f32) -> f32 {\n  %y = arith.negf %x : f32\n  %z = math.exp %y : f32\n  return %z : f32\n}\n"
    assert not rewrite_greedily(parse_module(text, "t.mlir"), (Watching(),))
    assert seen == ["arith.negf"]
