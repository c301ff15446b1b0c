"""The form streaming: what it refuses, what it chooses, and that what it builds computes the right values."""

from typing import Any

import numpy as np
import pytest
from transforms.form_programs import assert_right, lowered, problem_of, workload

from treadle.bench.families import epilogue, gated
from treadle.dialects import tile
from treadle.driver import trace
from treadle.ir.text import parse_module
from treadle.options import CompileOptions, ContractionOverrides
from treadle.sim.check import check
from treadle.sim.element_types import Array
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled
from treadle.transforms.kernel.forms import streaming

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


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize(("m", "n", "k"), [(41, 1411, 74), (33, 900, 200), (57, 70, 512)])
def test_sums_of_several_warps_fit_shared_memory(m: int, n: int, k: int, target: str) -> None:
    """Of 41 rows and 64 columns eight warps bring 84 KB together; gfx942 has 64."""
    work = workload(m, n, k, "bf16", kn=True)
    module, said = lowered(work.text, target, CompileOptions(form="streaming", split_reduction="off"))
    assert "streamed" in said
    assert_right(work, module, 1)


@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 4099), (1, 4, 1000), (1, 3, 9185), (2, 1, 777)])
def test_sides_of_one_or_few_rows_stream_without_being_asked(m: int, n: int, k: int, along_rows: bool) -> None:
    work = workload(m, n, k, kn=along_rows)
    module, said = lowered(work.text, "sm_90a", CompileOptions(split_reduction="off"))
    assert "streamed" in said
    assert_right(work, module, 1)


@pytest.mark.parametrize("ahead", [1, 2, 3, 5])
@pytest.mark.parametrize("k", [64, 65, 512, 1000])
def test_any_number_of_steps_in_flight(k: int, ahead: int) -> None:
    work = workload(1, 32, k)
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="streaming", tile=(1, 8, 64), warps=(4, 1), num_stages=ahead))
    assert_right(work, module, 1)


def test_epilogues() -> None:
    work = epilogue("test", "test", "linear_bias_gelu", 2, 96, 72, "f16")
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="streaming"))
    assert_right(work, module, 1)


@pytest.mark.parametrize("m", [1, 3])
def test_contractions_that_share_the_small_operand(m: int) -> None:
    work = gated("test", "test", m, 96, 136, "f16", outputs=3)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="streaming"))
    assert "streamed" in said
    assert len([op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]) == 1
    assert_right(work, module, 1)


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


@pytest.mark.parametrize(
    ("m", "n", "k", "asked", "why"),
    [
        (65, 4096, 4096, {}, "neither side is known to have at most 64"),
        (16, 4096, 4096, {}, "16 rows are more than 8"),
        (2, 30, 40, {}, None),
        (2, 4096, 4096, {"tile": (64, 64, 64)}, "a tile is asked for"),
        (2, 4096, 4096, {}, None),
        (16, 4096, 4096, {"form": "streaming"}, None),
    ],
)
def test_refusals(m: int, n: int, k: int, asked: dict[str, Any], why: str | None) -> None:
    said = streaming.refusal(problem_of(workload(m, n, k).text, overrides=ContractionOverrides(**asked)))
    assert said is None if why is None else said is not None and why in said


@pytest.mark.parametrize(
    ("target", "m", "dtype", "kn", "registers"),
    [
        ("gfx942", 12, "f8E4M3FN", False, None),
        ("gfx942", 13, "f8E4M3FN", False, (208, 56, 250)),
        ("gfx942", 33, "f8E4M3FN", False, (528, 136, 250)),
        ("gfx942", 15, "f8E4M3FN", True, None),
        ("gfx942", 33, "f8E4M3FN", True, (528, 12, 250)),
        ("gfx950", 20, "bf16", False, None),
        ("gfx950", 21, "bf16", False, (168, 88, 250)),
        ("gfx1201", 61, "f32", False, None),
        ("gfx1201", 63, "f32", False, (252, 4, 253)),
        ("sm_90a", 12, "f8E4M3FN", False, None),
        ("sm_90a", 13, "f8E4M3FN", False, (208, 56, 255)),
        ("sm_90a", 20, "bf16", False, None),
    ],
)
def test_rows_that_registers_do_not_hold_are_refused(
    target: str, m: int, dtype: str, kn: bool, registers: tuple[int, int, int] | None
) -> None:
    """Also where the form is asked for: others compute the product, and the reason is said."""
    found = streaming.refusal(problem_of(workload(m, 4096, 576, dtype, kn=kn).text, target, ContractionOverrides(form="streaming")))
    if registers is None:
        assert found is None
        return
    sums, operands, most = registers
    assert found == f"{m} rows take {sums} registers of accumulators and {operands} of operands, the vector units have {most}"


def test_a_refused_form_leaves_the_product_to_others() -> None:
    text = workload(33, 4096, 576, "f8E4M3FN").text
    remarks = trace(text, target="gfx942", options=CompileOptions(form="streaming"), until="tile").remarks
    said = {remark.kind: remark.text for remark in remarks if remark.pass_name == "set-kernel-form"}
    assert "streamed" not in said["decision"]
    assert "streaming: 33 rows take 528 registers of accumulators" in said["refusal"]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("m", [1, 5, 8])
def test_more_to_read_takes_no_less_time(m: int, target: str) -> None:
    sizes = [(n, k) for n in (520, 4104, 9000) for k in (1032, 4096, 14336)]
    times = {(n, k): streaming.decide(problem_of(workload(m, n, k).text, target))[0].seconds for n, k in sizes}
    for (n, k), seconds in times.items():
        assert all(seconds <= other for size, other in times.items() if size[0] >= n and size[1] >= k)
