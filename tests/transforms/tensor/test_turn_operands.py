"""Contractions that read turned copies of operands that lie along k: what is copied, how copies come, what is refused, and whether results
are right.
"""

import re

import numpy as np
import pytest

from treadle import driver, pipelines
from treadle.bench.named_shapes import named_workload
from treadle.bench.texts import Function
from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule.program import run_program_scheduled
from treadle.transforms.tensor.turn_operands import COPY

DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i64": np.int64}

ARGUMENT = r"%\w+: tensor<([\dx]+)x(\w+)>( {treadle.strides)?"


def text_of(name: str) -> str:
    workload = named_workload(name)
    assert workload is not None
    return workload.text


def contracted(letters: str, *shapes: tuple[int, ...], dtype: str = "f32") -> str:
    """The text of one contraction."""
    f = Function("product")
    return f.text(f.contract(letters, *(f.argument(name, shape, dtype) for name, shape in zip("xw", shapes, strict=True))))


def asked(text: str, value: str) -> str:
    """The text with the attribute on its first generic, which is the contraction."""
    return text.replace("linalg.generic {", f"linalg.generic {{treadle.turned_operands = {value}, ", 1)


def dispatched(text: str, target: str = "sm_90a") -> builtin.ModuleOp:
    """The module at dispatch level."""
    module = parse_module(text, "test.mlir")
    run_passes(module, tensor_passes(target_spec(target), CompileOptions()))
    return module


def kernels(text: str) -> list[dispatch.KernelOp]:
    return [op for op in dispatched(text).walk() if isinstance(op, dispatch.KernelOp)]


def is_copy(kernel: dispatch.KernelOp) -> bool:
    return str(kernel.attributes["origin"]) == f'"{COPY}"'


def copying(text: str, target: str = "sm_90a") -> int:
    """How many launches copy; of the whole program on the simulator, whose results are the reference's: sums of small whole numbers are
    exact, and whatever is read behind a row would be seen.
    """
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions())
    rng, arrays = np.random.default_rng(7), list[np.ndarray]()
    for shape, dtype, strides in re.findall(ARGUMENT, text.partition("->")[0]):
        array = rng.integers(-2, 3, [int(size) for size in shape.split("x")]).astype(DTYPES[dtype])
        arrays.append(np.asfortranarray(array) if strides else array)
    wanted = evaluate_module(parse_module(text, "test.mlir"), arrays)
    report = run_program_scheduled(module, arrays, "late")
    assert report.ok, str(report)
    for found, expected in zip(report.outputs, wanted, strict=True):
        tolerance = 2**-20 if "exp" in text else 0
        assert np.allclose(found.astype(np.float64), expected.value.astype(np.float64), rtol=tolerance, atol=tolerance)
    ops = list(dispatched(text, target).walk())
    copies = {op.sym_name for op in ops if isinstance(op, dispatch.KernelOp) and is_copy(op)}
    return sum(isinstance(op, dispatch.LaunchOp) and op.kernel.root_reference in copies for op in ops)


def pieces(text: str) -> set[int]:
    """Bytes at a time of the copies to shared memory."""
    program = driver.compile(text, target="sm_90a", options=CompileOptions(turned_operands="off"))
    return {int(width) for width in re.findall(r"cp\.async\.c[ag]\.shared\.global [^;]*?\], (\d+)", program.stages["asm"])}


NAMES = ("nt-74x45x83", "nt-3x66x35x73", "nt-130x70x33-bias", "nt-1x45x83", "nt-37x41x1")


@pytest.mark.parametrize("name", NAMES)
def test_both_operands_are_copied(name: str) -> None:
    assert copying(asked(text_of(f"gemm-f32-{name}"), "array<i64: 160, 96>")) == 2


def test_copies_have_the_batch_first_and_k_ahead_of_rows() -> None:
    *_, product = kernels(asked(contracted("mbk,nbk->bmn", (33, 3, 21), (18, 3, 21)), "array<i64: 36, 18>"))
    assert dispatch.text_lists(product.arg_shapes)[:2] == (("3", "21", "33"), ("3", "21", "18"))
    assert dispatch.text_lists(product.arg_strides)[:2] == (("756", "36", "1"), ("378", "18", "1"))


