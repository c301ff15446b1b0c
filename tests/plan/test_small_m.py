"""Tiles of contractions with few rows: the model against measured times, what a choice must respect."""

import json
import math
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan.refit import refit, with_rates

from treadle.machine import target_spec
from treadle.machine.rates import Rates
from treadle.machine.spec import TargetSpec
from treadle.plan.part_merges import last_clocks, traffic_clocks
from treadle.plan.small_m import (
    SmallShape,
    StreamTile,
    SwappedTile,
    stream_clocks,
    stream_tile,
    stream_tiles,
    swapped_clocks,
    swapped_tile,
    swapped_tiles,
)
from treadle.plan.split_parts import merge_seconds

H200 = target_spec("sm_90a")
INSTRUCTION = H200.instruction("wgmma_m64k16_f32_f16_f16")
Row = tuple[int, int, int, int, int, int, int, float]
ROWS: list[Row] = [tuple(row) for row in json.loads((Path(__file__).parent / "small_m_h200.json").read_text())["measured"]]
SHAPES = [(shape, list(rows)) for shape, rows in groupby(ROWS, key=lambda row: row[:3])]


def shape_of(few: int, many: int | None, k: int | None, *, roots: int = 1) -> SmallShape:
    return SmallShape(few, many, k, 2, 2, 4, along_k=True, vector=8, roots=roots)


def modelled_us(row: Row, spec: TargetSpec = H200) -> float:
    few, many, k, tile_many, tile_k, ahead, warps, _ = row
    shape = shape_of(few, many, k)
    if few == 1:
        clocks = stream_clocks(StreamTile(few, tile_many, tile_k, ahead, warps), shape, spec)
    else:
        clocks = swapped_clocks(SwappedTile(64, tile_many, few, tile_k, ahead, warps), shape, spec)
    return clocks / spec.clock_mhz


@lru_cache
def fitted_without(shape: tuple[int, ...]) -> TargetSpec:
    """A machine whose constants are fitted to the other measured shapes with so many rows alone."""
    rows = [row for row in ROWS if row[0] == shape[0] and row[:3] != shape]

    def spec_of(rates: Rates) -> TargetSpec:
        return with_rates("sm_90a", lambda _: rates)

    def loss(rates: Rates) -> float:
        spec = spec_of(rates)
        return sum(abs(math.log(modelled_us(row, spec) / row[-1])) for row in rows)

    kept = H200.rates
    streaming = refit(kept.streaming, lambda one: loss(replace(kept, streaming=one)))
    kept = replace(kept, streaming=streaming)
    if shape[0] > 1:
        kept = replace(kept, swapped=refit(kept.swapped, lambda one: loss(replace(kept, swapped=one))))
    return spec_of(kept)


@pytest.mark.parametrize(("shape", "rows"), SHAPES, ids=[str(shape) for shape, _ in SHAPES])
def test_times_of_a_shape_that_was_not_seen(shape: tuple[int, int, int], rows: list[Row]) -> None:
    """The model keeps within 20 % of what was measured, and its pick among the measured tiles within 3 % of the best."""
    spec = fitted_without(shape)
    assert all(abs(math.log(modelled_us(row, spec) / row[-1])) < 0.2 for row in rows)
    assert min(rows, key=lambda row: modelled_us(row, spec))[-1] <= min(row[-1] for row in rows) * 1.03


@pytest.mark.parametrize(("shape", "rows"), SHAPES, ids=[str(shape) for shape, _ in SHAPES])
def test_the_pick_among_the_measured_is_nearly_the_best(shape: tuple[int, int, int], rows: list[Row]) -> None:
    """With the constants that are kept, which have seen these shapes."""
    assert min(rows, key=modelled_us)[-1] <= min(row[-1] for row in rows) * 1.03


def swapped_error(row: list[Any]) -> float:
    """Measured over modelled time of a random contraction, and of its merge where there is one; their logarithm."""
    _, few, many, k, parts, step, columns, tile_k, slots, of_large, of_small, merge, us = row
    width = 4 if merge else 2
    shape = replace(shape_of(few, many, k), batch=parts, pitch_bytes=(of_large, of_small), result_bytes=width, takes_turns=not merge)
    tile = SwappedTile(64, step, columns, tile_k, slots, 4)
    modelled = swapped_clocks(tile, shape, H200) / H200.clock_mhz
    if merge == "last":
        clocks = last_clocks(parts, tile.rows * tile.few, H200) + traffic_clocks(parts * few * many * 4, H200)
        modelled += clocks / H200.clock_mhz
    elif merge:
        modelled += 1e6 * merge_seconds(parts, few * many, 4, H200)
    return math.log(us / modelled)


