"""Index values as sums of products: what is said to divide an address or to lie within an axis does so in every execution."""

from random import Random

import pytest

from treadle.analysis.index_forms import divides, lies_within
from treadle.dialects import tile
from treadle.ir.builtin import IndexType, IntegerAttr
from treadle.ir.core import Block, Builder, InsertPoint, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.emitter import INDEX, Emitter

Values = dict[SSAValue, int]


def value_of(value: SSAValue, known: Values) -> int:
    """An index value by the numbers of ids and loops."""
    if value in known:
        return known[value]
    op = value.owner
    match op:
        case arith.ConstantOp():
            assert isinstance(op.value, IntegerAttr)
            return op.value.value.data
        case arith.AddiOp():
            return value_of(op.lhs, known) + value_of(op.rhs, known)
        case arith.SubiOp():
            return value_of(op.lhs, known) - value_of(op.rhs, known)
        case arith.MuliOp():
            return value_of(op.lhs, known) * value_of(op.rhs, known)
        case arith.RemUIOp():
            return value_of(op.lhs, known) % value_of(op.rhs, known)
        case _:
            raise AssertionError(op)


class Walk:
    """A row's tiles from the aligned address before it: `id`, the row's number; `place`, in the loop of whole tiles."""

    def __init__(self, pitch: int, width: int, size: int, step: int, last: int) -> None:
        self.emit = emit = Emitter(Builder(InsertPoint.at_end(Block())))
        self.id = emit.insert(tile.ProgramIdOp(0))
        at = emit.multiply(emit.remainder(self.id, width), pitch % width)
        self.begin = emit.subtract(0, emit.remainder(at, width))
        block = Block(arg_types=[IndexType()])
        self.loop = scf.ForOp(emit.add(self.begin, step), emit.constant(size - last), emit.constant(step), [], block)
        emit.put(self.loop)
        self.place = block.args[0]

    def places(self, row: int) -> list[int]:
        known = {self.id: row}
        return list(range(value_of(self.loop.lb, known), value_of(self.loop.ub, known), value_of(self.loop.step, known)))


@pytest.mark.parametrize("seed", range(40))
def test_rows_walked_from_aligned_addresses(seed: int) -> None:
    draw = Random(seed)
    width = draw.choice([2, 4, 8, 16])
    pitch, step, more = draw.randint(1, 5000), width * draw.randint(1, 20), draw.randint(0, 50)
    size = step + draw.randint(1, 500)
    walk = Walk(pitch, width, size, step, step - 1 - more)
    assert divides(width, [walk.id, walk.begin], [pitch, 1])
    assert divides(width, [walk.id, walk.place], [pitch, 1])
    places = [(row, at) for row in range(40) for at in walk.places(row)]
    assert all((row * pitch + at) % width == 0 for row, at in places)
    assert divides(2 * width, [walk.id, walk.place], [pitch, 1]) <= all((row * pitch + at) % (2 * width) == 0 for row, at in places)
    assert lies_within(walk.place, step, size) == (more == 0)
    assert lies_within(walk.place, step, size) <= all(at >= 0 and at + step <= size for _, at in places)
    assert not lies_within(walk.begin, step, size) or pitch % width == 0


def test_a_runtime_pitch_cancels() -> None:
    block = Block(arg_types=[IndexType(), IndexType()])
    emit, (row, pitch) = Emitter(Builder(InsertPoint.at_end(block))), block.args
    product = emit.insert(arith.MuliOp(emit.remainder(row, 8), emit.remainder(pitch, 8), result_type=INDEX))
    begin = emit.subtract(0, emit.remainder(product, 8))
    assert divides(8, [row, begin], [pitch, 1])
    assert not divides(16, [row, begin], [pitch, 1])
    assert not divides(8, [row, begin], [emit.add(pitch, 1), 1])
