"""Arrays of more than 2^31 elements on a real GPU: every element of the results is compared.

Needs up to 20 GB of the GPU and 30 GB of the host; skipped where either has less.
"""

import gc
import os
from collections.abc import Iterator
from typing import Any

import filelock
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from targets.simt.test_wide_indices_on_host import MATMUL, elementwise, reduction

import treadle
from treadle.runtime.cuda import CudaDevice

GB = 10**9
pytestmark = pytest.mark.usefixtures("room")
PIECE = 1 << 28


@pytest.fixture
def room(device: CudaDevice, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[None]:
    """Skips where memory is short. One test at a time, whatever the workers, and each gives back what it took: several do not fit."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with filelock.FileLock(shared / "large-arrays.lock"):
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        if host < 30 * GB:
            pytest.skip(f"{host // GB} GB of host memory are free, these tests need 30")
        device.activate()
        probe = device.pool.get(20 * GB, 0)
        if probe is None:
            pytest.skip(f"{device.name} has no 20 GB left")
        del probe
        device.pool.trim()
        yield
        gc.collect()
        device.pool.trim()


def pattern(count: int) -> NDArray[np.int8]:
    """Numbers whose period (251) divides no power of two, so that a distance of 2^31 or 2^32 shows."""
    return np.resize(np.arange(251, dtype=np.uint8).view(np.int8), count)


def equal(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Compared piece by piece: no array of booleans as large."""
    return all(np.array_equal(found[at : at + PIECE], wanted[at : at + PIECE]) for at in range(0, found.shape[0], PIECE))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("size", [2**31 + 1, 2**32 + 3, 5 * GB])
def test_elementwise(target: str, size: int, dynamic: bool) -> None:
    program = treadle.compile(elementwise((size,), "i8", [(0,)], [None], dynamic=dynamic), target)
    x = pattern(size)
    (made,) = program(x)
    found = made.numpy()
    x += 1
    assert equal(found, x)


@pytest.mark.parametrize("columns", [3 * GB, 2**31 + 16, 2**31 + 3])
def test_rows_of_integers(target: str, columns: int) -> None:
    program = treadle.compile(reduction(2, columns, "i8"), target)
    x = pattern(2 * columns).reshape(2, columns)
    x[1, -1] = 100
    wanted = [sum(int(row[at : at + PIECE].sum(dtype=np.int64)) for at in range(0, columns, PIECE)) for row in x]
    (made,) = program(x)
    assert [int(v) for v in made.numpy()] == [(w + (1 << 31)) % (1 << 32) - (1 << 31) for w in wanted]


def test_rows_of_8_bit_floats(target: str) -> None:
    """Few elements are not zero, so that sums of f32 are exact; they lie around the edges."""
    columns = 3 * GB
    x = np.zeros((1, columns), ml_dtypes.float8_e4m3fn)
    spots = [0, 1, 2**31 - 1, 2**31, 2**31 + 1, columns - 2**31, columns - 1]
    x[0, spots] = np.asarray([1, 2, 4, 8, 16, 32, 64], ml_dtypes.float8_e4m3fn)
    (made,) = treadle.compile(reduction(1, columns, "f8E4M3FN"), target)(x)
    assert float(made.numpy()[0]) == 127.0


def test_few_columns_of_many_rows(target: str) -> None:
    rows = 2**31 // 3 + 100
    program = treadle.compile(reduction(rows, 4, "i8"), target)  # 2.9e9 elements
    x = pattern(4 * rows).reshape(rows, 4)
    found = program(x)[0].numpy()
    assert all(np.array_equal(found[at : at + PIECE], x[at : at + PIECE].sum(1, dtype=np.int32)) for at in range(0, rows, PIECE))


@pytest.mark.parametrize(("m", "n", "k"), [(70000, 40000, 8), (70000, 40000, 64), (70001, 40003, 7), (2**31 + 100, 1, 2)])
def test_products(target: str, m: int, n: int, k: int) -> None:
    """More than 2^31 results; one axis of so many rows."""
    rng = np.random.default_rng(0)
    a = np.resize(rng.integers(-8, 8, (10007, k)).astype(np.float16), (m, k))
    b = rng.integers(-8, 8, (k, n)).astype(np.float16)
    (made,) = treadle.compile(MATMUL.format(m=m, n=n, k=k), target)(a, b)
    found, step = made.numpy(), max(1, PIECE // n)
    del made
    for at in range(0, m, step):
        wanted = a[at : at + step].astype(np.float32) @ b.astype(np.float32)
        assert np.array_equal(found[at : at + step], wanted), f"rows {at} to {at + step}"
