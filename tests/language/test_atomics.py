"""Atomic updates in kernels: right on the simulator and under every schedule, no races, and code for all targets."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treadle
import treadle.language as tl
from treadle.errors import TreadleError

SOME = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TARGETS = ["sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@treadle.kernel(target="sim")
def histogram(x: Any, counts: Any, BLOCK: tl.constexpr) -> None:
    start = tl.program_id(0) * BLOCK
    places = start + tl.arange(BLOCK)
    tl.atomic_add(counts[x[start : start + BLOCK]], 1, mask=places < x.shape[0])


@SOME
@given(st.integers(1, 500), st.integers(1, 40), st.integers(0, 99))
def test_a_histogram(n: int, bins: int, seed: int) -> None:
    """Places repeat, within a tile and between workgroups; those outside count nowhere."""
    x = np.random.default_rng(seed).integers(-3, bins + 3, n).astype(np.int32)
    counts = np.zeros(bins, np.int32)
    histogram[-(-n // 128)](x, counts, BLOCK=128)
    np.testing.assert_array_equal(counts, np.bincount(x[(x >= 0) & (x < bins)], minlength=bins))


@treadle.kernel(target="sim")
def column_sums(x: Any, sums: Any, high: Any, low: Any, ROWS: tl.constexpr, COLUMNS: tl.constexpr) -> None:
    m, n = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    part = x[m : m + ROWS, n : n + COLUMNS]
    inside = (m + tl.arange(ROWS) < x.shape[0])[:, None]
    tl.atomic_add(sums[n : n + COLUMNS], tl.sum(part, axis=0))
    tl.atomic_max(high[n : n + COLUMNS], tl.max(tl.where(inside, part, -float("inf")), axis=0))
    tl.atomic_min(low[n : n + COLUMNS], tl.min(tl.where(inside, part, float("inf")), axis=0))


@SOME
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from([np.float32, np.float16, np.float64]))
def test_sums_and_extrema_over_workgroups(rows: int, columns: int, dtype: Any) -> None:
    x = np.random.default_rng(rows).integers(-8, 9, (rows, columns)).astype(dtype)
    sums, high, low = (np.full(columns, start, dtype) for start in (0, -np.inf, np.inf))
    column_sums[-(-rows // 16), -(-columns // 32)](x, sums, high, low, ROWS=16, COLUMNS=32)
    np.testing.assert_array_equal(sums, x.sum(0))
    np.testing.assert_array_equal(high, x.max(0))
    np.testing.assert_array_equal(low, x.min(0))


@treadle.kernel(target="sim")
def bits(x: Any, every: Any, some: Any, odd: Any, BLOCK: tl.constexpr) -> None:
    start = tl.program_id(0) * BLOCK
    values, inside = x[start : start + BLOCK], start + tl.arange(BLOCK) < x.shape[0]
    nowhere = tl.zeros((BLOCK,), tl.int32)
    tl.atomic_and(every[nowhere], values, mask=inside)
    tl.atomic_or(some[nowhere], values, mask=inside)
    tl.atomic_xor(odd[nowhere], values, mask=inside)


def test_bits() -> None:
    x = np.random.default_rng(1).integers(0, 2**30, 77).astype(np.int32)
    every, some, odd = (np.full(1, start, np.int32) for start in (-1, 0, 0))
    bits[5](x, every, some, odd, BLOCK=16)
    assert [every[0], some[0], odd[0]] == [np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]


@treadle.kernel(target="sim")
def split_matmul(a: Any, b: Any, c: Any, PART: tl.constexpr, BM: tl.constexpr = 32, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    m, n, first = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.program_id(2) * PART
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(first, min(first + PART, a.shape[1]), BK):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    tl.atomic_add(c[m : m + BM, n : n + BN], acc)


def test_parts_of_a_product_are_added_by_the_memory() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((45, 301)).astype(np.float16), rng.standard_normal((301, 50)).astype(np.float16)
    c = np.zeros((45, 50), np.float32)
    split_matmul[2, 2, 3](a, b, c, PART=128)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_the_proof_knows_that_updates_commute(target: str) -> None:
    x, counts = np.zeros(500, np.int32), np.zeros(7, np.int32)
    trace = histogram[4].trace(x, counts, BLOCK=128, target=target)
    said = [remark.text for remark in trace.remarks if remark.pass_name == "verify-schedule"]
    assert not any("assum" in text or "not known" in text for text in said), said
    assert {"sm_90a": "red.relaxed.gpu.global.add.u32"}.get(target, "global_atomic_add") in trace.stages["asm"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_code_for_floats(target: str, dtype: Any) -> None:
    x, sums, high, low = np.zeros((70, 70), dtype), *(np.zeros(70, dtype) for _ in range(3))
    text = column_sums[5, 3].trace(x, sums, high, low, ROWS=16, COLUMNS=32, target=target).stages["asm"]
    want = {"sm_90a": {2: "add.noftz.f16", 4: "add.f32", 8: "add.f64"}[np.dtype(dtype).itemsize]}
    is_native = target == "sm_90a" or dtype is np.float32 or (dtype is np.float64 and target.startswith("gfx9"))
    assert (want.get(target) or ("global_atomic_add_f" if is_native else "atomic_cmpswap")) in text


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_products_are_still_pipelined(target: str) -> None:
    a, b, c = np.zeros((64, 512), np.float16), np.zeros((512, 64), np.float16), np.zeros((64, 64), np.float32)
    split_matmul[2, 2, 3].trace(a, b, c, PART=256, BM=64, BN=64, BK=64, target=target)


def mixed(x: Any, SIDE: tl.constexpr) -> None:
    tl.atomic_add(x[0:SIDE], 1.0)
    tl.atomic_max(x[0:SIDE], 1.0)


def read_as_well(x: Any, y: Any, SIDE: tl.constexpr) -> None:
    tl.atomic_add(x[0:SIDE], 1.0)
    start = tl.program_id(0) * SIDE
    y[start : start + SIDE] = x[0:SIDE]


@pytest.mark.parametrize("function", [mixed, read_as_well])
def test_what_does_not_commute_is_a_race(function: Any) -> None:
    arrays = [np.zeros(64, np.float32)] * (1 if function is mixed else 2)
    with pytest.raises(TreadleError) as caught:
        treadle.kernel(function)[2].trace(*arrays, SIDE=32, target="gfx942")
    assert caught.value.code in ("TR410", "TR415"), caught.value
