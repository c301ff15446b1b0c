"""Emitted index arithmetic: what it folds, what it evaluates to, where it stands."""

import random

import pytest

from treadle.analysis.index_arithmetic import infer_arithmetic
from treadle.analysis.sizes import Shapes
from treadle.errors import SourceLocation
from treadle.ir.builtin import IndexType, IntegerAttr
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith
from treadle.ir.emitter import at_end, at_start, before
from treadle.ir.locations import location_of, make_location
from treadle.plan.expr import Expr, constant, maximum, minimum, symbol


def value_of(block: Block, result: SSAValue, known: dict[SSAValue, int]) -> Expr | None:
    """The value of emitted arithmetic, by the analysis that the host program is made by."""
    shapes = Shapes()
    for value, number in known.items():
        shapes.set_index(value, constant(number))
    for op in block.ops:
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
            shapes.set_index(op.result, constant(op.value.value.data))
        else:
            infer_arithmetic(op, shapes)
    return shapes.index(result)


def random_size(rng: random.Random, depth: int) -> Expr:
    """A size expression over `a` and `b`."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice((symbol("a"), symbol("b"), constant(rng.randrange(9))))
    left, right = (random_size(rng, depth - 1) for _ in range(2))
    some = constant(rng.randrange(1, 6))
    return rng.choice((left + right, left * right, left // some, left % some, minimum(left, right), maximum(left, right)))


@pytest.mark.parametrize("seed", range(60))
def test_size_expressions_have_their_value(seed: int) -> None:
    rng = random.Random(seed)
    size, numbers = random_size(rng, 3), {"a": rng.randrange(40), "b": rng.randrange(40)}
    block = Block(arg_types=[IndexType(), IndexType()])
    result = at_end(block, dict(zip("ab", block.args, strict=True))).expression(size)
    assert value_of(block, result, dict(zip(block.args, numbers.values(), strict=True))) == constant(size.evaluate(numbers))


def test_long_sums_are_not_deep() -> None:
    """What looks at what a value is computed from goes as deep as its operands: a list of groups makes sums of as many terms."""
    size = sum((3 * i * minimum(symbol("a"), constant(i)) for i in range(2, 500)), constant(0))
    block = Block(arg_types=[IndexType()])
    result = at_end(block, {"a": block.args[0]}).expression(size)
    depths: dict[SSAValue, int] = {}
    for op in block.ops:
        depths.update(dict.fromkeys(op.results, 1 + max((depths.get(operand, 0) for operand in op.operands), default=0)))
    assert depths[result] <= 80
    assert value_of(block, result, {block.args[0]: 300}) == constant(size.evaluate({"a": 300}))


@pytest.mark.parametrize("seed", range(20))
def test_known_numbers_are_folded(seed: int) -> None:
    rng = random.Random(seed)
    emit, (x, y) = at_end(Block()), (rng.randrange(50), rng.randrange(1, 9))
    a, b = emit.constant(x), emit.constant(y)
    found = (emit.add(a, b), emit.subtract(a, b), emit.multiply(a, y), emit.divide(a, b), emit.remainder(a, b), emit.minimum(a, b))
    assert [emit.static(value) for value in found] == [x + y, x - y, x * y, x // y, x % y, min(x, y)]


def test_neutral_operands_emit_nothing() -> None:
    block = Block(arg_types=[IndexType()])
    emit, x = at_end(block), block.args[0]
    zero, one = emit.constant(0), emit.constant(1)
    assert [emit.add(x, zero), emit.add(zero, x), emit.subtract(x, zero), emit.multiply(x, 1), emit.divide(x, one)] == [x] * 5
    assert len(block.ops) == 2


def test_the_place_and_the_location_are_those_of_the_anchor() -> None:
    block = Block(arg_types=[IndexType()])
    last: Operation = arith.AddiOp(block.args[0], block.args[0])
    last.location = make_location(SourceLocation("a.mlir", 7, 3))
    block.add_op(last)
    emit = before(last)
    made = [emit.constant(1), emit.constant(2)]
    first = at_start(block).constant(0)
    assert [op.results[0] for op in block.ops] == [first, *made, last.results[0]]
    places = [location_of(op) for op in block.ops]
    assert places == [None, SourceLocation("a.mlir", 7, 3), SourceLocation("a.mlir", 7, 3), SourceLocation("a.mlir", 7, 3)]
