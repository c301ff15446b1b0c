"""A matrix product whose workgroups take its tiles in turn: one source, two schedules on Hopper.

The loop over tiles is the user's. On Hopper the compiler deals a workgroup's tiles out: with `groups=2` two sets of warps take them in turn
(*ping-pong*: one stores its tile while the other multiplies the next), with `groups=1` all warps compute each tile (*cooperative*). Left
out, it decides by whether half of the warps can hold a tile's sums. The stages of the inner loop become warp pipelines on AMD GPUs.

`python examples/persistent_matmul.py` runs it on the simulator and says what each target makes of it; benchmarks/ping_pong.py measures it.
"""

from typing import Any

import numpy as np

import treadle
import treadle.language as tl

TARGETS = ("sm_90a", "gfx942", "gfx1201")
PASSES = ("fold-rings", "set-turns", "form-warp-pipeline", "verify-schedule")


@treadle.kernel
def matmul(
    a: Any, b: Any, c: Any, GROUPS: tl.constexpr = None, BM: tl.constexpr = 128, BN: tl.constexpr = 128, BK: tl.constexpr = 64
) -> None:
    """A step reads its slots and fills those of the next one; then it multiplies."""
    rows, columns = tl.cdiv(a.shape[0], BM), tl.cdiv(b.shape[1], BN)
    ring_a = tl.allocate_shared((BM, BK), a.dtype, slots=3)
    ring_b = tl.allocate_shared((BK, BN), b.dtype, slots=3)
    for number in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), groups=GROUPS):
        i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, 8)  # neighbours share rows and columns
        m, n = i * BM, j * BN
        ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            step = k // BK
            with tl.warp_pipeline_stage("memory", priority=0):
                x, y = ring_a[step % 3], ring_b[step % 3]
                ring_a[(step + 1) % 3] = a[m : m + BM, k + BK : k + 2 * BK]
                ring_b[(step + 1) % 3] = b[k + BK : k + 2 * BK, n : n + BN]
            with tl.warp_pipeline_stage("compute", priority=1):
                acc = tl.dot(x, y, acc)
        c[m : m + BM, n : n + BN] = acc


@treadle.kernel
def automatic(
    a: Any, b: Any, c: Any, GROUPS: tl.constexpr = None, BM: tl.constexpr = 128, BN: tl.constexpr = 128, BK: tl.constexpr = 64
) -> None:
    """The same with nothing said of stages, groups or rings."""
    rows, columns = tl.cdiv(a.shape[0], BM), tl.cdiv(b.shape[1], BN)
    for number in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), groups=GROUPS):
        i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, 8)
        m, n = i * BM, j * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in tl.range(0, a.shape[1], BK, stages="auto"):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
        c[m : m + BM, n : n + BN] = acc


def main() -> None:
    """The product of ragged sizes on the simulator, and what each target makes of the loops."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((136, 104), (104, 72)))
    c = np.zeros((136, 72), np.float16)
    tile: dict[str, Any] = {"BN": 64, "BK": 32}
    matmul[2](a, b, c, num_warps=8, target="sim", **tile)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-2, atol=1e-2)
    for target in TARGETS:
        trace = matmul[2].trace(a, b, c, num_warps=8, target=target, until="schedule", **tile)
        print(target, *[remark.text for remark in trace.remarks if remark.pass_name in PASSES], sep="\n  ")


if __name__ == "__main__":
    main()
