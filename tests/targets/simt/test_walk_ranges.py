"""Rows and columns of tiles that are walked some rows at a time are known to be those that there are; nothing is claimed that is not so."""

import random

import pytest
from sim.schedule.faults import kernel_of

from treadle.dialects import tile
from treadle.driver import trace
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.options import CompileOptions
from treadle.targets.simt.ranges import Ranges

PRODUCT = """
func.func @f(%a: tensor<{m}x64xf32>, %b: tensor<64x{n}xf32>, %c: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %r = linalg.matmul ins(%a, %b : tensor<{m}x64xf32>, tensor<64x{n}xf32>) outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %r : tensor<{m}x{n}xf32>
}}
"""
SIDE = 32


def places(rows: int, columns: int, group: int) -> tuple[tile.KernelOp, SSAValue, SSAValue]:
    """A kernel of so many tiles, and the row and the column at which one begins."""
    options = CompileOptions(form="tiles", tile=(SIDE, SIDE, 16), warps=(2, 1), group_m=group, split_reduction="off")
    text = PRODUCT.format(m=rows * SIDE, n=columns * SIDE)
    kernel = kernel_of(trace(text, "sm_90a", options, until="tile").stages["tile"])
    store = next(op for op in kernel.walk() if isinstance(op, tile.StoreOp))
    row, column = store.offsets
    return kernel, row, column


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def value_at(value: SSAValue, place: int) -> int:
    """An index in the workgroup of this number, in 32 bits. Raises ZeroDivisionError where it has none."""
    op = value.owner
    if isinstance(op, tile.ProgramIdOp):
        return place
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.IntegerAttr):
        return op.value.value.data
    assert isinstance(op, arith.AddiOp | arith.SubiOp | arith.MuliOp | arith.MinSIOp | arith.DivUIOp | arith.RemUIOp), op
    a, b = value_at(op.lhs, place), value_at(op.rhs, place)
    if isinstance(op, arith.DivUIOp | arith.RemUIOp):
        a, b = a % (1 << 32), b % (1 << 32)
    match op:
        case arith.AddiOp():
            return a + b
        case arith.SubiOp():
            return a - b
        case arith.MuliOp():
            return a * b
        case arith.MinSIOp():
            return min(a, b)
        case arith.DivUIOp():
            return signed(a // b)
        case _:
            return signed(a % b)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_whole_is_known_to_be(seed: int) -> None:
    rng = random.Random(seed)
    rows, columns, group = rng.randint(2, 23), rng.randint(1, 9), rng.randint(2, 9)
    kernel, row, column = places(rows, columns, group)
    ranges = Ranges(kernel)
    assert ranges.inside(row, SIDE, rows * SIDE) and not ranges.inside(row, SIDE, rows * SIDE - 1)
    assert ranges.inside(column, SIDE, columns * SIDE) and not ranges.inside(column, SIDE, columns * SIDE - 1)


@pytest.mark.parametrize("seed", range(40))
def test_other_numbers_claim_nothing_wrong(seed: int) -> None:
    """One number of the walk is changed: every workgroup's place is within the range that is told for it."""
    rng = random.Random(seed)
    kernel, row, column = places(rng.randint(2, 23), rng.randint(1, 9), rng.randint(2, 9))
    numbers = [op for op in kernel.walk() if isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.IntegerAttr)]
    op = rng.choice(numbers)
    assert isinstance(op.value, builtin.IntegerAttr)
    op.properties["value"] = builtin.IntegerAttr(max(0, op.value.value.data + rng.choice((-8, -1, 1, 3, 40))), builtin.IndexType())
    ranges = Ranges(kernel)
    count = ranges.grid[0]
    assert count is not None
    for value in (row, column):
        known = ranges.of(value)
        for place in range(count):
            try:
                assert known.low <= value_at(value, place) <= known.high, (place, known)
            except ZeroDivisionError:
                break  # it has no meaning then
