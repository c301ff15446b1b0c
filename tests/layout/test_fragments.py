"""Fragment layouts against the formulas of the instruction sets, and tiles of many instructions."""

from collections.abc import Callable

import numpy as np
import pytest

from treadle.errors import InternalError
from treadle.layout.fragments import instruction_positions, instruction_registers, instruction_step, packed, tile_fragment
from treadle.layout.tile_layout import TileLayout
from treadle.machine import fragments

Formula = Callable[[int, int, int], tuple[int, ...]]  # register, lane, warp -> coordinates


def wgmma_c(register: int, lane: int, warp: int) -> tuple[int, int]:
    j, rest = divmod(register, 4)
    return 16 * warp + lane // 4 + 8 * (rest // 2), 8 * j + 2 * (lane % 4) + rest % 2


def wgmma_a16(register: int, lane: int, warp: int) -> tuple[int, int]:
    word, half = divmod(register, 2)
    return 16 * warp + lane // 4 + 8 * (word % 2), 2 * (lane % 4) + half + 8 * (word // 2)


def wgmma_a8(register: int, lane: int, warp: int) -> tuple[int, int]:
    word, byte = divmod(register, 4)
    return 16 * warp + lane // 4 + 8 * (word % 2), 4 * (lane % 4) + byte + 16 * (word // 2)


def wgmma_a32(register: int, lane: int, warp: int) -> tuple[int, int]:
    return 16 * warp + lane // 4 + 8 * (register % 2), lane % 4 + 4 * (register // 2)


def flipped(formula: Formula) -> Formula:
    return lambda register, lane, warp: formula(register, lane, warp)[::-1]


