"""Where parts of shared buffers lie: accesses to different parts never meet, those to one part meet each other and the whole."""

import pytest

from treadle.analysis.buffers import box_in_slot
from treadle.analysis.shared_accesses import shared_accesses
from treadle.dialects import pipe, tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.layout.shared_layout import row_major

SIDES = (3, 8, 16)
LAYOUT = row_major(SIDES[1:], (1, 0))


def buffer() -> SSAValue:
    """Three slots of 8 x 16."""
    return tile.AllocOp(tile.shared_buffer_type(SIDES, builtin.f32, LAYOUT.stacked(SIDES[0]))).result


def slot(of: SSAValue, index: SSAValue) -> SSAValue:
    """A slot of 8 x 16."""
    return pipe.SlotOp(of, [index], LAYOUT).result


def number(value: int) -> SSAValue:
    return arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType())).result


def unknown() -> SSAValue:
    return tile.ProgramIdOp(0).result


@pytest.mark.parametrize("index", range(4))
def test_a_part_of_a_slot_begins_at_its_number(index: int) -> None:
    part = pipe.PartOp(slot(buffer(), unknown()), number(index), 0, 4).result
    assert box_in_slot(part, (1, 3), (1, 5)) == ((2 * index + 1, 3), (1, 5))


def test_a_part_of_a_part() -> None:
    half = pipe.PartOp(slot(buffer(), unknown()), number(1), 0, 2).result
    assert box_in_slot(pipe.PartOp(half, number(1), 0, 2).result, (0, 0), (2, 16)) == ((6, 0), (2, 16))


def test_a_part_that_the_kernel_alone_knows_may_be_anywhere_along_its_axis() -> None:
    part = pipe.PartOp(slot(buffer(), unknown()), unknown(), 0, 4).result
    assert box_in_slot(part, (1, 3), (1, 5)) == ((0, 3), (8, 5))


def test_slots_of_parts_have_lost_the_leading_dimension() -> None:
    part = pipe.PartOp(buffer(), number(2), 0, 3).result
    assert box_in_slot(slot(part, number(0)), (1, 3), (1, 5)) == ((1, 3), (1, 5))


def test_loads_of_parts_meet_as_their_boxes_do() -> None:
    whole = slot(buffer(), number(1))
    parts = [pipe.PartOp(whole, number(index), 0, 2).result for index in (0, 1)]
    kind = tile.tile_of((4, 16), builtin.f32)
    first, second = (shared_accesses(tile.LocalLoadOp(part, (0, 0), kind))[0] for part in parts)
    everything = shared_accesses(tile.LocalLoadOp(whole, (0, 0), tile.tile_of((8, 16), builtin.f32)))[0]
    assert first.overlaps(first) and first.overlaps(everything) and second.overlaps(everything)
    assert not first.overlaps(second) and not second.overlaps(first)
