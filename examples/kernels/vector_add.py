"""Vector addition: each workgroup adds one block. Blocks end with their arrays, so that any length works."""

import harness
import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def add(x, y, out, BLOCK: tl.constexpr = 1024):
    start = tl.program_id(0) * BLOCK
    out[start : start + BLOCK] = x[start : start + BLOCK] + y[start : start + BLOCK]


def problem(rng: np.random.Generator, n: int) -> harness.Problem:
    x, y = (rng.standard_normal(n, np.float32) for _ in range(2))
    arrays = {"x": x, "y": y, "out": np.zeros_like(x)}
    want = {"out": x.astype(np.float64) + y}
    return harness.Problem(arrays, lambda **a: add[-(-n // 1024)](**a, num_warps=4), want, bytes_moved=3 * x.nbytes)


if __name__ == "__main__":
    harness.main("vector_add", problem, small=(98_431,), large=(1 << 27,))
