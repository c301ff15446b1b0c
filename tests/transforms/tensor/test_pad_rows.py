"""Contractions that read copies with longer rows: what is copied, what is refused, and whether results are right."""

import re

import ml_dtypes
import numpy as np
import pytest

from treadle import pipelines
from treadle.bench.named_shapes import named_workload
from treadle.bench.texts import Function
from treadle.dialects import dispatch
from treadle.dialects.tile import KernelOp
from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.remarks import collect_remarks
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule.program import run_program_scheduled

BY_DESCRIPTOR, SHIFTED = "staged by descriptor copy", "loaded and shifted"
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "i8": np.int8}


def text_of(name: str) -> str:
    workload = named_workload(name)
    assert workload is not None
    return workload.text


def asked(text: str, value: str) -> str:
    """The text with the attribute on its first generic, which is the contraction."""
    return text.replace("linalg.generic {", f"linalg.generic {{treadle.padded_rows = {value}, ", 1)


def kernels(text: str) -> list[dispatch.KernelOp]:
    """The kernels at dispatch level."""
    module = parse_module(text, "test.mlir")
    run_passes(module, tensor_passes(target_spec("sm_90a"), CompileOptions()))
    return [op for op in module.walk() if isinstance(op, dispatch.KernelOp)]


def staged(text: str, options: CompileOptions | None = None) -> tuple[int, list[str]]:
    """How many kernels there are, and how the contractions' operands come. Results are the reference's: sums of small whole numbers are
    exact, whatever is read behind a row would be seen.
    """
    options = options or CompileOptions()
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        pipelines.lower(module, target_spec("sm_90a"), options)
    rng, arrays = np.random.default_rng(7), list[np.ndarray]()
    for shape, dtype in re.findall(r"%\w+: tensor<([\dx]+)x(\w+)>", text.partition("->")[0]):
        sizes = [int(size) for size in shape.split("x")]
        arrays.append(rng.integers(-2, 3, sizes).astype(DTYPES[dtype]))
    wanted = evaluate_module(parse_module(text, "test.mlir"), arrays)
    report = run_program_scheduled(module, arrays, "late")
    assert report.ok, str(report)
    for found, expected in zip(report.outputs, wanted, strict=True):
        rounded = expected.value.astype(found.dtype)
        assert np.allclose(found.astype(np.float64), rounded.astype(np.float64), rtol=2**-7 if "exp" in text else 0, atol=0)
    said = [remark.text for remark in log.remarks if remark.pass_name == "set-operand-staging"]
    return sum(isinstance(op, KernelOp) for op in module.walk()), said


NAMES = ("f16-nn-74x45x83", "bf16-nt-70x69x75", "f16-tn-77x45x130", "bf16-tt-74x99x83", "f16-nt-3x66x35x73", "i8-nt-74x45x83")


@pytest.mark.parametrize("name", NAMES)
def test_both_operands_come_by_descriptors(name: str) -> None:
    """Two kernels copy, one multiplies."""
    assert staged(asked(text_of(f"gemm-{name}"), "array<i64: 256, 256>")) == (3, [BY_DESCRIPTOR] * 2)


@pytest.mark.parametrize(
    ("name", "pitches"), [("f16-nt-74x74x83", "88, 128"), ("bf16-nn-45x45x45", "48, 64"), ("i8-nt-66x66x83", "96, 96")]
)
def test_operands_of_one_type_are_copied_together(name: str, pitches: str) -> None:
    text = asked(text_of(f"gemm-{name}"), f"array<i64: {pitches}>")
    assert staged(text) == (2, [BY_DESCRIPTOR] * 2)
    copy, product = kernels(text)
    strides = [dispatch.text_lists(attr) for attr in (copy.result_strides, product.arg_strides)]
    assert strides[0] == strides[1] == tuple((pitch, "1") for pitch in pitches.split(", "))


