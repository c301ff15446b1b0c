"""Products whose workgroups take tiles in turn, as kernels of the language; `lowered` takes one to schedule level for sm_90a."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import treadle
import treadle.language as tl
from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate

sys.path[:0] = [str(Path(__file__).parents[2] / "examples")]
staged = importlib.import_module("persistent_matmul").matmul
SMALL: dict[str, Any] = {"BM": 128, "BN": 64, "BK": 64}


@treadle.kernel
def plain(
    a: Any, b: Any, c: Any, GROUPS: tl.constexpr = None, BM: tl.constexpr = 128, BN: tl.constexpr = 128, BK: tl.constexpr = 64
) -> None:
    """Without stages, and row by row."""
    columns = tl.cdiv(b.shape[1], BN)
    for number in tl.range(tl.program_id(0), tl.cdiv(a.shape[0], BM) * columns, tl.num_programs(0), groups=GROUPS):
        m, n = number // columns * BM, number % columns * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
        c[m : m + BM, n : n + BN] = acc


@treadle.kernel
def overlapping(a: Any, b: Any, c: Any, BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 64) -> None:
    """Tiles that share half of their rows: their stores meet."""
    for number in tl.range(tl.program_id(0), tl.cdiv(a.shape[0], BM // 2), tl.num_programs(0)):
        m = number * (BM // 2)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, 0:BN], acc)
        c[m : m + BM, 0:BN] = acc


@treadle.kernel
def residual(a: Any, b: Any, c: Any, BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 64) -> None:
    """A tile reads what another may have written, for all that is known."""
    for number in tl.range(tl.program_id(0), tl.cdiv(a.shape[0], BM), tl.num_programs(0), groups=2):
        m = number * BM
        acc = c[m : m + BM, 0:BN].to(tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, 0:BN], acc)
        c[m : m + BM, 0:BN] = acc


@treadle.kernel
def unasked_residual(a: Any, b: Any, c: Any, BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 64) -> None:
    """The same, and nothing is said of sets of warps."""
    for number in tl.range(tl.program_id(0), tl.cdiv(a.shape[0], BM), tl.num_programs(0)):
        m = number * BM
        acc = c[m : m + BM, 0:BN].to(tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, 0:BN], acc)
        c[m : m + BM, 0:BN] = acc


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Small integers, whose products are exact, and an array for the result."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float16)


def lowered(
    kernel: Any, m: int, n: int, k: int, *, grid: int = 3, stages: int = 3, target: str = "sm_90a", warps: int = 8, **constants: Any
) -> tuple[tile.KernelOp, list[str], dict[str, int]]:
    """A product at schedule level, not proven, what the passes said about it, and its symbols for these sizes."""
    arrays = operands(m, n, k)
    launch = kernel[grid]
    form, given, numbers = launch._resolved(arrays, constants, warps, stages)
    with collect_remarks() as log:
        module = scheduled(read_source(build(kernel.function, form).module, "tile"), target, CompileOptions(verify=False), None)
    found = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    told = [f"{remark.pass_name}: {remark.text}" for remark in log.remarks]
    return found, told, dict(launch._inspection(form, given, numbers, target)._sizes)


def check(kernel: tile.KernelOp, sizes: dict[str, int], m: int, n: int, k: int) -> None:
    """The right result in the latest and a random order of effects, and nothing that the simulator objects to."""
    a, b, c = operands(m, n, k)
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    for mode, seed in (("late", 0), ("random", 1)):
        report = simulate(kernel, [a, b, c.copy()], sizes, mode=mode, seed=seed)  # pyright: ignore[reportArgumentType]
        assert report.ok, report
        np.testing.assert_array_equal(report.outputs[0].reshape(m, n), wanted)
