"""8-bit floats with scales and promoted sums: recognised, tiled, scheduled, and as exact as f32 sums."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle import driver, pipelines
from treadle.analysis.indexing import Contraction, classify
from treadle.bench.texts import Function
from treadle.dialects import pipe, tile
from treadle.frontends import mlir
from treadle.ir.dialects import linalg
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled

Array = np.ndarray[Any, Any]
E4M3 = "f8E4M3FN"
RANDOM = np.random.default_rng(11)


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return RANDOM.standard_normal(shape, dtype=np.float32).astype(dtype)


def scales(*shape: int) -> Array:
    return np.exp2(RANDOM.integers(-6, 7, shape)).astype(np.float32) * RANDOM.uniform(1, 2, shape).astype(np.float32)


def block_scaled(m: int, n: int, k: int, block: int = 128, columns: int = 128, dtype: str = E4M3) -> str:
    """X (M, K), w (N, K), scales of 1 x `block` of x and of `columns` x `block` of w."""
    f = Function("block_scaled")
    x, w = f.argument("x", (m, k), dtype), f.argument("w", (n, k), dtype)
    sx, sw = f.argument("sx", (m, k // block), "f32"), f.argument("sw", (n // columns, k // block), "f32")
    x3 = f.expand(x, "[0], [1, 2]", (m, k // block, block))
    w4 = f.expand(w, "[0, 1], [2, 3]", (n // columns, columns, k // block, block))
    y = f.cast(f.contract_scaled("mkc,bnkc,mk,bk->mbn", x3, w4, sx, sw), "bf16")
    return f.text(f.collapse(y, "[0], [1, 2]", (m, n)))


def inputs(m: int, n: int, k: int, block: int = 128, columns: int = 128) -> list[Array]:
    return [normal(m, k, dtype=FP8), normal(n, k, dtype=FP8), scales(m, k // block), scales(n // columns, k // block)]


FP8 = ml_dtypes.float8_e4m3fn


def scheduled(text: str, options: CompileOptions, target: str = "sm_90a") -> tuple[Any, list[str]]:
    """The module at schedule level (proven), and the decisions on tiles."""
    module = mlir.load(text + "\n", "test.mlir")
    with collect_remarks() as log:
        pipelines.lower(module, target_spec(target), options)
    return module, [remark.text for remark in log.remarks if (remark.pass_name, remark.kind) == ("set-kernel-form", "decision")]


def has_roles(module: Any) -> bool:
    return any(isinstance(op, pipe.RolesOp) for op in module.walk())


def run_all_ways(text: str, arrays: Sequence[Array], options: CompileOptions) -> float:
    """The result of tile programs and of the schedule, in both modes, within its bounds; returns the relative error."""
    reference = evaluate_module(mlir.load(text + "\n", "test.mlir"), arrays)[0]
    (got,) = driver.compile(text, target="sim", options=options)(*arrays)
    assert check(np.asarray(got), reference).ok
    module, _ = scheduled(text, options)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, arrays, mode, 0)
        assert report.ok, str(report)
        assert check(report.outputs[0], reference).ok
    return check(np.asarray(got), reference).relative_error


@pytest.mark.parametrize("size", [(133, 256, 384), (64, 128, 128), (7, 128, 256)])
def test_blocks_of_scales(size: tuple[int, int, int]) -> None:
    text = block_scaled(*size)
    assert run_all_ways(text, inputs(*size), CompileOptions()) < 4e-3
    module, decisions = scheduled(text, CompileOptions())
    assert has_roles(module) and "promoted every 128 along k" in decisions[0]
    loads = [op for op in module.walk() if isinstance(op, tile.LoadOp)]
    assert loads, "scales are read inside the loop, without shared memory"
    assert not any(isinstance(op, tile.LocalLoadOp) for op in module.walk())


@pytest.mark.parametrize(("block", "columns"), [(64, 64), (256, 128), (32, 1), (128, 256)])
def test_blocks_of_other_sizes(block: int, columns: int) -> None:
    """Where a block is not one slot, the threads bring operands; the result is the same."""
    m, n, k = 67, 256, 512
    text, arrays = block_scaled(m, n, k, block, columns), inputs(m, n, k, block, columns)
    (got,) = driver.compile(text, target="sim")(*arrays)
    assert check(np.asarray(got), evaluate_module(mlir.load(text + "\n", "t"), arrays)[0]).ok
    module, decisions = scheduled(text, CompileOptions())
    assert has_roles(module) == (block == 128), decisions


def test_wrong_scales_are_noticed() -> None:
    """The check of this file can fail: one scale of one block doubled is outside the bounds."""
    arrays = inputs(33, 128, 384)
    text = block_scaled(33, 128, 384)
    (got,) = driver.compile(text, target="sim")(*arrays)
    arrays[2] = arrays[2].copy()
    arrays[2][7, 1] *= 2
    assert not check(np.asarray(got), evaluate_module(mlir.load(text + "\n", "t"), arrays)[0]).ok


def test_what_is_recognised() -> None:
    module = mlir.load(block_scaled(8, 128, 256) + "\n", "t")
    generics = [op for op in module.walk() if isinstance(op, linalg.ops.GenericOp)]
    kind = classify(generics[0])
    assert isinstance(kind, Contraction)
    assert (kind.m, kind.n, kind.k, kind.scales, kind.inner) == ((0,), (1, 2), (3, 4), (2, 3), (4,))
    f = Function("three")
    a, b, c, d = (f.argument(name, (4, 5), "f32") for name in "abcd")
    module = mlir.load(f.text(f.contract_scaled("mk,nk,mk,nk->mn", a, b, c, d)) + "\n", "t")
    generics = [op for op in module.walk() if isinstance(op, linalg.ops.GenericOp)]
    assert not isinstance(classify(generics[0]), Contraction), "no two of the factors are more than scales"


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_other_machines(target: str) -> None:
    """Scales anywhere; sums are promoted with them, and without them only where the matrix unit cuts."""
    program = driver.compile(block_scaled(67, 256, 256), target=target)
    assert all(kernel.facts["spill_bytes"] == 0 for kernel in program.manifest.kernels)
    _, decisions = scheduled(plain(67, 256, 256), CompileOptions(fp8_accumulation="promoted"), target)
    assert "promoted" not in decisions[0]


def plain(m: int, n: int, k: int) -> str:
    f = Function("plain")
    x, w = f.argument("x", (m, k), E4M3), f.argument("w", (n, k), E4M3)
    return f.text(f.cast(f.contract("mk,nk->mn", x, w), "bf16"))


@pytest.mark.parametrize("size", [(133, 70, 400), (64, 128, 128), (65, 40, 272)])
def test_promoted_sums(size: tuple[int, int, int]) -> None:
    options = CompileOptions(fp8_accumulation="promoted")
    m, n, k = size
    assert run_all_ways(plain(*size), [normal(m, k, dtype=FP8), normal(n, k, dtype=FP8)], options) < 4e-3
    module, decisions = scheduled(plain(*size), options)
    assert "promoted every 128 along k" in decisions[0] and has_roles(module) == (k % 16 == 0)
    assert "promoted" not in scheduled(plain(*size), CompileOptions())[1][0]


def test_ragged_rows_are_promoted_too() -> None:
    """K = 1001: no descriptor copies, no roles."""
    m, n, k = 100, 33, 1001
    options = CompileOptions(fp8_accumulation="promoted")
    assert run_all_ways(plain(m, n, k), [normal(m, k, dtype=FP8), normal(n, k, dtype=FP8)], options) < 4e-3


def test_large_tiles_have_room_for_both_sums() -> None:
    for text in (plain(8192, 8192, 8192), block_scaled(8192, 8192, 8192)):
        program = driver.compile(text, target="sm_90a", options=CompileOptions(fp8_accumulation="promoted"))
        assert all(kernel.facts["spill_bytes"] == 0 for kernel in program.manifest.kernels)


def test_scales_of_rows_and_columns_are_an_epilogue() -> None:
    """Written after the contraction, they join its kernel."""
    m, n, k = 133, 70, 400
    f = Function("rows")
    x, w = f.argument("x", (m, k), E4M3), f.argument("w", (n, k), E4M3)
    sx, sw = f.argument("sx", (m,), "f32"), f.argument("sw", (n,), "f32")
    y = f.contract("mk,nk->mn", x, w)

    def scale(body: Any, taken: list[str]) -> list[str]:
        return [body.binary("arith.mulf", body.binary("arith.mulf", taken[0], taken[1]), taken[2])]

    text = f.text(*f.elementwise("mn,m,n->mn", [y, sx, sw], ["bf16"], scale))
    arrays = [normal(m, k, dtype=FP8), normal(n, k, dtype=FP8), scales(m), scales(n)]
    assert len(driver.compile(text, target="sm_90a").manifest.kernels) == 1
    assert run_all_ways(text, arrays, CompileOptions(fp8_accumulation="promoted")) < 4e-3