def test_a_product_with_itself_copies_once() -> None:
    f = Function("square")
    x = f.argument("x", (45, 83), "f16")
    text = f.text(f.cast(f.contract("mk,nk->mn", x, x), "f16"))
    assert staged(asked(text, "array<i64: 128, 128>"))[0] == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("f32-nt-74x45x83", CompileOptions(f32_precision="tf32")),
        ("f8E4M3FN-nt-74x45x83", CompileOptions(fp8_accumulation="promoted")),
        ("f32-nn-74x45x83", CompileOptions(f32_precision="bf16x6")),
    ],
)
def test_other_types_and_precisions(name: str, options: CompileOptions) -> None:
    count, said = staged(asked(text_of(f"gemm-{name}"), "array<i64: 256, 256>"), options)
    assert count == 3
    assert said == [BY_DESCRIPTOR] * 2 or options.f32_precision == "bf16x6"


@pytest.mark.parametrize(("pitches", "by_descriptor"), [("128, 0", [True, False]), ("0, 128", [False, True])])
def test_one_operand_may_be_copied(pitches: str, by_descriptor: list[bool]) -> None:
    count, said = staged(asked(text_of("gemm-f16-nt-74x45x83-silu"), f"array<i64: {pitches}>"))
    assert count == 2
    assert [text == BY_DESCRIPTOR for text in said] == by_descriptor
    assert sum(SHIFTED in text for text in said) == 1


def test_the_kernel_reads_its_own_extents() -> None:
    """Rows lie further apart, sums are as long as before, and the copies' kernels write no more than there is."""
    *copies, product = kernels(asked(text_of("gemm-f16-nt-74x45x83"), "array<i64: 88, 128>"))
    shapes, strides = (dispatch.text_lists(attr) for attr in (product.arg_shapes, product.arg_strides))
    assert shapes[:2] == (("74", "83"), ("45", "83"))
    assert strides[:2] == (("88", "1"), ("128", "1"))
    assert [dispatch.text_lists(copy.result_shapes) for copy in copies] == [(("74", "83"),), (("45", "83"),)]
    assert [dispatch.text_lists(copy.result_strides) for copy in copies] == [(("88", "1"),), (("128", "1"),)]


def test_parts_of_a_sum_read_one_copy() -> None:
    text = asked(text_of("gemm-bf16-nt-70x41x1025"), "array<i64: 1032, 1032>")
    split = text.replace("treadle.padded_rows", 'treadle.split_reduction = #dispatch.split<r0 = "4" step 64>, treadle.padded_rows')
    assert staged(split) == (4, [BY_DESCRIPTOR] * 2)


def test_contractions_that_read_one_tensor_share_its_copy() -> None:
    f = Function("two")
    x = f.argument("x", (66, 83), "f16")
    products = [f.cast(f.contract("mk,nk->mn", x, f.argument(name, (40, 83), "f16")), "f16") for name in "vw"]
    text = f.text(*products).replace("linalg.generic {", "linalg.generic {treadle.padded_rows = array<i64: 128, 0>, ")
    # Casts are generics as well, which are no contractions.
    marked = re.sub(r"treadle.padded_rows = array<i64: 128, 0>, (indexing_maps = \[affine_map<\(a, b\))", r"\1", text)
    assert marked.count("padded_rows") == 2
    count, said = staged(marked)
    assert count == 1 + len(said) // 2 and said.count(BY_DESCRIPTOR) == len(said) // 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("array<i64: 80, 0>", "rows of 83 elements cannot be 80 apart"),
        ("array<i64: 128>", "is no array of two numbers"),
        ("128 : i64", "is no array of two numbers"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_its_line(value: str, message: str) -> None:
    text = asked(text_of("gemm-f16-nt-74x45x83"), value)
    with pytest.raises(TreadleError, match=f"TR309.*{message}") as caught:
        kernels(text)
    assert caught.value.location is not None
    assert "padded_rows" in text.splitlines()[caught.value.location.line - 1]


def test_other_operations_and_runtime_rows_are_refused() -> None:
    rows = text_of("rowsums-f32-16x99")
    with pytest.raises(TreadleError, match=r"TR309.*no contraction of two tensors"):
        kernels(asked(rows, "array<i64: 128, 128>"))
    dynamic = asked(text_of("gemm-f16-nt-74x45x83"), "array<i64: 128, 0>").replace("74x83xf16", "74x?xf16").replace("45x83xf16", "45x?xf16")
    with pytest.raises(TreadleError, match=r"TR309.*only the runtime knows"):
        kernels(dynamic)
