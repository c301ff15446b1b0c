"""Matrix product with a GELU: operands come through shared memory ahead of the matrix instructions, which nobody has to ask for."""

import harness
import numpy as np

import treadle
import treadle.language as tl


@treadle.kernel
def matmul(a, b, c, BM: tl.constexpr = 128, BN: tl.constexpr = 128, BK: tl.constexpr = 64, BAND: tl.constexpr = 8):
    rows, columns = tl.cdiv(a.shape[0], BM), tl.cdiv(b.shape[1], BN)
    number = tl.program_id(0)
    i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, BAND)  # neighbours share rows and columns
    m, n = i * BM, j * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))


def problem(rng: np.random.Generator, m: int, n: int, k: int) -> harness.Problem:
    a, b = (rng.standard_normal(shape, np.float32).astype(np.float16) for shape in ((m, k), (k, n)))
    tiles = -(-m // 128) * -(-n // 128)
    return harness.Problem(
        {"a": a, "b": b, "c": np.zeros((m, n), np.float16)},
        lambda **given: matmul[tiles](**given, num_warps=8),
        {"c": lambda: harness.gelu(harness.product(a, b))},
        flops=2 * m * n * k,
    )


if __name__ == "__main__":
    harness.main("matmul", problem, small=(131, 145, 100), large=(4096, 4096, 4096))
