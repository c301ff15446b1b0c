"""Softmax of rows: each workgroup reads a row once, keeps it in registers, and writes it once."""

import harness
import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def softmax(x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    values = tl.load(x[row, 0:BLOCK], other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    y[row, 0:BLOCK] = e / tl.sum(e, axis=0)


def problem(rng: np.random.Generator, rows: int, columns: int) -> harness.Problem:
    x = rng.standard_normal((rows, columns), np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    block = 1 << (columns - 1).bit_length()
    warps = 4 if block <= 2048 else 8
    return harness.Problem(
        {"x": x, "y": np.zeros_like(x)},
        lambda **a: softmax[rows](**a, BLOCK=block, num_warps=warps),
        {"y": e / e.sum(1, keepdims=True)},
        bytes_moved=2 * x.nbytes,
    )


if __name__ == "__main__":
    harness.main("softmax", problem, small=(37, 781), large=(4096, 4096))
