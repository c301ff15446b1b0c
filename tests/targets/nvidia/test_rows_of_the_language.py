"""Rows on sm_90a as the language writes them: a barrier each reduction, one comparison for neighbours, loads that stand early."""

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.plan.shared_packing import BufferDemand
from treadle.transforms.kernel.allocate_shared import packed


@treadle.kernel(target="sim")
def normalised(x: Any, weight: Any, y: Any, BLOCK: tl.constexpr, EARLY: tl.constexpr = False) -> None:
    row = tl.program_id(0)
    values = x[row, 0:BLOCK].to(tl.float32)
    factor = tl.load(weight[0:BLOCK]) if EARLY else weight[0:BLOCK]
    mean = tl.sum(values, axis=0) / x.shape[1]
    centred = tl.where(tl.arange(BLOCK) < x.shape[1], values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / x.shape[1] + 1e-5)
    y[row, 0:BLOCK] = centred * scale * factor


def asm(columns: int, *, early: bool = False) -> list[str]:
    """The lines of PTX of a row's kernel."""
    x, weight = np.zeros((7, columns), np.float16), np.zeros(columns, np.float16)
    program = normalised[7].compile(x, weight, np.zeros_like(x), BLOCK=1024, EARLY=early, num_warps=4, target="sm_90a")
    return program.stages["asm"].splitlines()


def test_each_reduction_takes_one_barrier() -> None:
    assert sum("bar.sync" in line for line in asm(1000)) == 2


def test_no_shuffle_tells_warps_apart_where_nothing_asks() -> None:
    assert not any("shfl.sync.idx" in line for line in asm(1000))


def test_neighbours_share_a_comparison() -> None:
    """Eight elements a thread: one comparison where 8 divides the row, else one each."""
    shared, apart = (sum("setp.lt.s32" in line or "setp.gt.s32" in line for line in asm(columns)) for columns in (1000, 1001))
    assert shared <= 2 and apart >= 8


@pytest.mark.parametrize("early", [False, True])
def test_loads_stay_ahead_of_the_barrier_that_they_stand_ahead_of(early: bool) -> None:
    lines = [line for line in asm(1000, early=early) if "ld.global" in line or "bar.sync" in line]
    assert ["bar" in line for line in lines] == ([False, False, True, True] if early else [False, True, True, False])


@pytest.mark.parametrize("columns", [1000, 1001, 3])
def test_results(columns: int) -> None:
    rng = np.random.default_rng(columns)
    x, weight = rng.standard_normal((7, columns)).astype(np.float16), rng.standard_normal(columns).astype(np.float16)
    y = np.zeros_like(x)
    normalised[7](x, weight, y, BLOCK=1024, num_warps=4)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(y, want, atol=4e-3 * max(1, np.abs(want).max()))


def test_small_buffers_share_no_bytes_where_that_takes_little() -> None:
    small, large = BufferDemand(64, 16, 0, 1), BufferDemand(4096, 16, 0, 1)
    later = [BufferDemand(64, 16, 2, 3), BufferDemand(4096, 16, 2, 3)]
    offsets, total = packed([small, large, *later], 1 << 16)
    assert total == 4096 + 128 and len({offsets[0], offsets[2]}) == 2 and offsets[1] == offsets[3]
    assert packed([small, large, *later], 4096 + 64)[1] == 4096 + 64  # there is no more
    many = [BufferDemand(1024, 16, number, number) for number in range(9)]
    assert packed(many, 1 << 16)[1] == 1024