@pytest.mark.parametrize(
    ("letters", "shapes", "pitches"),
    [
        ("mk,kn->mn", ((74, 83), (83, 45)), "74, 0"),
        ("km,nk->mn", ((83, 74), (45, 83)), "0, 48"),
        ("mbk,nbk->bmn", ((33, 3, 21), (18, 3, 21)), "36, 18"),
        ("bmk,nk->bmn", ((3, 33, 21), (18, 21)), "33, 18"),  # rows of A are of two loops
        ("mpq,npq->mn", ((33, 5, 21), (18, 5, 21)), "36, 20"),
        ("pmq,nqp->mn", ((5, 33, 21), (18, 21, 5)), "36, 20"),
        ("mk,hdk->mhd", ((33, 21), (3, 18, 21)), "36, 18"),
        ("mk,nk->nm", ((33, 21), (18, 21)), "33, 18"),
    ],
)
def test_operands_of_any_map(letters: str, shapes: tuple[tuple[int, ...], ...], pitches: str) -> None:
    assert copying(asked(contracted(letters, *shapes), f"array<i64: {pitches}>")) == 2 - pitches.split(", ").count("0")


def test_other_types() -> None:
    """Named operations keep the mark when they become generics."""
    assert copying(asked(contracted("mk,nk->mn", (33, 21), (18, 21), dtype="f16"), "array<i64: 40, 24>")) == 2
    for dtype in ("f64", "i64"):
        a, b, c = (f"tensor<{shape}x{dtype}>" for shape in ("33x21", "18x21", "33x18"))
        text = f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
          %r = linalg.matmul_transpose_b {{treadle.turned_operands = array<i64: 40, 24>}} ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
          return %r : {c}
        }}"""
        assert copying(text) == 2


def test_other_machines_follow_what_is_asked() -> None:
    assert copying(asked(text_of("gemm-f32-nt-74x45x83"), "array<i64: 80, 48>"), "gfx942") == 2


def test_copies_come_in_pieces_of_16_bytes() -> None:
    text = text_of("gemm-f32-nt-132x68x80")
    assert pieces(text) == {4}
    assert pieces(asked(text, "array<i64: 132, 0>")) == {4, 16}
    assert pieces(asked(text, "array<i64: 132, 68>")) == {16}


@pytest.mark.parametrize(
    ("sizes", "accesses"),
    [
        ("132x68x80", {"ld.global.nc.v4.b32", "st.global.v4.b32"}),
        ("132x68x81", {"ld.global.nc.b32", "st.global.v4.b32"}),  # k is odd
        ("131x67x81", {"ld.global.nc.b32", "st.global.b32", "st.shared.b32", "ld.shared.b32"}),
    ],
)
def test_copies_read_and_write_wide_pieces(sizes: str, accesses: set[str]) -> None:
    """Through registers; where both sides are odd, lanes side by side along either one, through shared memory."""
    program = driver.compile(text_of(f"gemm-f32-nt-{sizes}"), target="sm_90a", options=CompileOptions(turned_operands="always"))
    copy = program.stages["asm"].split("// kernel ")[1]
    assert set(re.findall(r"\b(?:ld|st)\.(?:global|shared)\S*", copy)) == accesses


def test_operands_of_one_type_and_order_are_copied_by_one_kernel() -> None:
    text = asked(text_of("gemm-f32-nt-45x45x83"), "array<i64: 48, 64>")
    assert copying(text) == 1
    copy, product = kernels(text)
    strides = [dispatch.text_lists(attr) for attr in (copy.result_strides, product.arg_strides)]
    assert strides[0] == strides[1] == (("48", "1"), ("64", "1"))
    assert dispatch.text_lists(copy.arg_strides) == (("83", "1"), ("83", "1"))
    # One type, and k first in one of them alone.
    assert copying(asked(contracted("mpq,nqp->mn", (33, 5, 5), (33, 5, 5)), "array<i64: 36, 36>")) == 2


def test_a_product_with_itself_copies_once() -> None:
    f = Function("square")
    x = f.argument("x", (45, 83), "f32")
    text = asked(f.text(f.contract("mk,nk->mn", x, x)), "array<i64: 48, 48>")
    assert copying(text) == 1
    assert [len(dispatch.text_lists(kernel.result_shapes)) for kernel in kernels(text)] == [1, 1]


def test_copies_as_long_as_the_rows_are_kernels_of_their_own() -> None:
    """Nothing behind the rows makes the copy an array of its own: the contraction does not read through it."""
    copy, product = kernels(asked(text_of("gemm-f32-nt-72x40x83"), "array<i64: 72, 40>"))[1:]
    assert is_copy(copy) and not is_copy(product)
    assert dispatch.text_lists(product.arg_shapes)[:2] == (("83", "72"), ("83", "40"))


def test_contractions_that_read_one_tensor_share_its_copy() -> None:
    f = Function("two")
    x = f.argument("x", (66, 83), "f32")
    text = f.text(*(f.contract("mk,nk->mn", x, f.argument(name, (size, 83), "f32")) for name, size in (("v", 40), ("w", 24))))
    marked = text.replace("linalg.generic {", "linalg.generic {treadle.turned_operands = array<i64: 68, 0>, ")
    assert marked.count("turned_operands") == 2
    assert copying(marked) == 1


def test_contractions_of_one_kernel_read_one_copy() -> None:
    """Two products of one operand, which are multiplied."""
    f = Function("gated")
    x = f.argument("x", (66, 83), "f32")
    products = [f.contract("mk,nk->mn", x, f.argument(name, (36, 83), "f32")) for name in "vw"]
    text = f.text(*f.elementwise("mn,mn->mn", products, ["f32"], lambda body, taken: [body.binary("arith.mulf", *taken)]))
    mark, marked = "treadle.turned_operands = array<i64: 68, 36>", text.replace("linalg.generic {", "linalg.generic {MARK, ", 2)
    marked = marked.replace("MARK", mark)
    assert marked.count(mark) == 2
    assert copying(marked) == 3
    *_, product = kernels(marked)
    assert [strides[0] for strides in dispatch.text_lists(product.arg_strides)] == ["68", "36", "36"]


def test_parts_of_a_sum_read_one_copy() -> None:
    text = asked(text_of("gemm-f32-nt-70x41x1025"), "array<i64: 72, 44>")
    split = text.replace("treadle.turned_operands", 'treadle.split_reduction = #dispatch.split<r0 = "4" step 64>, treadle.turned_operands')
    assert copying(split) == 2


def test_what_another_contraction_computes_is_turned() -> None:
    f = Function("layers")
    x, v, w = (f.argument(name, shape, "f32") for name, shape in (("x", (37, 21)), ("v", (45, 21)), ("w", (18, 45))))
    text = f.text(f.contract("mk,nk->mn", f.contract("mk,nk->mn", x, v), w))
    first, mark, rest = text.rpartition("linalg.generic {")
    # The first contraction's own kernel stores its result turned.
    assert copying(first + mark + "treadle.turned_operands = array<i64: 40, 20>, " + rest) == 1


def test_arguments_that_lie_the_other_way_are_known() -> None:
    """Of rows that are columns in memory, those of (k, n) lie along k."""
    text = contracted("mk,kn->mn", (33, 21), (21, 18)).replace("<21x18xf32>", "<21x18xf32> {treadle.strides = array<i64: 1, 21>}", 1)
    assert copying(asked(text, "array<i64: 36, 20>")) == 2
    across = contracted("mk,kn->mn", (33, 21), (21, 18)).replace("<33x21xf32>", "<33x21xf32> {treadle.strides = array<i64: 1, 33>}", 1)
    with pytest.raises(TreadleError, match=r"TR311.*it does not lie along k"):
        kernels(asked(across, "array<i64: 36, 0>"))


def test_zeros_and_what_is_not_marked_are_left_alone() -> None:
    for text in (text_of("gemm-f32-nt-74x45x83"), asked(text_of("gemm-f32-nt-74x45x83"), "array<i64: 0, 0>")):
        assert copying(text) == 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("array<i64: 73, 0>", "rows of 74 elements cannot be 73 apart"),
        ("array<i64: 128>", "is no array of two numbers"),
        ("128 : i64", "is no array of two numbers"),
        ("array<i64: 0, 48>", "it does not lie along k"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_its_line(value: str, message: str) -> None:
    text = asked(text_of("gemm-f32-nn-74x45x83"), value)
    with pytest.raises(TreadleError, match=f"TR311.*{message}") as caught:
        kernels(text)
    assert caught.value.location is not None
    assert "turned_operands" in text.splitlines()[caught.value.location.line - 1]


def test_rows_of_several_loops_are_as_long_as_they_are() -> None:
    with pytest.raises(TreadleError, match=r"TR311.*rows of 18 elements are walked as one with those around them, and cannot be 20 apart"):
        kernels(asked(contracted("mk,hdk->mhd", (33, 21), (3, 18, 21)), "array<i64: 0, 20>"))


def test_other_operations_and_runtime_rows_are_refused() -> None:
    with pytest.raises(TreadleError, match=r"TR311.*no contraction of two tensors"):
        kernels(asked(text_of("rowsums-f32-16x99"), "array<i64: 128, 128>"))
    dynamic = asked(text_of("gemm-f32-nt-74x45x83"), "array<i64: 128, 0>").replace("74x83xf32", "74x?xf32").replace("45x83xf32", "45x?xf32")
    with pytest.raises(TreadleError, match=r"TR311.*only the runtime knows"):
        kernels(dynamic)
