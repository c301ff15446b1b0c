"""Schedules that the compiler makes: no objection and right values; an objection to every fault in them."""

from pathlib import Path

import numpy as np
import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.modules import random_module
from generators.tile_pipeline import lowered
from sim.schedule.faults import faults

from treadle.dialects import dispatch, tile
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.plan import expr
from treadle.sim.check import check
from treadle.sim.element_types import Array, is_float_dtype, storage_dtype
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import Report, run_program_scheduled, simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.transforms.kernel.insert_sync import InsertSyncPass

EXAMPLES = Path(__file__).parents[3] / "examples"
TARGETS = ("sm_90a", "gfx942", "gfx1100")
WAYS: list[tuple[Mode, int]] = [("late", 0), ("late", 1), ("random", 1), ("random", 2)]


def matmul(m: int, n: int, k: int, a: str, out: str) -> str:
    """A module that multiplies two matrices, with a narrow result."""
    return f"""
func.func @f(%a: tensor<{m}x{k}x{a}>, %b: tensor<{k}x{n}x{a}>) -> tensor<{m}x{n}x{out}> {{
  %zero = arith.constant 0.0 : {out}
  %e = tensor.empty() : tensor<{m}x{n}x{out}>
  %i = linalg.fill ins(%zero : {out}) outs(%e : tensor<{m}x{n}x{out}>) -> tensor<{m}x{n}x{out}>
  %c = linalg.matmul ins(%a, %b : tensor<{m}x{k}x{a}>, tensor<{k}x{n}x{a}>) outs(%i : tensor<{m}x{n}x{out}>) -> tensor<{m}x{n}x{out}>
  return %c : tensor<{m}x{n}x{out}>
}}
"""


MODULES = {
    "linear": (EXAMPLES / "linear_bias_gelu.mlir").read_text(),
    "softmax": (EXAMPLES / "softmax.mlir").read_text(),
    "matmul f16": matmul(65, 40, 200, "f16", "f32"),
    "matmul f32": matmul(33, 50, 77, "f32", "f32"),
    "matmul f16, one odd side": matmul(30, 17, 129, "f16", "f32"),
}


def scheduled(text: str, target: str, options: CompileOptions | None = None) -> builtin.ModuleOp:
    """A module at schedule level."""
    module = parse_module(text, "module")
    lower(module, target_spec(target), options or CompileOptions())
    return module


def inputs_of(module: builtin.ModuleOp, dynamic: int = 37) -> list[Array]:
    """Random inputs of a lowered module; dynamic sizes are all the same."""
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for op in module.walk():
        if isinstance(op, dispatch.InputOp) and isinstance(op.result.type, dispatch.BufferType):
            texts = [expr.parse(text) for text in dispatch.texts(op.shape)]
            shape = [e.evaluate(dict.fromkeys(e.symbols(), dynamic)) for e in texts]
            dtype = storage_dtype(op.result.type.element_type)
            values = rng.standard_normal(shape) if is_float_dtype(dtype) else rng.integers(0, 3, shape)
            found.append(values.astype(dtype))
    return found


def assert_right(text: str, arrays: list[Array], report: Report) -> None:
    """The outputs are within the bounds of the float64 evaluation of the module."""
    for got, reference in zip(report.outputs, evaluate_module(parse_module(text, "module"), arrays), strict=True):
        verdict = check(got, reference)
        assert verdict.ok, verdict


def same(a: Array, b: Array) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODULES)
def test_programs(name: str, target: str) -> None:
    module = scheduled(MODULES[name], target)
    arrays = inputs_of(module)
    reports = [run_program_scheduled(module, arrays, mode, seed) for mode, seed in WAYS]
    assert all(report.ok and report.steps > 0 for report in reports), "\n".join(map(str, reports))
    assert_right(MODULES[name], arrays, reports[0])
    assert all(same(a, b) for report in reports for a, b in zip(report.outputs, reports[0].outputs, strict=True))


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx950", "gfx1100"])
@pytest.mark.parametrize("stages", [2, 3])
def test_pipelined_loops(stages: int, target: str) -> None:
    text = MODULES["matmul f16"]
    module = scheduled(text, target, CompileOptions(pipeline_stages=stages))
    arrays = inputs_of(module)
    for mode, seed in (WAYS[0], WAYS[3]):
        report = run_program_scheduled(module, arrays, mode, seed)
        assert report.ok, str(report)
        assert_right(text, arrays, report)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_generated_programs(seed: int, target: str) -> None:
    text = random_module(seed).text
    module = scheduled(text, target)
    arrays = inputs_of(module)
    report = run_program_scheduled(module, arrays, "random", seed)
    assert report.ok, str(report)
    assert_right(text, arrays, report)


KERNELS = {
    "bulk, f16 out": kernel_texts.matmul(128, 128, 200, tile=(64, 64, 64), out="f16"),
    "two ragged operands": kernel_texts.matmul(65, 33, 101, tile=(64, 64, 64)),
    "mfma": kernel_texts.matmul(
        64, 64, 100, tile=(64, 64, 32), warps=(2, 2), target="gfx942", instruction="mfma_16x16x16_f32_f16", out="f16"
    ),
    "wmma": kernel_texts.matmul(64, 64, 100, tile=(64, 64, 32), warps=(2, 2), target="gfx1100", instruction="wmma11_16x16x16_f32_f16"),
    "fma": kernel_texts.matmul(65, 64, 70, element="f32", tile=(64, 64, 32), warps=(2, 2), instruction="fma"),
    "reductions across warps": kernel_texts.row_softmax(3, 999, (1, 1024)),
}


def arrays_of(kernel: tile.KernelOp) -> list[Array]:
    """Random arrays for a kernel's pointers, as large as their views."""
    rng = np.random.default_rng(0)
    views = {op.pointer: op for op in kernel.walk() if isinstance(op, tile.ViewOp)}
    found: list[Array] = []
    for argument in kernel.body.block.args:
        kind = tile.memref_type(views[argument].result)
        strides = tile.view_strides(views[argument].result)
        size = 1 + sum((n - 1) * (s or 0) for n, s in zip(kind.get_shape(), strides, strict=True))
        found.append(rng.standard_normal(size).astype(storage_dtype(kind.element_type)))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_faults_in_the_compilers_schedules(name: str) -> None:
    text = print_module(lowered(KERNELS[name], InsertSyncPass))
    found = list(faults(text))
    assert len(found) > 2
    for fault, kernel in found:
        for mode, seed in (WAYS[0], WAYS[3]):
            report = simulate(kernel, arrays_of(kernel), mode=mode, seed=seed, workgroups=1)
            assert not report.ok, f"{fault} ({mode}) goes unnoticed"
