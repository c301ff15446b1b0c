"""Conversion plans, executed in NumPy, against the definition; scratch layouts for the rest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout.strategies import SHAPES, tile_layouts
from numpy.typing import NDArray

from treadle.errors import InternalError
from treadle.layout.access import address_plan, bank_conflicts
from treadle.layout.conversion import Conversion, choose_scratch, convert
from treadle.layout.fragments import tile_fragment
from treadle.layout.shared_layout import row_major
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.machine import fragments


def held(layout: TileLayout) -> NDArray[np.int64]:
    """`[warps, lanes, registers]`: each element's row-major number in the tile."""
    where = layout.coordinate_array()
    strides = [int(np.prod(layout.shape[dim + 1 :])) for dim in range(layout.rank)]
    return (where * np.array(strides, dtype=np.int64)).sum(axis=-1)


def execute(conversion: Conversion, values: NDArray[np.int64], registers: int) -> NDArray[np.int64]:
    """Run a plan on `[warps, lanes, registers]`; what no round writes stays -1."""
    warps, lanes, _ = values.shape
    if conversion.kind in ("identity", "register"):
        return values[:, :, list(conversion.registers)]
    result = np.full((warps, lanes, registers), -1)
    for step in conversion.rounds:
        for warp in range(warps):
            threads = [warp * lanes + lane for lane in range(lanes)]
            sent = [values[warp, lane, step.send.of(thread)] for lane, thread in enumerate(threads)]
            for lane, thread in enumerate(threads):
                target = step.receive.of(thread)
                if target >= 0:
                    assert result[warp, lane, target] == -1, "written twice"
                    result[warp, lane, target] = sent[step.source_lane(thread)]
    return result


def needs_other_warps(source: TileLayout, result: TileLayout) -> bool:
    have, want = held(source), held(result)
    return any(not set(want[warp].ravel()) <= set(have[warp].ravel()) for warp in range(source.num_warps))


def check(source: TileLayout, result: TileLayout) -> Conversion:
    conversion = convert(source, result)
    if conversion.kind == "shared":
        assert needs_other_warps(source, result)
    else:
        np.testing.assert_array_equal(execute(conversion, held(source), result.num_registers), held(result))
    if conversion.kind == "identity":
        np.testing.assert_array_equal(held(source), held(result))
    return conversion


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_conversions(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    warp_bits = data.draw(st.integers(0, 1))
    check(data.draw(tile_layouts(shape, 3, warp_bits)), data.draw(tile_layouts(shape, 3, warp_bits)))


def test_kinds() -> None:
    tile = blocked((64, 48), (1, 0), 4)
    assert check(tile, tile).kind == "identity"
    swapped = TileLayout((tile.register[1], tile.register[0], *tile.register[2:]), tile.lane, tile.warp, tile.repeat)
    assert check(tile, swapped).kind == "register"
    turned = TileLayout(tile.register, tile.lane[::-1], tile.warp, tile.repeat)
    assert check(tile, turned).kind == "shuffle"
    assert check(tile, TileLayout(tile.register, tile.lane, tile.warp[::-1], tile.repeat)).kind == "shared"


def test_exchange_of_registers_and_lanes_takes_one_round_a_register() -> None:
    """A transposition within a warp: every lane keeps sending, no value is sent for nothing."""
    rows, columns = blocked((8, 8), (1, 0), 8, 8, 1), blocked((8, 8), (0, 1), 8, 8, 1)
    conversion = check(rows, columns)
    assert conversion.kind == "shuffle"
    assert len(conversion.rounds) == 8


def test_accumulator_to_operand() -> None:
    """The probabilities of attention: accumulator of one product, operand of the next."""
    c = tile_fragment(fragments.wgmma_accumulator(64), (64, 64))
    a = tile_fragment(fragments.wgmma_a(2), (64, 64))
    assert check(c, a).kind == "identity"
    assert check(c, tile_fragment(fragments.wgmma_a(1), (64, 64))).kind == "shuffle"
    c = tile_fragment(fragments.mfma_c(16), (64, 48), (4, 1))
    a = tile_fragment(fragments.mfma_a(16, 16), (64, 48), (4, 1), (0, None))
    assert check(c, a).kind == "shuffle"
    assert check(fragments.wmma_rdna3_c(), fragments.wmma_rdna3_a()).kind == "shuffle"


def test_different_base_tiles_and_broadcasts() -> None:
    wide = TileLayout((), ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16)), (), (1, 3))
    narrow = TileLayout(((0, 1),), ((0, 2), (0, 0), (0, 0), (0, 0), (0, 0)), (), (1, 24))
    assert check(wide, narrow).kind == "shuffle"
    local = check(narrow, wide)
    assert local.kind == "shuffle"
    copies = TileLayout(tuple((0, 1 << bit) for bit in range(5)), ((0, 0),) * 5, (), (1, 3))
    for step in check(copies, wide).rounds:
        assert step.xor_mask(32) == 0  # every lane has it: selection, no shuffle


def test_more_readers_than_senders() -> None:
    """Lanes 1 and 2 read from lane 1, each another register, and no other register of theirs could come from another lane."""
    source = TileLayout(((2,), (4,)), ((1,), (8,), (0,)), (), (1,))
    result = TileLayout(((1,),), ((3,), (5,), (8,)), (), (1,))
    conversion = check(source, result)
    assert conversion.kind == "shuffle"
    assert len(conversion.rounds) == 2 * result.num_registers


def test_shapes_must_agree() -> None:
    with pytest.raises(InternalError):
        convert(blocked((64, 64), (1, 0)), blocked((64, 32), (1, 0)))


@pytest.mark.parametrize(("source", "result", "element_bytes"), [
    (blocked((64, 64), (1, 0), 8), blocked((64, 64), (0, 1), 8), 2),
    (blocked((64, 64), (1, 0), 4), blocked((64, 64), (0, 1), 4), 4),
    (tile_fragment(fragments.wgmma_accumulator(64), (64, 64)), blocked((64, 64), (1, 0), 4), 4),
    (tile_fragment(fragments.mfma_c(16), (64, 96), (2, 2)), blocked((64, 96), (1, 0), 8, 64, 4), 2),
])  # fmt: skip
def test_scratch_beats_row_major(source: TileLayout, result: TileLayout, element_bytes: int) -> None:
    scratch = choose_scratch(source, result, element_bytes)
    assert scratch.shape == source.shape

    def cost(shared_conflicts: int, tile: TileLayout, vector: int) -> int:
        phases = max(1, tile.num_lanes * max(4, vector * element_bytes) // 128)
        return shared_conflicts + tile.num_registers // vector * phases

    plain = row_major(source.shape, (1, 0))
    totals = [
        sum(
            cost(bank_conflicts(tile, shared, element_bytes), tile, address_plan(tile, shared, element_bytes).vector)
            for tile in (source, result)
        )
        for shared in (scratch, plain)
    ]
    assert totals[0] < totals[1]


def test_scratch_of_odd_and_flat_tiles() -> None:
    assert choose_scratch(blocked((7, 5), (1, 0)), blocked((7, 5), (0, 1)), 4).size == 35
    assert choose_scratch(blocked((192,), (0,)), blocked((192,), (0,), 4), 4).size == 192
    assert choose_scratch(blocked((1, 48), (1, 0)), blocked((1, 48), (1, 0), 4), 1).size == 48
