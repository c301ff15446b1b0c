"""Matrix products whose loops have stages, for tests of warp pipelines; `lowered` takes one to schedule level for any target."""

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle
import treadle.language as tl
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.language.build import build
from treadle.options import CompileOptions


@treadle.kernel(target="sim")
def two_stages(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """A step reads its slots and fills those of the next one; then it multiplies."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=2)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=2)
    ring_a[0] = a[m : m + BM, 0:BK]
    ring_b[0] = b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory", priority=0):
            x = ring_a[i % 2]
            y = ring_b[i % 2]
            ring_a[(i + 1) % 2] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 2] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("compute", priority=1):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def three_stages(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """Global memory, shared memory and arithmetic have a stage each."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=2)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=2)
    ring_a[0] = a[m : m + BM, 0:BK]
    ring_b[0] = b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("global"):
            next_a, next_b = a[m : m + BM, k + BK : k + 2 * BK], b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("shared"):
            x, y = ring_a[i % 2], ring_b[i % 2]
            ring_a[(i + 1) % 2] = next_a
            ring_b[(i + 1) % 2] = next_b
        with tl.warp_pipeline_stage("compute"):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def four_stages(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """Each half of a step is read and multiplied by itself."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    rings_a = [tl.allocate_shared((BM, BK), tl.float16, slots=2), tl.allocate_shared((BM, BK), tl.float16, slots=2)]
    rings_b = [tl.allocate_shared((BK, BN), tl.float16, slots=2), tl.allocate_shared((BK, BN), tl.float16, slots=2)]
    for half in tl.static_range(2):
        rings_a[half][0] = a[m : m + BM, half * BK : half * BK + BK]
        rings_b[half][0] = b[half * BK : half * BK + BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], 2 * BK):
        i = k // (2 * BK)
        with tl.warp_pipeline_stage("read 0", priority=0):
            x, y = rings_a[0][i % 2], rings_b[0][i % 2]
        with tl.warp_pipeline_stage("multiply 0", priority=2):
            acc = tl.dot(x, y, acc)
        with tl.warp_pipeline_stage("read 1"):
            x, y = rings_a[1][i % 2], rings_b[1][i % 2]
            for half in tl.static_range(2):
                first = k + (2 + half) * BK
                rings_a[half][(i + 1) % 2] = a[m : m + BM, first : first + BK]
                rings_b[half][(i + 1) % 2] = b[first : first + BK, n : n + BN]
        with tl.warp_pipeline_stage("multiply 1", priority=2):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


PRODUCTS: dict[str, Any] = {"two": two_stages, "three": three_stages, "four": four_stages}


def module_of(kernel: Any, grid: tuple[int, ...], *arrays: Any, num_warps: int = 8, **constants: Any) -> builtin.ModuleOp:
    """A kernel at tile level, as a call with these arguments compiles it."""
    form, _, _ = kernel[grid]._resolved(arrays, constants, num_warps, 1)
    return build(kernel.function, form).module


def lowered(
    kernel: Any, target: str, m: int = 128, n: int = 32, k: int = 100, *, verify: bool = True, num_warps: int = 8, **constants: Any
) -> builtin.ModuleOp:
    """A product at schedule level, proven unless `verify` is False."""
    module = module_of(kernel, (-(-m // 128), -(-n // 32)), *operands(m, n, k), num_warps=num_warps, **constants)
    return scheduled(read_source(module, "tile"), target, CompileOptions(verify=verify), None)


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Small integers, whose products are exact, and an array for the result."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


Kernel = Callable[..., None]
