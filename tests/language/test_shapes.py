"""Reshapes, transposes, tiles put together and taken apart, fronts of arrays and indices from memory, against NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treadle
import treadle.language as tl
from treadle.layout.bits import log2_exact
from treadle.layout.tile_layout import TileLayout

SOME = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TARGETS = ["sm_90a", "gfx942", "gfx1201"]


@treadle.kernel(target="sim")
def reshaped(x: Any, y: Any, FROM: tl.constexpr, VIA: tl.constexpr, ORDER: tl.constexpr) -> None:
    part = tl.program_id(0)
    whole = x[part, 0 : FROM[0], 0 : FROM[1]].reshape(VIA)
    y[part, 0 : FROM[0] * FROM[1]] = tl.ravel(whole.permute(ORDER))


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]:
    bits = draw(st.lists(st.integers(0, 4), min_size=2, max_size=4).filter(lambda found: sum(found) <= 11))
    first = draw(st.integers(0, sum(bits)))
    via = tuple(1 << bit for bit in bits)
    return (1 << first, 1 << (sum(bits) - first)), via, tuple(draw(st.permutations(range(len(via)))))


@SOME
@given(shapes())
def test_reshapes_and_permutations(shape: Any) -> None:
    sides, via, order = shape
    x = np.arange(2 * math.prod(sides), dtype=np.float32).reshape(2, *sides)
    y = np.zeros((2, math.prod(sides)), np.float32)
    reshaped[2](x, y, FROM=sides, VIA=via, ORDER=order)
    for part in range(2):
        np.testing.assert_array_equal(y[part], x[part].reshape(via).transpose(order).ravel())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [((32, 64), (8, 4, 64), (2, 0, 1)), ((4, 512), (64, 32), (1, 0)), ((1, 4), (2, 2), (1, 0))])
def test_reshapes_are_compiled(target: str, shape: Any) -> None:
    sides, via, order = shape
    x, y = np.zeros((1, *sides), np.float32), np.zeros((1, math.prod(sides)), np.float32)
    reshaped[1].trace(x, y, FROM=sides, VIA=via, ORDER=order, target=target)


@SOME
@given(st.data())
def test_reshaped_layouts_keep_elements_in_their_registers(data: st.DataObject) -> None:
    """Whatever holds element n of the row-major order holds it in the new shape too."""
    sides = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    bases = [tuple(1 << bit if at == axis else 0 for at in range(len(sides))) for axis, count in enumerate(sides) for bit in range(count)]
    order = data.draw(st.permutations(bases))
    cuts = sorted(data.draw(st.tuples(*[st.integers(0, len(order))] * 2)))
    repeat = tuple(1 << data.draw(st.integers(0, 2)) for _ in sides)
    zero = (0,) * len(sides)
    layout = TileLayout(tuple(order[: cuts[0]]), (*order[cuts[0] : cuts[1]], zero), tuple(order[cuts[1] :]), repeat)
    total = log2_exact(math.prod(layout.shape))
    first = data.draw(st.integers(0, total))
    shape = (1 << first, 1 << (total - first))
    before = np.ravel_multi_index(np.moveaxis(layout.coordinate_array(), -1, 0), layout.shape)
    after = np.ravel_multi_index(np.moveaxis(layout.reshape(shape).coordinate_array(), -1, 0), shape)
    np.testing.assert_array_equal(before, after)


@treadle.kernel(target="sim")
def pairs(x: Any, y: Any, joined: Any, behind: Any, left: Any, right: Any, N: tl.constexpr) -> None:
    start = tl.program_id(0) * N
    a, b = x[start : start + N], y[start : start + N]
    both = tl.join(a, b)
    joined[start : start + N, 0:2] = both
    behind[tl.program_id(0), 0 : 2 * N] = tl.cat(a, b)
    first, last = tl.split(both)
    left[start : start + N] = first
    right[start : start + N] = last


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
def test_tiles_are_joined_and_split(dtype: Any) -> None:
    x, y = np.arange(50).astype(dtype), -np.arange(50).astype(dtype)
    joined, behind = np.zeros((50, 2), dtype), np.zeros((4, 32), dtype)
    left, right = np.ones(50, dtype), np.ones(50, dtype)
    pairs[4](x, y, joined, behind, left, right, N=16)
    np.testing.assert_array_equal(joined, np.stack([x, y], 1))
    padded = [np.pad(v, (0, 14)).reshape(4, 16) for v in (x, y)]
    np.testing.assert_array_equal(behind, np.concatenate(padded, 1))
    assert left.tobytes() == x.tobytes() and right.tobytes() == y.tobytes()  # zeros keep their signs


@treadle.kernel(target="sim")
def segments(x: Any, ends: Any, out: Any, SIDE: tl.constexpr) -> None:
    """Each workgroup has a run of rows, which it raises by its number."""
    group = tl.program_id(0)
    first = 0
    if group > 0:
        first = tl.index(ends[group - 1])
    last = tl.index(ends[group])
    rows = out[:last]
    for m in range(first, last, SIDE):
        rows[m : m + SIDE, 0:8] = x[m : m + SIDE, 0:8] + group


@SOME
@given(st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_runs_whose_ends_stand_in_memory(counts: list[int]) -> None:
    ends = np.cumsum(counts).astype(np.int32)
    x = np.random.default_rng(0).standard_normal((max(int(ends[-1]), 1), 7)).astype(np.float32)
    out = np.zeros_like(x)
    segments[len(counts)](x, ends, out, SIDE=8)
    want = x[: ends[-1]] + np.repeat(np.arange(len(counts), dtype=np.float32), counts)[:, None]
    np.testing.assert_array_equal(out[: ends[-1]], want)


@pytest.mark.parametrize("target", TARGETS)
def test_indices_from_memory_are_compiled(target: str) -> None:
    trace = segments[3].trace(np.zeros((40, 7), np.float32), np.zeros(3, np.int32), np.zeros((40, 7), np.float32), SIDE=8, target=target)
    assert "tile.extract" in trace.stages["schedule"]
