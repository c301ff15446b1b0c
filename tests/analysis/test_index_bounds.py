"""Bounds of index values: random arithmetic on values of known range stays within what they say."""

import random
from collections.abc import Callable

import pytest

from treadle.analysis.index_bounds import Bound, IndexBounds, exactly
from treadle.ir.core import Block, ImplicitBuilder, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import constant, symbol
from treadle.sim.values import operation_function

INDEX = builtin.IndexType()
Make = Callable[[SSAValue, SSAValue], SSAValue]
OPERATIONS: list[Make] = [
    lambda a, b: arith.AddiOp(a, b, result_type=INDEX).result,
    lambda a, b: arith.SubiOp(a, b, result_type=INDEX).result,
    lambda a, b: arith.MuliOp(a, b, result_type=INDEX).result,
    lambda a, b: arith.DivSIOp(a, b).result,
    lambda a, b: arith.FloorDivSIOp(a, b).result,
    lambda a, b: arith.RemSIOp(a, b).result,
    lambda a, b: arith.MinSIOp(a, b).result,
    lambda a, b: arith.MaxSIOp(a, b).result,
    lambda a, b: arith.SelectOp(arith.CmpiOp(a, b, "slt").result, b, a).result,
]


@pytest.mark.parametrize("seed", range(150))
def test_random_arithmetic(seed: int) -> None:
    rng = random.Random(seed)
    block = Block(arg_types=[INDEX] * 3)
    with ImplicitBuilder(block):
        values: list[SSAValue] = [*block.args, arith.ConstantOp(builtin.IntegerAttr(rng.randint(-9, 9), INDEX)).result]
        for _ in range(6):
            values.append(rng.choice(OPERATIONS)(rng.choice(values), rng.choice(values)))
    # Two values of a range, one that may be negative; one that is known.
    top = [rng.randint(1, 50) for _ in range(3)]
    leaves = {
        block.args[0]: exactly(symbol("n")),
        block.args[1]: Bound(constant(0), constant(top[1])),
        block.args[2]: Bound(constant(top[2]), constant(top[2])),
    }
    bounds = IndexBounds(lambda value: next((bound for leaf, bound in leaves.items() if leaf is value), None))
    for _ in range(40):
        numbers = [rng.randint(0, top[0]), rng.randint(0, top[1]), rng.randint(-top[2], top[2])]
        known: dict[SSAValue, int] = dict(zip(block.args, numbers, strict=True))
        try:
            for op in block.ops:
                known[op.results[0]] = operation_function(op)(*(known[v] for v in op.operands))
        except ZeroDivisionError:
            continue
        for value in values:
            bound = bounds.of(value)
            assert bound is not None
            low, high = (side.evaluate({"n": numbers[0]}) for side in (bound.negative, bound.positive))
            assert -low <= known[value] <= high
            if bound.exact is not None:
                assert bound.exact.evaluate({"n": numbers[0]}) == known[value]


def test_integers_are_bounded_by_their_type() -> None:
    block = Block(arg_types=[builtin.i32, builtin.i64, builtin.i8])
    with ImplicitBuilder(block):
        casts = [arith.IndexCastOp(a, INDEX).result for a in block.args]
        there_and_back = arith.IndexCastOp(arith.IndexCastOp(casts[2], builtin.i64).result, INDEX).result
        unsigned = arith.DivUIOp(casts[2], casts[2]).result
    bounds = IndexBounds(lambda _: None)
    assert bounds.of(casts[0]) == Bound(constant(1 << 31), constant((1 << 31) - 1))
    assert bounds.of(casts[1]) is None
    assert bounds.of(there_and_back) == bounds.of(casts[2]) == Bound(constant(128), constant(127))
    assert bounds.of(unsigned) is None  # a negative number is a large unsigned one
