"""Programs for the tests of kernel forms: what a form is asked about, and whether what is built computes the right values."""

import numpy as np

from treadle.analysis.kernel_problem import NO_OVERRIDES, KernelProblem
from treadle.analysis.loop_nest import loop_nest
from treadle.bench.families import matmul
from treadle.bench.workload import Workload
from treadle.dialects import dispatch, tile
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions, ContractionOverrides
from treadle.pipelines import lower, tensor_passes
from treadle.remarks import collect_remarks
from treadle.sim.check import check
from treadle.sim.element_types import Array, is_float_dtype, storage_dtype
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled
from treadle.transforms.kernel.set_kernel_form import NAME


def workload(m: int, n: int, k: int, dtype: str = "f16", *, kn: bool = False) -> Workload:
    """A product; `kn`: of a second operand that is contiguous along n."""
    return matmul("test", "test", m, n, k, dtype, transposed=not kn)


def problem_of(
    text: str, target: str = "sm_90a", overrides: ContractionOverrides = NO_OVERRIDES, fp8_accumulation: str = "fast"
) -> KernelProblem:
    """What the forms are asked about the last kernel of a program."""
    module = parse_module(text, "test.mlir")
    run_passes(module, tensor_passes())
    kernel = [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)][-1]
    return KernelProblem(loop_nest(kernel), target_spec(target), overrides, fp8_accumulation=fp8_accumulation)


def lowered(text: str, target: str, options: CompileOptions) -> tuple[builtin.ModuleOp, str]:
    """The module at schedule level (proven there), and what set-kernel-form decided about its first kernel."""
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        lower(module, target_spec(target), options)
    return module, next(r.text for r in log.remarks if (r.pass_name, r.kind) == (NAME, "decision"))


def arrays_of(work: Workload) -> list[Array]:
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for spec in work.inputs:
        element = next(t for t in (builtin.f16, builtin.bf16, builtin.f32, builtin.IntegerType(8)) if str(t) == spec.dtype)
        dtype = storage_dtype(element)
        found.append((rng.standard_normal(spec.shape) if is_float_dtype(dtype) else rng.integers(-5, 6, spec.shape)).astype(dtype))
    return found


def assert_right(work: Workload, module: builtin.ModuleOp, modes: int = 2) -> None:
    """The schedule's execution, late and at random, gives what the text says in float64, without a race."""
    arrays = arrays_of(work)
    references = evaluate_module(parse_module(work.text, "test.mlir"), arrays)
    for mode in ("late", "random")[:modes]:
        report = run_program_scheduled(module, arrays, mode, 1)
        assert report.ok, str(report)
        for got, reference in zip(report.outputs, references, strict=True):
            verdict = check(got, reference)
            assert verdict.ok, verdict


def kernel_of(module: builtin.ModuleOp) -> tile.KernelOp:
    (kernel,) = (op for op in module.body.block.ops if isinstance(op, tile.KernelOp))
    return kernel
