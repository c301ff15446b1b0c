"""A matrix product in two stages, one source for AMD GPUs and Hopper: while one group of warps multiplies, the other fills shared memory.

Without a GPU it runs on the simulator, and shows what became of the stages on both vendors. With an NVIDIA GPU and PyTorch,
`python examples/staged_matmul.py 4096 4096 1024` also measures it beside the same loop without stages, whose copies and products
the compiler overlaps by itself (a producer warp and consumer warpgroups).
"""

import importlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import treadle
import treadle.language as tl

TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
TILE: dict[str, Any] = {"BM": 256, "BN": 128, "BK": 64}
PASSES = ("fold-rings", "form-warp-pipeline", "verify-schedule")
ROUNDS = 21


@treadle.kernel
def staged(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    """A step reads its slots and fills those of the next one; then it multiplies."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=3)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=3)
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory", priority=0):
            x, y = ring_a[i % 3], ring_b[i % 3]
            ring_a[(i + 1) % 3] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 3] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("compute", priority=1):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel
def auto(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    """The same loop, which the compiler cuts."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=3)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=3)
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, a.shape[1], BK, stages="auto"):
        i = k // BK
        x, y = ring_a[i % 3], ring_b[i % 3]
        ring_a[(i + 1) % 3] = a[m : m + BM, k + BK : k + 2 * BK]
        ring_b[(i + 1) % 3] = b[k + BK : k + 2 * BK, n : n + BN]
        acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel
def plain(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    """The same without stages."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = acc


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Operands in f16 and an array for their product in f32."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, np.zeros((m, n), np.float32)


def check() -> None:
    """The product of ragged sizes on the simulator, and what each target makes of the stages."""
    a, b, c = operands(136, 72, 104)
    staged[2, 2](a, b, c, num_warps=8, target="sim")
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-4)
    for target in TARGETS:
        trace = staged[2, 2].trace(a, b, c, num_warps=8, target=target)
        told = [remark.text for remark in trace.remarks if remark.pass_name in PASSES and remark.kind != "refusal"]
        print(target, *told, sep="\n  ")


def measure(m: int, n: int, k: int) -> None:
    """Median times with and without stages, interleaved, and their ratio: above 1 the stages are faster."""
    torch: Any = importlib.import_module("torch")
    cuda = torch.cuda
    a, b, c = (torch.from_numpy(array).cuda() for array in operands(m, n, k))
    grid = (-(-m // TILE["BM"]), -(-n // TILE["BN"]))
    calls: dict[str, Callable[[], None]] = {
        "staged": lambda: staged[grid](a, b, c, num_warps=8, **TILE),
        "plain": lambda: plain[grid](a, b, c, num_warps=8, **TILE),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    flush = torch.empty(1 << 28, dtype=torch.int32, device="cuda")
    for turn in range(ROUNDS + 3):
        for name, call in calls.items():
            flush.zero_()
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            cuda.synchronize()
            if turn >= 3:  # the first ones compile and warm the clocks
                times[name].append(begin.elapsed_time(end))
            if turn == 0:
                torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    for name, found in times.items():
        print(f"{name:7} {statistics.median(found) * 1e3:8.1f} us {2e-9 * m * n * k / statistics.median(found):7.1f} TFLOP/s")
    print(f"ratio   {statistics.median(times['plain']) / statistics.median(times['staged']):8.3f}")


def main(arguments: Sequence[str]) -> None:
    """Measure the sizes M N K where they are given, else check without a GPU."""
    if arguments:
        measure(*map(int, arguments))
    else:
        check()


if __name__ == "__main__":
    main(sys.argv[1:])
