"""Contractions with one small side: which form they get, and that each form computes the right values."""

import numpy as np
import pytest

from treadle.bench.families import epilogue, gated, matmul
from treadle.bench.workload import Workload
from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions, Form
from treadle.pipelines import lower
from treadle.remarks import collect_remarks
from treadle.sim.check import check
from treadle.sim.element_types import Array, is_float_dtype, storage_dtype
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled


def workload(m: int, n: int, k: int, dtype: str = "f16", *, kn: bool = False) -> Workload:
    return matmul("test", "test", m, n, k, dtype, transposed=not kn)


def lowered(text: str, target: str, options: CompileOptions) -> tuple[builtin.ModuleOp, str]:
    """The module at schedule level (proven there), and what set-tile-config said."""
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        lower(module, target_spec(target), options)
    return module, next(r.text for r in log.remarks if r.pass_name in ("set-small-tile-config", "set-tile-config"))


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


STREAMED = [(1, 1000, 72, "f16"), (3, 200, 136, "f16"), (1, 48, 133, "f16"), (2, 77, 96, "f32"), (5, 64, 200, "bf16"), (1, 130, 256, "i8")]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize(("m", "n", "k", "dtype"), STREAMED)
def test_streamed(m: int, n: int, k: int, dtype: str, target: str) -> None:
    work = workload(m, n, k, dtype)
    module, said = lowered(work.text, target, CompileOptions(form="streaming"))
    assert "streamed" in said
    assert not any(isinstance(op, tile.ContractOp) for op in module.walk())
    assert_right(work, module, 1)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 96, 300), (4, 80, 77), (1, 1000, 40)])
def test_streamed_along_rows(m: int, n: int, k: int) -> None:
    work = workload(m, n, k, kn=True)
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="streaming"))
    assert_right(work, module, 1)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 300, 4), (6, 131, 9), (3, 77, 3), (2, 513, 2)])
@pytest.mark.parametrize(("target", "many"), [("sm_90a", 128), ("gfx942", 256), ("gfx1100", 128)])
def test_steps_of_one_element(m: int, n: int, k: int, target: str, many: int) -> None:
    """Where the large operand is not contiguous along k and k is short, a step takes one element of it."""
    work = workload(m, n, k, "f32", kn=True)
    module, said = lowered(work.text, target, CompileOptions(form="streaming", tile=(m, many, 1), warps=(4, 1)))
    assert f"{many}x1, " in said
    assert_right(work, module, 1)


@pytest.mark.parametrize(("m", "n", "k"), [(100, 1, 96), (65, 3, 136)])
def test_streamed_with_few_columns(m: int, n: int, k: int) -> None:
    work = workload(m, n, k)
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="streaming"))
    assert_right(work, module, 1)


@pytest.mark.parametrize("ahead", [1, 2, 3, 5])
@pytest.mark.parametrize("k", [64, 65, 512, 1000])
def test_any_number_of_steps_under_way(k: int, ahead: int) -> None:
    work = workload(1, 32, k)
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="streaming", tile=(1, 8, 64), warps=(4, 1), ring=ahead))
    assert_right(work, module, 1)


SWAPPED = [(16, 96, 200), (17, 64, 72), (33, 80, 128), (3, 1000, 64), (64, 128, 136), (9, 72, 8)]


@pytest.mark.parametrize(("m", "n", "k"), SWAPPED)
def test_swapped(m: int, n: int, k: int) -> None:
    work = workload(m, n, k)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped"))
    assert "swapped" in said
    assert any(op.name == "pipe.roles" for op in module.walk())
    assert_right(work, module)


@pytest.mark.parametrize(("step", "tiles"), [(8, 12), (24, 4), (48, 2), (64, 2)])
def test_tiles_of_fewer_rows_than_the_instruction_has(step: int, tiles: int) -> None:
    work = workload(16, 96, 128)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped", tile=(0, step, 0)))
    assert f"{step} rows a tile, {tiles} tiles" in said
    assert kernel_of(module).grid_text()[0] == str(tiles)
    assert_right(work, module, 1)


def test_neighbouring_tiles_fetch_the_small_operand_together() -> None:
    work = workload(16, 96, 136)
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="swapped", tile=(0, 24, 0), cluster=2))
    assert "cluster" in kernel_of(module).properties
    assert_right(work, module)
    odd, _ = lowered(work.text, "sm_90a", CompileOptions(form="swapped", tile=(0, 32, 0), cluster=2))
    assert "cluster" not in kernel_of(odd).properties


