"""Copies whose lanes fill neighbouring places: each element once, in order, for any layout; their readers meet no conflicts."""

import random

import pytest

from treadle.layout.access import address_plan, bank_conflicts
from treadle.layout.linear_copy import instructions, linear_copy
from treadle.layout.shared_layout import SharedLayout, row_major, xor_swizzled
from treadle.layout.tile_layout import TileLayout
from treadle.machine import target_spec
from treadle.plan.staging import linear_buffer

LANES = 64


def _random(rng: random.Random) -> tuple[SharedLayout, int, int, int]:
    """A buffer, its fastest dimension, bytes of an element, and warps."""
    size = rng.choice([1, 2, 4])
    inner = rng.randrange(2)
    columns, rows = 1 << rng.randrange(4, 8), rng.choice([1, 3, 5]) << rng.randrange(3, 7)
    shape = (columns, rows) if inner == 0 else (rows, columns)
    order = (inner, 1 - inner)
    chunk = rng.choice([16, 16, 8, 4]) // size
    phases = min(columns // chunk, 8, rows & -rows)
    shared = xor_swizzled(shape, order, chunk, 1, phases) if phases > 1 and rng.random() < 0.7 else row_major(shape, order)
    return shared, inner, size, 1 << rng.randrange(4)


@pytest.mark.parametrize("seed", range(60))
def test_lanes_fill_neighbouring_places_and_all_places_are_filled(seed: int) -> None:
    shared, inner, size, warps = _random(random.Random(seed))
    for piece_bytes in (16, 4):
        piece = piece_bytes // size
        copy = linear_copy(shared, inner, piece, LANES, warps)
        if copy is None:
            continue
        found: dict[int, int] = {}
        count = instructions(copy, piece)
        plan = address_plan(copy, shared, size, piece_bytes)
        assert plan.vector == piece and len(plan.groups) == count
        for warp in range(warps):
            for group in plan.groups:
                starts = [plan.offset(group, lane, warp) for lane in range(LANES)]
                assert starts == [starts[0] + lane * piece for lane in range(LANES)]
                for lane, start in enumerate(starts):
                    read = [copy.coordinates(register, lane, warp) for register in group.registers]
                    assert [place[inner] for place in read] == list(range(read[0][inner], read[0][inner] + piece)), "in the array's order"
                    for at in range(start, start + piece):
                        found[at] = found.get(at, 0) + 1
        assert sorted(found) == list(range(shared.size))
        assert len(set(found.values())) == 1


def test_what_does_not_come_out_even_is_no_such_copy() -> None:
    dense = row_major((16, 64), (1, 0))
    assert linear_copy(dense, 1, 8, LANES, 2) is not None
    assert linear_copy(dense, 0, 8, LANES, 2) is None, "pieces along the other dimension"
    assert linear_copy(row_major((4, 64), (1, 0)), 1, 8, LANES, 1) is None, "an instruction fills more than there is"
    assert linear_copy(row_major((48, 32), (1, 0)), 1, 8, LANES, 4) is None, "three base tiles of one instruction each"
    assert linear_copy(dense, 1, 8, LANES, 3) is None
    small = linear_copy(row_major((16, 32), (1, 0)), 1, 8, LANES, 4)
    assert small is not None and small.replicated_warp_bits() == 3, "each warp brings the whole"


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("columns", [32, 64, 128])
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_readers_of_the_buffers_have_no_conflicts(rows: int, columns: int, target: str) -> None:
    spec = target_spec(target)
    queue = spec.queue_for("copy_in")
    assert queue is not None
    for row in spec.matrix_instructions:
        size = {"f16": 2, "bf16": 2, "i8": 1, "f32": 4}.get(row.a_type, 1)
        if row.layouts.a is None or columns % row.k or columns * size < 16:
            continue
        fragment = _spread(row.layouts.a(), rows, 2)
        for piece_bytes in queue.lane_bytes:
            found = linear_buffer((rows, columns), 1, size, fragment, piece_bytes // size, spec.subgroup_size, 4, spec.banks)
            assert found is not None
            assert bank_conflicts(fragment, found, size, None, spec.banks.count, spec.banks.bytes) == 0


def _spread(fragment: TileLayout, rows: int, warps: int) -> TileLayout:
    """The fragments of a tile's rows, over warps along them."""
    side = fragment.shape[0]
    register, warp, at = list(fragment.register), [], side
    while at < rows:
        basis = (at, 0)
        if 1 << len(warp) < warps and at >= rows // warps:
            warp.append(basis)
        else:
            register.append(basis)
        at *= 2
    return TileLayout(tuple(register), fragment.lane, tuple(warp), fragment.repeat)
