"""Grouped matrix product: rows in runs, each with a matrix of its own; where the runs end stands in memory, as routers leave it."""

import harness
import numpy as np

import treadle
import treadle.language as tl

TILES = ((192, 3), (192, 4), (256, 3)) if harness.on_nvidia() else ((128, 4),)
"""Columns of a tile, and stages: which are best depends on how many tiles there are."""


@treadle.autotune([treadle.Config({"BN": n}, num_warps=8, num_stages=stages) for n, stages in TILES], key=["a", "b"])
@treadle.kernel
def grouped_matmul(a, b, ends, c, BM: tl.constexpr = 128, BN: tl.constexpr = 128, BK: tl.constexpr = 64, BAND: tl.constexpr = 16):
    group, number = tl.program_id(1), tl.program_id(0)
    first, last = tl.index(ends[group]), tl.index(ends[group + 1])
    rows, columns = tl.cdiv(last - first, BM), tl.cdiv(c.shape[1], BN)
    if number < rows * columns:
        i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, BAND)  # neighbours share rows and columns
        m, n = first + i * BM, j * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[group, k : k + BK, n : n + BN], acc)
        run = c[:last]  # what is stored to it ends with the group
        run[m : m + BM, n : n + BN] = acc


def problem(rng: np.random.Generator, rows: int, groups: int, n: int, k: int) -> harness.Problem:
    ends = np.sort(rng.integers(0, rows + 1, groups + 1)).astype(np.int32)
    ends[0], ends[-1] = 0, rows
    a, b = (rng.standard_normal(shape, np.float32).astype(np.float16) for shape in ((rows, k), (groups, k, n)))
    most = int(np.diff(ends).max())

    def expected():
        runs = zip(ends[:-1], ends[1:], b, strict=True)
        return np.concatenate([harness.product(a[first:last], matrix) for first, last, matrix in runs])

    return harness.Problem(
        {"a": a, "b": b, "ends": ends, "c": np.zeros((rows, n), np.float16)},
        lambda **given: grouped_matmul[lambda tile: (-(-n // tile["BN"]) * -(-most // 128), groups)](**given),
        {"c": expected},
        flops=2 * rows * n * k,
    )


if __name__ == "__main__":
    harness.main("grouped_matmul", problem, small=(301, 4, 145, 100), large=(4096, 4, 1024, 1024))