def mfma_a(m: int, k: int) -> Formula:
    return lambda register, lane, warp: (lane % m, lane // m * (k * m // 64) + register)


CASES: list[tuple[TileLayout, tuple[int, int], int, Formula]] = [
    *((fragments.wgmma_accumulator(n), (64, n), n // 2, wgmma_c) for n in (8, 24, 64, 176, 192, 256)),
    (fragments.wgmma_a(2), (64, 16), 8, wgmma_a16),
    (fragments.wgmma_a(1), (64, 32), 16, wgmma_a8),
    (fragments.wgmma_a(4), (64, 8), 4, wgmma_a32),
    *((fragments.mfma_a(m, k), (m, k), k * m // 64, mfma_a(m, k)) for m, k in ((16, 16), (16, 32), (16, 64), (16, 4), (32, 8), (32, 16))),
    *((fragments.mfma_b(m, k), (k, m), k * m // 64, flipped(mfma_a(m, k))) for m, k in ((16, 16), (16, 4), (32, 16))),
    (fragments.mfma_c(16), (16, 16), 4, lambda r, t, w: (4 * (t // 16) + r, t % 16)),
    (fragments.mfma_c(32), (32, 32), 16, lambda r, t, w: (8 * (r // 4) + 4 * (t // 32) + r % 4, t % 32)),
    (fragments.wmma_rdna3_a(), (16, 16), 16, lambda r, t, w: (t % 16, r)),
    (fragments.wmma_rdna3_b(), (16, 16), 16, lambda r, t, w: (r, t % 16)),
    (fragments.wmma_rdna3_c(), (16, 16), 8, lambda r, t, w: (2 * r + t // 16, t % 16)),
    (fragments.wmma_rdna4_a(), (16, 16), 8, lambda r, t, w: (t % 16, 8 * (t // 16) + r)),
    (fragments.wmma_rdna4_b(), (16, 16), 8, lambda r, t, w: (8 * (t // 16) + r, t % 16)),
    (fragments.wmma_rdna4_c(), (16, 16), 8, lambda r, t, w: (r + 8 * (t // 16), t % 16)),
]


@pytest.mark.parametrize(("layout", "shape", "registers", "formula"), CASES)
def test_formula(layout: TileLayout, shape: tuple[int, int], registers: int, formula: Formula) -> None:
    assert layout.shape == shape
    assert layout.num_registers == registers
    for warp in range(layout.num_warps):
        for lane in range(layout.num_lanes):
            for register in range(registers):
                assert layout.coordinates(register, lane, warp) == formula(register, lane, warp)


TILES = [
    (fragments.wgmma_accumulator(176), (128, 352), (1, 1), None),
    (fragments.wgmma_accumulator(192), (384, 192), (2, 1), None),
    (fragments.wgmma_accumulator(64), (192, 192), (1, 1), None),
    (fragments.wgmma_a(2), (128, 48), (2, 2), (0, None)),
    (fragments.mfma_c(16), (96, 80), (2, 1), None),
    (fragments.mfma_a(16, 16), (64, 48), (2, 2), (0, None)),
    (fragments.mfma_b(32, 8), (24, 128), (2, 4), (None, 1)),
    (fragments.wmma_rdna3_a(), (32, 16), (2, 2), (0, None)),
]


@pytest.mark.parametrize(("instruction", "shape", "grid", "dims"), TILES)
def test_tile_is_made_of_whole_instructions(
    instruction: TileLayout, shape: tuple[int, int], grid: tuple[int, int], dims: tuple[int | None, ...] | None
) -> None:
    tile = tile_fragment(instruction, shape, grid, dims)
    assert tile.shape == shape
    assert tile.num_warps == instruction.num_warps * grid[0] * grid[1]
    where = tile.coordinate_array()
    single = instruction.coordinate_array()
    inner = instruction.num_warps
    step = instruction_step(tile, instruction)
    seen: list[int] = []
    for position in instruction_positions(tile, instruction):
        registers = instruction_registers(tile, instruction, position)
        seen.extend(registers)
        for group in range(tile.num_warps // inner):
            part = where[group * inner : (group + 1) * inner][:, :, list(registers)]
            corner = part[0, 0, 0] - single[0, 0, 0]
            # A whole instruction tile, at a corner that is a multiple of the instruction's shape.
            np.testing.assert_array_equal(part, single + corner)
            assert all(at % side == 0 for at, side in zip(corner, instruction.shape, strict=True))
            if group == 0:
                assert tuple(corner) == tuple(p * s for p, s in zip(position, step, strict=True))
    assert sorted(seen) == list(range(tile.num_registers))


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize(("fragment", "k_dim"), [
    (fragments.mfma_a(16, 16), 1),
    (fragments.mfma_b(32, 8), 0),
    (fragments.mfma_a(16, 4), 1),
    (fragments.wmma_rdna3_b(), 0),
    (fragments.wmma_rdna4_a(), 1),
])  # fmt: skip
def test_packed_operands_take_each_k_once_and_lie_side_by_side(fragment: TileLayout, k_dim: int, steps: int) -> None:
    """Each instruction has its rows or columns as before, all lanes of a group the same k, and each k belongs to one instruction."""
    together = packed(fragment, k_dim, steps)
    each, k = fragment.num_registers, fragment.shape[k_dim]
    assert together.num_registers == steps * each and together.shape[k_dim] == steps * k
    single, whole = fragment.coordinate_array()[0], together.coordinate_array()[0]
    np.testing.assert_array_equal(np.diff(whole[:, :, k_dim], axis=1), 1)
    taken: list[int] = []
    for step in range(steps):
        part = whole[:, step * each : (step + 1) * each]
        np.testing.assert_array_equal(part[:, :, 1 - k_dim], single[:, :, 1 - k_dim])
        places = {int(before): int(now) for before, now in zip(single[:, :, k_dim].flat, part[:, :, k_dim].flat, strict=True)}
        for before, now in zip(single[:, :, k_dim].flat, part[:, :, k_dim].flat, strict=True):
            assert places[int(before)] == int(now)
        taken += places.values()
    assert sorted(taken) == list(range(steps * k))


def test_replicas_of_operands() -> None:
    a = tile_fragment(fragments.wgmma_a(2), (128, 64), (2, 2), (0, None))
    assert a.replicated_warp_bits() == 0b1000
    assert fragments.wmma_rdna3_a().replicated_lane_bits() == 16


@pytest.mark.parametrize(("instruction", "shape", "grid"), [
    (fragments.wgmma_accumulator(176), (64, 352), (1, 2)),
    (fragments.mfma_c(16), (16, 24), (1, 1)),
    (fragments.mfma_c(16), (48, 16), (3, 1)),
])  # fmt: skip
def test_impossible_tiles(instruction: TileLayout, shape: tuple[int, int], grid: tuple[int, int]) -> None:
    with pytest.raises(InternalError):
        tile_fragment(instruction, shape, grid)
