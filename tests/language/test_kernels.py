"""Kernels in Python on the simulator, at odd and random sizes, against NumPy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treadle
import treadle.language as tl

SOME = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Array = Any


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@treadle.kernel(target="sim")
def add(x: Any, y: Any, out: Any, BLOCK: tl.constexpr) -> None:
    start = tl.program_id(0) * BLOCK
    out[start : start + BLOCK] = x[start : start + BLOCK] + y[start : start + BLOCK]


@SOME
@given(st.integers(1, 700), st.sampled_from([32, 96, 128]))
def test_vector_add(n: int, block: int) -> None:
    x, y = normal(1, n), normal(2, n)
    out = np.full(n, np.nan, np.float32)
    add[-(-n // block)](x, y, out, BLOCK=block)
    np.testing.assert_array_equal(out, x + y)


@treadle.kernel(target="sim")
def softmax(x: Any, y: Any, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0)
    values = tl.load(x[row, 0:BLOCK], other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    y[row, 0:BLOCK] = e / tl.sum(e, axis=0)


@SOME
@given(st.integers(1, 9), st.integers(1, 256))
def test_softmax_of_rows(rows: int, columns: int) -> None:
    x = normal(3, rows, columns)
    y = np.zeros_like(x)
    softmax[(rows,)](x, y, BLOCK=256)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


@treadle.kernel(target="sim")
def matmul(a: Any, b: Any, c: Any, BM: tl.constexpr = 32, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = acc


@SOME
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 100), st.sampled_from([np.float16, np.float32]), st.booleans(), st.booleans())
def test_matmul_of_any_layout(m: int, n: int, k: int, dtype: Any, a_turned: bool, b_turned: bool) -> None:
    a = normal(4, k, m, dtype=dtype).T if a_turned else normal(4, m, k, dtype=dtype)
    b = normal(5, n, k, dtype=dtype).T if b_turned else normal(5, k, n, dtype=dtype)
    c = np.full((m, n), np.nan, np.float32)
    matmul[grid_of](a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4 * math.sqrt(k) * 10, rtol=1e-3)


def grid_of(arguments: Mapping[str, Any]) -> tuple[int, int]:
    a, b, _, rows, columns, _ = arguments.values()
    return -(-a.shape[0] // rows), -(-b.shape[1] // columns)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@treadle.kernel(target="sim")
def linear(x: Any, w: Any, bias: Any, y: Any, ACTIVATION: Any, BM: tl.constexpr = 32, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, x.shape[1], BK):
        acc = tl.dot(x[m : m + BM, k : k + BK], w[n : n + BN, k : k + BK].T, acc)
    acc += bias[n : n + BN][None, :]
    if ACTIVATION is not None:
        acc = ACTIVATION(acc)
    y[m : m + BM, n : n + BN] = acc


@pytest.mark.parametrize("activation", [None, gelu])
def test_helper_functions_are_compiled_where_they_are_called(activation: Any) -> None:
    x, w, bias = normal(6, 45, 50, dtype=np.float16), normal(7, 70, 50, dtype=np.float16), normal(8, 70)
    y = np.zeros((45, 70), np.float16)
    linear[2, 2](x, w, bias, y, activation)
    want = x.astype(np.float64) @ w.astype(np.float64).T + bias
    if activation is not None:
        want = 0.5 * want * (1 + np.vectorize(math.erf)(want / math.sqrt(2)))
    np.testing.assert_allclose(y, want, atol=2e-2, rtol=2e-3)


@treadle.kernel(target="sim")
def layer_norm(x: Any, scale: Any, shift: Any, y: Any, EPS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    for row in range(tl.program_id(0), x.shape[0], tl.num_programs(0)):
        v = x[row, 0:BLOCK].to(tl.float32)
        columns = tl.arange(BLOCK)
        mean = tl.sum(v) / x.shape[1]
        centred = tl.where(columns < x.shape[1], v - mean, 0.0)
        variance = tl.sum(centred * centred) / x.shape[1]
        y[row, 0:BLOCK] = centred * tl.rsqrt(variance + EPS) * scale[0:BLOCK] + shift[0:BLOCK]


@SOME
@given(st.integers(1, 9), st.integers(1, 128), st.integers(1, 4))
def test_persistent_layer_norm(rows: int, columns: int, programs: int) -> None:
    x, scale, shift = normal(9, rows, columns, dtype=np.float16), normal(10, columns), normal(11, columns)
    y = np.zeros((rows, columns), np.float32)
    layer_norm[programs](x, scale, shift, y, EPS=1e-5, BLOCK=128)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(y, want, atol=1e-4, rtol=1e-4)


@treadle.kernel(target="sim")
def extrema(x: Any, where_largest: Any, where_smallest: Any, largest: Any, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0)
    inside = tl.arange(BLOCK) < x.shape[1]
    values = x[row, 0:BLOCK]
    where_largest[row] = tl.argmax(tl.where(inside, values, -float("inf")), axis=0)
    where_smallest[row] = tl.argmin(tl.where(inside, values, float("inf")), axis=0)
    largest[row] = values.max()


@SOME
@given(st.integers(1, 5), st.integers(1, 64), st.booleans(), st.integers(0, 99))
def test_extrema_as_in_numpy(rows: int, columns: int, with_nan: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (rows, columns)).astype(np.float32)  # many ties
    if with_nan:
        x[rng.random((rows, columns)) < 0.1] = np.nan
    high, low, value = np.zeros(rows, np.int32), np.zeros(rows, np.int32), np.zeros(rows, np.float32)
    extrema[rows](x, high, low, value, BLOCK=64)
    np.testing.assert_array_equal(high, np.argmax(x, 1))
    np.testing.assert_array_equal(low, np.argmin(x, 1))
    np.testing.assert_array_equal(np.isnan(value), np.isnan(x).any(1))


@treadle.kernel(target="sim")
def embedding(table: Any, places: Any, out: Any, ROWS: tl.constexpr, COLUMNS: tl.constexpr) -> None:
    first = tl.program_id(0) * ROWS
    rows = places[first : first + ROWS]
    out[first : first + ROWS, 0:COLUMNS] = table[rows, 0:COLUMNS]


def test_gather_by_an_index_tile() -> None:
    table, places = normal(12, 30, 20), np.array([3, 29, 0, 7, 7], np.int32)
    out = np.zeros((5, 20), np.float32)
    embedding[2](table, places, out, ROWS=4, COLUMNS=32)
    np.testing.assert_array_equal(out, table[places])


@treadle.kernel(target="sim")
def branches(x: Any, y: Any, limit: Any, SIDE: tl.constexpr) -> None:
    row = tl.program_id(0) * SIDE
    value = x[row : row + SIDE]
    count = 0
    if row < limit and limit > 1:
        value = value * 2.0
        count = count + 1
    else:
        value = value - 1.0
    for step in tl.static_range(3):
        value = value + step
    for _ in range(count):
        value = value + 100.0
    y[row : row + SIDE] = value


@pytest.mark.parametrize("limit", [0, 1, 8, 17, 100])
def test_branches_and_loops(limit: int) -> None:
    x = normal(13, 37)
    y = np.zeros_like(x)
    branches[5](x, y, limit, SIDE=8)
    block = np.arange(37) // 8 * 8
    taken = (block < limit) & (limit > 1)
    np.testing.assert_allclose(y, np.where(taken, x * 2 + 103, x - 1 + 3), rtol=1e-6)


@treadle.kernel(target="sim")
def in_place(x: Any, by: Any, SIDE: tl.constexpr) -> None:
    start = tl.program_id(0) * SIDE
    x[start : start + SIDE] *= by


def test_an_array_that_is_read_and_written_is_changed_in_place() -> None:
    x = normal(14, 40)
    want = x * np.float32(1.5)
    in_place[3](x, 1.5, SIDE=16)
    np.testing.assert_array_equal(x, want)


@treadle.kernel(target="sim")
def shifted(x: Any, steps: int, SIDE: tl.constexpr) -> None:
    """Each workgroup turns its row round by one, several times: what a thread reads, others have written."""
    row = tl.program_id(0)
    places = tl.arange(SIDE)
    for _ in range(steps):
        x[row, 0:SIDE] = x[tl.zeros((SIDE,), tl.int32) + row, (places + 1) % SIDE]


@pytest.mark.parametrize("side", [1, 8, 64])
def test_rows_are_turned_in_place(side: int) -> None:
    x = normal(16, 5, side)
    want = np.roll(x, -3, axis=1)
    shifted[5](x, 3, SIDE=side)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("side", [1, 16, 1024])
def test_arrays_changed_in_place_are_proven(target: str, side: int) -> None:
    """Few elements are held by several threads: a barrier parts the loads from the stores. Others need none."""
    text = in_place[3].inspect(normal(14, 4096), 1.5, SIDE=side).ir("schedule", target)
    assert ("sync.barrier" in text) == (side < 1024)


@treadle.kernel(target="sim")
def welford(x: Any, mean: Any, variance: Any, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0)
    inside = tl.arange(BLOCK) < x.shape[1]
    values = x[row, 0:BLOCK]
    count, average, m2 = tl.reduce((tl.where(inside, 1.0, 0.0), values, tl.zeros((BLOCK,))), 0, merge)
    mean[row] = average
    variance[row] = m2 / count


def merge(count_a: Any, mean_a: Any, m2_a: Any, count_b: Any, mean_b: Any, m2_b: Any) -> Any:
    count = count_a + count_b
    delta = mean_b - mean_a
    share = tl.where(count > 0.0, count_b / tl.maximum(count, 1.0), 0.0)
    return count, mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share


@SOME
@given(st.integers(1, 6), st.integers(1, 128))
def test_several_values_are_reduced_together(rows: int, columns: int) -> None:
    x = normal(15, rows, columns) + 100
    mean, variance = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    welford[rows](x, mean, variance, BLOCK=128)
    np.testing.assert_allclose(mean, x.mean(1, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(variance, x.var(1, dtype=np.float64), rtol=1e-3, atol=1e-4)


def test_sizes_are_not_compiled_in() -> None:
    compiled: list[str] = []
    for n in (100, 36, 700):  # a class of sizes: multiples of four elements
        out = np.zeros(n, np.float32)
        add[-(-n // 128)](normal(1, n), normal(2, n), out, BLOCK=128)
        compiled.append(repr(add))
    assert len(set(compiled[1:])) == 1


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_the_schedule_is_proven_for_gpus(target: str) -> None:
    a, b, c = normal(1, 70, 104, dtype=np.float16), normal(2, 104, 136, dtype=np.float16), np.zeros((70, 136), np.float32)
    text = matmul[2, 2].trace(a, b, c, BM=64, BN=64, BK=64, target=target, until="schedule").stages["schedule"]
    assert ("pipe.roles" in text) == (target == "sm_90a")
