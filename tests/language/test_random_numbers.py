"""Random numbers by counter, against the generator's published test vectors and NumPy's statistics."""

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl


@treadle.kernel(target="sim")
def words(offsets: Any, out: Any, SEED: tl.constexpr, N: tl.constexpr) -> None:
    start = tl.program_id(0) * N
    for at, word in enumerate(tl.philox(SEED, offsets[start : start + N])):
        out[at, start : start + N] = word


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox-4x32-10, written down from its definition."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k, q & 0xFFFFFFFF, (p >> 32) ^ d ^ m, p & 0xFFFFFFFF
        k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def test_the_definition() -> None:
    """The vector of zeros that the authors publish with the generator."""
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5, 2**40 + 3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_words(seed: int, dtype: Any) -> None:
    offsets = np.array([0, 1, 2, 1000, 2**31 - 1, 5 if dtype is np.int32 else 2**35 + 1, 77], dtype)
    out = np.zeros((4, 7), np.int32)
    words[2](offsets, out, SEED=seed, N=4)
    key = (seed % 2**32, seed >> 32)
    for at, offset in enumerate(int(o) for o in offsets):
        assert tuple(int(w) for w in out[:, at].view(np.uint32)) == philox((offset % 2**32, offset >> 32, 0, 0), key)


@treadle.kernel(target="sim")
def draws(uniform: Any, normal: Any, integers: Any, seed: int, N: tl.constexpr) -> None:
    start = tl.program_id(0) * N
    places = start + tl.arange(N)
    uniform[start : start + N] = tl.rand(seed, places)
    normal[start : start + N] = tl.randn(seed, places)
    integers[start : start + N] = tl.randint(seed, places)


def test_distributions() -> None:
    n = 20_001
    uniform, normal, integers = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, np.int32)
    draws[-(-n // 1024)](uniform, normal, integers, 42, N=1024)
    assert uniform.min() >= 0 and uniform.max() < 1 and np.isfinite(normal).all()
    error = 5 / np.sqrt(n)  # five standard deviations of a mean
    assert abs(uniform.mean() - 0.5) < error * 0.29 and abs(normal.mean()) < error and abs(normal.std() - 1) < error
    assert len(np.unique(integers)) > n - 5
    again = np.zeros_like(uniform)
    draws[-(-n // 1024)](again, normal, integers, 43, N=1024)
    assert abs(np.corrcoef(uniform, again)[0, 1]) < error


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_code(target: str) -> None:
    n = np.zeros(100, np.float32)
    draws[1].trace(n, n, np.zeros(100, np.int32), 3, N=128, target=target)