def test_few_columns_are_narrow_tiles() -> None:
    work = workload(96, 16, 128)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped"))
    assert "narrow tiles" in said
    assert_right(work, module, 1)


@pytest.mark.parametrize(("form", "m"), [("streaming", 2), ("swapped", 16)])
def test_epilogues(form: Form, m: int) -> None:
    work = epilogue("test", "test", "linear_bias_gelu", m, 96, 72, "f16")
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form=form))
    assert_right(work, module, 1)


@pytest.mark.parametrize(("form", "m"), [("streaming", 1), ("streaming", 3), ("swapped", 16)])
def test_contractions_that_share_the_small_operand(form: Form, m: int) -> None:
    work = gated("test", "test", m, 96, 136, "f16", outputs=3)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form=form))
    assert "streamed" in said or "swapped" in said
    assert len([op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]) == 1
    assert_right(work, module, 1)


@pytest.mark.parametrize(
    ("m", "n", "k", "kind"),
    [
        (1, 6144, 4096, "streamed"),
        (16, 6144, 4096, "swapped operands: the large one on the instruction's side of 64, 48 rows a tile, 128 tiles for 132 units"),
        (16, 4096, 14336, "64 rows a tile, 64 tiles for 132 units; tile 64x16x128, a ring of 8 slots"),
        (16, 28672, 4096, "56 rows a tile, 512 tiles"),
        (64, 4096, 4096, "swapped"),
        (65, 4096, 4096, "tile "),
        (1, 1000, 4099, "streamed"),
        (2, 30, 40, "tile "),
    ],
)
def test_the_form_follows_the_sizes(m: int, n: int, k: int, kind: str) -> None:
    module = parse_module(workload(m, n, k).text, "test.mlir")
    with collect_remarks() as log:
        lower(module, target_spec("sm_90a"), CompileOptions(), until="tile")
    (said,) = (r.text for r in log.remarks if r.pass_name in ("set-small-tile-config", "set-tile-config"))
    assert kind in said


DYNAMIC = """
func.func @f(%x: tensor<{m}x{k}xf16>, %w: tensor<?x{k}xf16>) -> tensor<{m}x?xf32> {{
  %zero = arith.constant 0.0 : f32
  %i0 = arith.constant 0 : index
  %m = tensor.dim %x, %i0 : tensor<{m}x{k}xf16>
  %n = tensor.dim %w, %i0 : tensor<?x{k}xf16>
  %e = tensor.empty({sizes}) : tensor<{m}x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{m}x?xf32>) -> tensor<{m}x?xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}} ins(%x, %w : tensor<{m}x{k}xf16>, tensor<?x{k}xf16>)
      outs(%f : tensor<{m}x?xf32>) {{
  ^bb0(%a: f16, %b: f16, %s: f32):
    %a32 = arith.extf %a : f16 to f32
    %b32 = arith.extf %b : f16 to f32
    %p = arith.mulf %a32, %b32 : f32
    %t = arith.addf %s, %p : f32
    linalg.yield %t : f32
  }} -> tensor<{m}x?xf32>
  return %r : tensor<{m}x?xf32>
}}
"""


def dynamic(m: str, k: str) -> str:
    return DYNAMIC.format(m=m, k=k, sizes="%m, %n" if m == "?" else "%n")


@pytest.mark.parametrize("k", ["?", "72"])
@pytest.mark.parametrize("size", [5, 70])
def test_a_small_side_streams_past_runtime_sizes(size: int, k: str) -> None:
    text = dynamic("2", k)
    module, said = lowered(text, "sm_90a", CompileOptions(form="streaming"))
    assert "streamed" in said
    rng = np.random.default_rng(0)
    length = size if k == "?" else int(k)
    arrays: list[Array] = [rng.standard_normal(shape).astype(np.float16) for shape in ((2, length), (size, length))]
    report = run_program_scheduled(module, arrays, "late", 0)
    assert report.ok, str(report)
    (reference,) = evaluate_module(parse_module(text, "test.mlir"), arrays)
    assert check(report.outputs[0], reference).ok


def test_sides_that_only_the_runtime_knows_keep_ordinary_tiles() -> None:
    for form in ("auto", "streaming"):
        _, said = lowered(dynamic("?", "4096"), "sm_90a", CompileOptions(form=form))
        assert "streamed" not in said and "swapped" not in said
