"""Matrix products whose loops have stages, for tests of warp pipelines; `lowered` takes one to schedule level for any target."""

from typing import Any

import numpy as np

import treadle
import treadle.language as tl
from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.language.build import build
from treadle.options import CompileOptions


@treadle.kernel(target="sim")
def two_stages(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32, S: tl.constexpr = 2) -> None:
    """A step reads its slots and fills those of the next one; then it multiplies. Three slots where products read them by themselves."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=S)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=S)
    ring_a[0] = a[m : m + BM, 0:BK]
    ring_b[0] = b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory", priority=0):
            x = ring_a[i % S]
            y = ring_b[i % S]
            ring_a[(i + 1) % S] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % S] = b[k + BK : k + 2 * BK, n : n + BN]
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


@treadle.kernel(target="sim")
def tiles_in_turn(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """A loop with stages inside of another one: the groups meet again behind each tile."""
    ring_a, ring_b = tl.allocate_shared((BM, BK), tl.float16, slots=2), tl.allocate_shared((BK, BN), tl.float16, slots=2)
    n = tl.program_id(0) * BN
    for m in range(0, a.shape[0], BM):
        ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            i = k // BK
            with tl.warp_pipeline_stage("memory"):
                x, y = ring_a[i % 2], ring_b[i % 2]
                ring_a[(i + 1) % 2] = a[m : m + BM, k + BK : k + 2 * BK]
                ring_b[(i + 1) % 2] = b[k + BK : k + 2 * BK, n : n + BN]
            with tl.warp_pipeline_stage("compute"):
                acc = tl.dot(x, y, acc)
        c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def eight_stages(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 16) -> None:
    """A step of four parts, each read, filled for the next step, and multiplied by itself."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    rings_a = [tl.allocate_shared((BM, BK), tl.float16, 2), tl.allocate_shared((BM, BK), tl.float16, 2)]
    rings_a = [rings_a[0], rings_a[1], tl.allocate_shared((BM, BK), tl.float16, 2), tl.allocate_shared((BM, BK), tl.float16, 2)]
    rings_b = [tl.allocate_shared((BK, BN), tl.float16, 2), tl.allocate_shared((BK, BN), tl.float16, 2)]
    rings_b = [rings_b[0], rings_b[1], tl.allocate_shared((BK, BN), tl.float16, 2), tl.allocate_shared((BK, BN), tl.float16, 2)]
    for part in tl.static_range(4):
        rings_a[part][0] = a[m : m + BM, part * BK : part * BK + BK]
        rings_b[part][0] = b[part * BK : part * BK + BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], 4 * BK):
        i = k // (4 * BK)
        for part in tl.static_range(4):
            with tl.warp_pipeline_stage("read"):
                x, y = rings_a[part][i % 2], rings_b[part][i % 2]
                first = k + (4 + part) * BK
                rings_a[part][(i + 1) % 2] = a[m : m + BM, first : first + BK]
                rings_b[part][(i + 1) % 2] = b[first : first + BK, n : n + BN]
            with tl.warp_pipeline_stage("multiply", priority=3):
                acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def triple(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """Three slots, filled two steps ahead: what is filled in one stage may be read in the next, by groups a stage apart."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=3)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=3)
    for i in tl.static_range(2):
        ring_a[i], ring_b[i] = a[m : m + BM, i * BK : i * BK + BK], b[i * BK : i * BK + BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("fill"):
            ring_a[(i + 2) % 3] = a[m : m + BM, k + 2 * BK : k + 3 * BK]
            ring_b[(i + 2) % 3] = b[k + 2 * BK : k + 3 * BK, n : n + BN]
        with tl.warp_pipeline_stage("read", priority=1):
            x, y = ring_a[i % 3], ring_b[i % 3]
        with tl.warp_pipeline_stage("multiply", priority=2):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def straight(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """Four steps at most, with no loop around their stages."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=2)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=2)
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.static_range(4):
        k = i * BK
        with tl.warp_pipeline_stage("memory", priority=0):
            x, y = ring_a[i % 2], ring_b[i % 2]
            ring_a[(i + 1) % 2] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 2] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("compute", priority=1):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def unrolled(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32, U: tl.constexpr = 2) -> None:
    """Several steps an iteration, and a loop of what is left."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=2)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=2)
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, a.shape[1], BK, unroll=U):
        i = k // BK
        with tl.warp_pipeline_stage("memory", priority=0):
            x, y = ring_a[i % 2], ring_b[i % 2]
            ring_a[(i + 1) % 2] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 2] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("compute", priority=1):
            acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def drained(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 32, BK: tl.constexpr = 32) -> None:
    """The last step stands behind the loop, in stages that fill nothing any more."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=2)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=2)
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    acc = tl.zeros((BM, BN), tl.float32)
    last = (a.shape[1] + BK - 1) // BK
    for i in range(last):
        k = i * BK
        with tl.warp_pipeline_stage("memory"):
            x, y = ring_a[i % 2], ring_b[i % 2]
            ring_a[(i + 1) % 2] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 2] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("compute"):
            acc = tl.dot(x, y, acc)
    with tl.warp_pipeline_stage("last memory"):
        x, y = ring_a[last % 2], ring_b[last % 2]
    with tl.warp_pipeline_stage("last compute"):
        acc = tl.dot(x, y, acc)
    c[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def quadrants(a: Any, b: Any, c: Any, H: tl.constexpr = 128, BK: tl.constexpr = 32) -> None:
    """A tile of 256 x 256 by quadrants: each is multiplied in a stage of its own, while the other group reads, or fills the next step."""
    m, n = tl.program_id(0) * 2 * H, tl.program_id(1) * 2 * H
    top, bottom = tl.allocate_shared((H, BK), tl.float16, slots=2), tl.allocate_shared((H, BK), tl.float16, slots=2)
    left, right = tl.allocate_shared((BK, H), tl.float16, slots=2), tl.allocate_shared((BK, H), tl.float16, slots=2)
    top[0], bottom[0] = a[m : m + H, 0:BK], a[m + H : m + 2 * H, 0:BK]
    left[0], right[0] = b[0:BK, n : n + H], b[0:BK, n + H : n + 2 * H]
    c00 = tl.zeros((H, H), tl.float32)
    c01 = tl.zeros((H, H), tl.float32)
    c10 = tl.zeros((H, H), tl.float32)
    c11 = tl.zeros((H, H), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("load", priority=0):
            x0, y0 = top[i % 2], left[i % 2]
            next_top, next_bottom = a[m : m + H, k + BK : k + 2 * BK], a[m + H : m + 2 * H, k + BK : k + 2 * BK]
        with tl.warp_pipeline_stage("top left", priority=1):
            c00 = tl.dot(x0, y0, c00)
        with tl.warp_pipeline_stage("load right"):
            y1 = right[i % 2]
            next_left, next_right = b[k + BK : k + 2 * BK, n : n + H], b[k + BK : k + 2 * BK, n + H : n + 2 * H]
        with tl.warp_pipeline_stage("top right", priority=1):
            c01 = tl.dot(x0, y1, c01)
        with tl.warp_pipeline_stage("load bottom"):
            x1 = bottom[i % 2]
        with tl.warp_pipeline_stage("bottom right", priority=1):
            c11 = tl.dot(x1, y1, c11)
        with tl.warp_pipeline_stage("fill"):
            top[(i + 1) % 2], bottom[(i + 1) % 2] = next_top, next_bottom
            left[(i + 1) % 2], right[(i + 1) % 2] = next_left, next_right
        with tl.warp_pipeline_stage("bottom left", priority=1):
            c10 = tl.dot(x1, y0, c10)
    c[m : m + H, n : n + H], c[m : m + H, n + H : n + 2 * H] = c00, c01
    c[m + H : m + 2 * H, n : n + H], c[m + H : m + 2 * H, n + H : n + 2 * H] = c10, c11


PRODUCTS: dict[str, Any] = {"two": two_stages, "three": three_stages, "four": four_stages}
DEEPER: dict[str, Any] = {"eight": eight_stages, "triple": triple}
JOINED: dict[str, Any] = {"straight": straight, "unrolled": unrolled, "drained": drained}
"""Stages in straight-line code, by itself and behind loops."""


def module_of(kernel: Any, grid: tuple[int, ...], *arrays: Any, num_warps: int = 8, **constants: Any) -> builtin.ModuleOp:
    """A kernel at tile level, as a call with these arguments compiles it."""
    form, _, _ = kernel[grid]._resolved(arrays, constants, num_warps, 1)
    return build(kernel.function, form).module


def lowered(
    kernel: Any, target: str, m: int = 128, n: int = 32, k: int = 100, *, verify: bool = True, num_warps: int = 8, **constants: Any
) -> builtin.ModuleOp:
    """A product at schedule level, proven unless `verify` is False."""
    grid = (-(-n // 32),) if kernel is tiles_in_turn else (-(-m // 128), -(-n // 32))
    module = module_of(kernel, grid, *operands(m, n, k), num_warps=num_warps, **constants)
    return scheduled(read_source(module, "tile"), target, CompileOptions(verify=verify), None)


def kernel_of(module: builtin.ModuleOp) -> tile.KernelOp:
    """The kernel of a lowered module."""
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Small integers, whose products are exact, and an array for the result."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)