def test_swapped_kernels_and_their_merges_are_modelled_as_they_were_measured() -> None:
    """No rate is fitted to these."""
    rows = json.loads((Path(__file__).parent / "swapped_times_h200.json").read_text())["measured"]
    errors = {merge: [swapped_error(row) for row in rows if row[-2] == merge] for merge in ("", "last", "kernel")}
    assert abs(mean(errors[""])) < 0.03
    # Two rows are merged by the last, one by a kernel: swapped kernels take the rates of roles, which a fit made 5 % slower here.
    assert all(abs(mean(found)) < 0.07 for found in errors.values())
    far = sorted(abs(error) for found in errors.values() for error in found)
    assert far[len(far) // 2] < 0.06 and far[len(far) * 9 // 10] < 0.12


def test_workgroups_of_one_tile_each_begin_anew_in_each_round() -> None:
    """Parts that differ in length, or are merged in the kernel: no workgroup goes on to another tile."""
    for many, is_longer in ((64 * H200.compute_units, False), (65 * H200.compute_units, True)):
        shape = shape_of(32, many, 4096)
        tile = SwappedTile(64, 64, 32, 64, 8, 4)
        alone = swapped_clocks(tile, replace(shape, takes_turns=False), H200)
        assert (alone > swapped_clocks(tile, shape, H200)) == is_longer


@pytest.mark.parametrize("apart", [16, 32])
def test_rows_that_begin_inside_a_request_keep_the_cache_busy(apart: int) -> None:
    tile, shape = SwappedTile(64, 64, 64, 64, 8, 4), shape_of(64, 64 * H200.compute_units, 4096)
    assert swapped_clocks(tile, replace(shape, pitch_bytes=(apart, apart)), H200) > 1.02 * swapped_clocks(tile, shape, H200)


@given(many=st.integers(64, 50_000), k=st.integers(64, 20_000), few=st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_streaming_tiles_are_in_the_order_of_their_times(many: int, k: int, few: int) -> None:
    """Up to what counts as alike; more to read takes no less time."""
    shape = shape_of(few, many, k)
    found = stream_tiles(shape, H200)
    times = [stream_clocks(tile, shape, H200) for tile in found]
    assert times[0] <= min(times) * (1 + H200.rates.streaming.alike)
    longer = shape_of(few, many, 2 * k)
    assert all(stream_clocks(tile, shape, H200) <= stream_clocks(tile, longer, H200) for tile in found)


@given(many=st.integers(64, 50_000), k=st.integers(64, 20_000), few=st.integers(1, 64))
@settings(max_examples=50, deadline=None)
def test_swapped_tiles_are_in_the_order_of_their_times(many: int, k: int, few: int) -> None:
    shape = shape_of(few, many, k)
    times = [swapped_clocks(tile, shape, H200) for tile in swapped_tiles(INSTRUCTION, shape, H200)]
    assert times == sorted(times)
    for tile in swapped_tiles(INSTRUCTION, shape, H200):
        assert swapped_clocks(tile, shape, H200) <= swapped_clocks(tile, shape_of(few, 2 * many, k), H200)


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


@settings(max_examples=60)
@given(
    st.sampled_from(["sm_90a", "gfx942", "gfx1201"]),
    st.integers(1, 8),
    st.integers(1, 20000),
    st.integers(1, 20000),
    st.booleans(),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 64),
)
def test_the_best_streamed_tile_is_found_without_the_others(
    target: str, few: int, many: int, k: int, along_k: bool, vector: int, batch: int
) -> None:
    spec = target_spec(target)
    shape = SmallShape(few, many, k, 2, 2, 4, along_k=along_k, vector=vector, batch=batch)
    found = stream_tiles(shape, spec)
    assert stream_tile(shape, spec) == (found[0] if found else None)
    clocks = [stream_clocks(tile, shape, spec) for tile in found]
    assert not found or clocks[0] <= min(clocks) * (1 + spec.rates.streaming.alike)
