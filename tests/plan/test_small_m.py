"""Tiles of contractions with few rows: the model against measured times, what a choice must respect."""

import json
import math
from itertools import groupby
from pathlib import Path

import pytest

from treadle.machine import target_spec
from treadle.plan.small_m import (
    SmallShape,
    StreamTile,
    SwappedTile,
    stream_clocks,
    stream_tiles,
    swapped_clocks,
    swapped_tile,
    swapped_tiles,
)

H200 = target_spec("sm_90a")
INSTRUCTION = H200.instruction("wgmma_m64k16_f32_f16_f16")
Row = tuple[int, int, int, int, int, int, int, float]
ROWS: list[Row] = [tuple(row) for row in json.loads((Path(__file__).parent / "small_m_h200.json").read_text())["measured"]]
SHAPES = [(shape, list(rows)) for shape, rows in groupby(ROWS, key=lambda row: row[:3])]
WORSE = 0.03
"""How much slower than the best measured tile the model's pick may be."""


def shape_of(few: int, many: int | None, k: int | None, *, roots: int = 1) -> SmallShape:
    return SmallShape(few, many, k, 2, 2, 4, along_k=True, vector=8, roots=roots)


def modelled_us(row: Row) -> float:
    few, many, k, tile_many, tile_k, ahead, warps, _ = row
    shape = shape_of(few, many, k)
    if few == 1:
        clocks = stream_clocks(StreamTile(few, tile_many, tile_k, ahead, warps), shape, H200)
    else:
        clocks = swapped_clocks(SwappedTile(64, tile_many, few, tile_k, ahead, warps), shape, H200)
    return clocks / H200.clock_mhz


@pytest.mark.parametrize(("shape", "rows"), SHAPES, ids=[str(shape) for shape, _ in SHAPES])
def test_the_pick_among_the_measured_is_nearly_the_best(shape: tuple[int, int, int], rows: list[Row]) -> None:
    assert min(rows, key=modelled_us)[-1] <= min(row[-1] for row in rows) * (1 + WORSE)


@pytest.mark.parametrize("few", [1, 16])
def test_modelled_times_are_near_the_measured(few: int) -> None:
    errors = [math.log(modelled_us(row) / row[-1]) for row in ROWS if row[0] == few]
    assert math.sqrt(sum(e * e for e in errors) / len(errors)) < 0.035
    assert max(abs(e) for e in errors) < 0.11


@pytest.mark.parametrize(
    ("many", "k", "tile"),
    [
        (6144, 4096, StreamTile(1, 12, 256, 2, 4)),
        (4096, 4096, StreamTile(1, 8, 256, 3, 4)),
        (4096, 14336, StreamTile(1, 8, 256, 3, 4)),
        # Between the measured two and four steps ahead.
        (28672, 4096, StreamTile(1, 8, 256, 3, 4)),
    ],
    ids=["qkv", "o", "down", "gate_up"],
)
def test_choices_for_one_row(many: int, k: int, tile: StreamTile) -> None:
    assert stream_tiles(shape_of(1, many, k), H200)[0] == tile
    taken = [row[-1] for row in ROWS if row[:-1] == (1, many, k, tile.many, tile.k, tile.ahead, tile.warps)]
    assert many == 28672 or taken[0] <= min(row[-1] for row in ROWS if row[:3] == (1, many, k)) * (1 + WORSE)


@pytest.mark.parametrize(
    ("many", "k", "step"), [(6144, 4096, 48), (4096, 4096, 64), (28672, 4096, 56), (4096, 14336, 64)], ids=["qkv", "o", "gate_up", "down"]
)
def test_choices_for_16_rows(many: int, k: int, step: int) -> None:
    assert swapped_tile(INSTRUCTION, shape_of(16, many, k), H200) == SwappedTile(64, step, 16, 128, 8, 4)


@pytest.mark.parametrize("roots", [1, 2, 3])
@pytest.mark.parametrize("few", [9, 33, 64])
@pytest.mark.parametrize("k", [8, 64, 72, 136, 1000, None])
def test_rings_fit_and_are_no_longer_than_the_sum(few: int, k: int | None, roots: int) -> None:
    shape = shape_of(few, 1000, k, roots=roots)
    found = swapped_tiles(INSTRUCTION, shape, H200)
    assert found
    for tile in found:
        assert tile.slots * (roots * 64 + tile.few) * tile.k * 2 + roots * 64 * tile.few * 4 <= H200.shared_bytes_per_workgroup
        assert tile.slots >= 2
        assert k is None or tile.slots <= max(2, -(-k // tile.k))
        assert tile.k == 64 or k is None or k > 64


def test_what_is_asked_for_is_taken() -> None:
    tile = swapped_tile(INSTRUCTION, shape_of(16, 6144, 4096), H200, step=24, k=64)
    assert tile is not None
    assert (tile.step, tile.k) == (24, 64)
    assert swapped_tile(INSTRUCTION, shape_of(65, 6144, 4096), H200) is None
