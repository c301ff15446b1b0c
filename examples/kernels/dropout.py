"""Dropout without a mask in memory: whether an element stays follows from the seed and its place, here and in the backward pass."""

import harness
import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def dropout(x, y, seed, P: tl.constexpr, BLOCK: tl.constexpr = 1024):
    start = tl.program_id(0) * BLOCK
    stays = tl.rand(seed, start + tl.arange(BLOCK)) > P
    y[start : start + BLOCK] = tl.where(stays, x[start : start + BLOCK] / (1.0 - P), 0.0)


def uniform(seed: int, n: int) -> np.ndarray:
    """Philox-4x32-10 in NumPy: the first word of each counter, as a number of [0, 1)."""
    words = [np.arange(n, dtype=np.uint64), *(np.zeros(n, np.uint64) for _ in range(3))]
    keys, low = [seed % 2**32, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, third = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        a = (third >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0])
        c = (first >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1])
        words = [a, third & low, c, first & low]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return (words[0] >> np.uint64(8)).astype(np.float64) / 2**24


def problem(rng: np.random.Generator, n: int) -> harness.Problem:
    x, seed = rng.standard_normal(n, np.float32), 123
    return harness.Problem(
        {"x": x, "y": np.zeros_like(x)},
        lambda **given: dropout[-(-n // 1024)](**given, seed=seed, P=0.3),
        {"y": lambda: np.where(uniform(seed, n) > np.float32(0.3), x / np.float64(1 - 0.3), 0)},
        bytes_moved=2 * x.nbytes,
    )


if __name__ == "__main__":
    harness.main("dropout", problem, small=(98_431,), large=(1 << 27,))
