"""silu(x @ gate) * (x @ up): two products of one operand in one kernel, whose results meet in registers."""

import harness
import numpy as np

import treadle
import treadle.language as tl


def silu(x):
    return x * tl.sigmoid(x)


@treadle.kernel
def swiglu(x, gate, up, y, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 64):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    left, right = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for k in range(0, x.shape[1], BK):
        part = x[m : m + BM, k : k + BK]
        left = tl.dot(part, gate[k : k + BK, n : n + BN], left)
        right = tl.dot(part, up[k : k + BK, n : n + BN], right)
    y[m : m + BM, n : n + BN] = silu(left) * right


def problem(rng: np.random.Generator, m: int, n: int, k: int) -> harness.Problem:
    x, gate, up = (rng.standard_normal(shape, np.float32).astype(np.float16) for shape in ((m, k), (k, n), (k, n)))
    gate, up = gate / np.float16(np.sqrt(k)), up / np.float16(np.sqrt(k))
    columns = 128 if harness.on_nvidia() and m * n >= 100 * 128 * 128 else 64  # wide tiles where there are enough of them

    def expected():
        left = harness.product(x, gate)
        return left / (1 + np.exp(-left)) * harness.product(x, up)

    return harness.Problem(
        {"x": x, "gate": gate, "up": up, "y": np.zeros((m, n), np.float16)},
        lambda **given: swiglu[-(-m // 128), -(-n // columns)](**given, BN=columns, num_warps=8),
        {"y": expected},
        flops=4 * m * n * k,
    )


if __name__ == "__main__":
    harness.main("swiglu", problem, small=(131, 77, 100), large=(4096, 4096, 4096))
