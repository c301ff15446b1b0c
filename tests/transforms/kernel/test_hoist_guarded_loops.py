"""hoist-guarded-loops: loops of products under a condition of the workgroup have roles on sm_90a; right where the condition fails."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from language.staged_kernels import kernel_of

import treadle
import treadle.language as tl
from treadle.dialects import pipe, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin, scf
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate

NAME = "hoist-guarded-loops"


def module_of(kernel: Any, grid: tuple[int, ...], *arrays: Any, **constants: Any) -> builtin.ModuleOp:
    form, _, _ = kernel[grid]._resolved(arrays, constants, 4, 3)
    return build(kernel.function, form).module


def told(kernel: Any, target: str, *arrays: Any, **constants: Any) -> tuple[list[str], tile.KernelOp]:
    """What the pass says of a kernel, and the kernel at schedule level."""
    grid = (1,) if kernel is guarded else (1, 1, 1)
    with collect_remarks() as log:
        module = scheduled(read_source(module_of(kernel, grid, *arrays, **constants), "tile"), target, CompileOptions(), None)
    return [remark.text for remark in log.remarks if remark.pass_name == NAME], kernel_of(module)


@treadle.kernel(target="sim")
def grouped(a: Any, b: Any, ends: Any, c: Any, BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    group = tl.program_id(2)
    first, last = tl.index(ends[group]), tl.index(ends[group + 1])
    m, n = first + tl.program_id(1) * BM, tl.program_id(0) * BN
    if m < last:
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[group, k : k + BK, n : n + BN], acc)
        run = c[:last]
        run[m : m + BM, n : n + BN] = acc


@treadle.kernel(target="sim")
def banded(a: Any, b: Any, ends: Any, c: Any, BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 32) -> None:
    group, number = tl.program_id(1), tl.program_id(0)
    first, last = tl.index(ends[group]), tl.index(ends[group + 1])
    rows, columns = tl.cdiv(last - first, BM), tl.cdiv(c.shape[1], BN)
    if number < rows * columns:
        i, j = tl.swizzle2d(number // columns, number % columns, rows, columns, 2)
        m, n = first + i * BM, j * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[group, k : k + BK, n : n + BN], acc)
        run = c[:last]
        run[m : m + BM, n : n + BN] = acc


def groups(rows: int, ends: Any, n: int, k: int) -> tuple[Any, ...]:
    """Operands of a grouped product; rows of no group are NaN in the result."""
    rng = np.random.default_rng(rows)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((rows, k), (len(ends) - 1, k, n)))
    return a, b, np.array(ends, np.int32), np.full((rows, n), np.nan, np.float32)


@pytest.mark.parametrize(("ends", "k", "mode"), [((0, 70, 70, 200), 96, "late"), ((0, 1, 130, 200), 40, "random"), ((0, 200), 8, "random")])
@pytest.mark.parametrize("source", [grouped, banded])
def test_groups_of_any_length(source: Any, ends: tuple[int, ...], k: int, mode: Any) -> None:
    """Tiles of a group that has no such rows make no step, and divide by none of its numbers, which may be zero; the others are right when
    copies are late.
    """
    a, b, places, c = groups(200, ends, 96, k)
    _, kernel = told(source, "sm_90a", a, b, places, c)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    arrays = {"a": a, "b": b, "ends": places, "c": c}
    tiles = -(-int(np.diff(places).max()) // 64)
    sizes = (2, tiles, len(ends) - 1) if source is grouped else (2 * tiles, len(ends) - 1, 1)
    values: dict[str, int] = dict(zip(("grid_x", "grid_y", "grid_z"), sizes, strict=True))
    for name, array in arrays.items():
        values |= {f"{name}_size{axis}": size for axis, size in enumerate(array.shape)}
        values |= {f"{name}_stride{axis}": stride // array.itemsize for axis, stride in enumerate(array.strides)}
    report = simulate(kernel, list(arrays.values()), [values[name] for name in kernel.symbol_names()], mode=mode, seed=k)
    assert report.ok, report
    want = np.concatenate([a[i:j].astype(np.float64) @ b[g] for g, (i, j) in enumerate(pairwise(ends))])
    np.testing.assert_array_equal(report.outputs[0].reshape(c.shape), want)


@treadle.kernel(target="sim")
def guarded(a: Any, b: Any, c: Any, d: Any, rows: int, HOW: tl.constexpr) -> None:
    m = tl.program_id(0) * 64
    if m < rows:
        if HOW == "stores first":
            d[m : m + 64, 0:64] = tl.zeros((64, 64), tl.float32)
        acc = tl.zeros((64, 64), tl.float32)
        if HOW == "divides tiles":
            acc += (tl.arange(0, 64) // rows).to(tl.float32)[None, :]
        for k in range(0, a.shape[1] // rows if HOW == "divides" else a.shape[1], 32):
            acc = tl.dot(a[m : m + 64, k : k + 32], b[k : k + 32, 0:64], acc)
            if HOW == "stores within":
                d[m : m + 64, 0:64] = acc
        if HOW == "two loops":
            for k in range(0, a.shape[1], 32):
                acc = tl.dot(a[m : m + 64, k : k + 32], b[k : k + 32, 0:64], acc)
        c[m : m + 64, 0:64] = acc
    elif HOW == "other side":
        c[m : m + 64, 0:64] = tl.zeros((64, 64), tl.float32)


OPERANDS = (
    np.zeros((64, 64), np.float16),
    np.zeros((64, 64), np.float16),
    np.zeros((64, 64), np.float32),
    np.zeros((64, 64), np.float32),
    7,
)


@pytest.mark.parametrize("how", ["", "divides"])
def test_what_is_moved(how: str) -> None:
    (text,), kernel = told(guarded, "sm_90a", *OPERANDS, HOW=how)
    assert text == "the loop makes no step where the condition does not hold"
    (roles,) = (op for op in kernel.body.block.ops if isinstance(op, pipe.RolesOp))
    assert all(any(isinstance(op, scf.ForOp) for op in region.block.ops) for region in roles.roles)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("stores first", "tile.store ahead of the loop is for where the condition holds alone"),
        ("stores within", "the loop writes to memory"),
        ("divides tiles", "arith.floordivsi ahead of the loop is for where the condition holds alone"),
        ("two loops", "2 loops of products stand under it"),
        ("other side", "the condition has results, or another side"),
    ],
)
def test_what_is_left_alone(how: str, reason: str) -> None:
    """Nothing may be written, and no tile divided by zero, where the condition does not hold: which is said."""
    assert told(guarded, "sm_90a", *OPERANDS, HOW=how)[0] == [f"the condition stays around the loop: {reason}"]


def test_machines_without_descriptor_copies() -> None:
    assert told(guarded, "gfx942", *OPERANDS, HOW="")[0] == []
