"""Which contractions in the vector units are to read turned copies, what the remarks say, and what a user may say of it."""

import re
from typing import Literal

import pytest

from treadle.bench.named_shapes import named_workload
from treadle.dialects import dispatch
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.remarks import collect_remarks
from treadle.transforms.tensor.set_turned_operands import NAME
from treadle.transforms.tensor.turn_operands import COPY

LARGE = "gemm-f32-nt-3000x4100x2101"


def text_of(name: str) -> str:
    workload = named_workload(name)
    assert workload is not None
    return workload.text


def decided(text: str, target: str = "sm_90a", options: CompileOptions | None = None) -> tuple[int, list[str]]:
    """How many operands are copied, and what the pass says, without numbers."""
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec(target), options or CompileOptions()))
    said = [f"{r.kind}: {re.sub(r'[0-9.]+', '#', r.text)}" for r in log.remarks if r.pass_name == NAME]
    copies = [op for op in module.walk() if isinstance(op, dispatch.KernelOp) and str(op.attributes["origin"]) == f'"{COPY}"']
    return sum(len(dispatch.text_lists(op.result_shapes)) for op in copies), said


def turned(which: str) -> str:
    return " and ".join(f"{operand}, rows # elements apart" for operand in which)


def copies(which: str) -> str:
    return f"decision: turned copies: # us are modelled with {turned(which)}, # us without"


def unaligned(which: str) -> list[str]:
    return [f"refusal: no turned copy of {operand}: its rows of # elements are no whole # bytes" for operand in which]


@pytest.mark.parametrize(
    ("name", "which"),
    [
        (LARGE, "AB"),
        ("gemm-f32-nn-3000x4100x2101", "A"),
        ("gemm-f32-tt-2616x6224x1816", "B"),
        ("gemm-f32-nt-4096x4096x4096", "AB"),
        ("gemm-f32-nn-4096x4096x4096", "A"),
        ("gemm-f32-nt-3x1500x2052x2101", "AB"),
        ("gemm-f32-nt-3000x4100x2101-gelu", "AB"),
        ("gemm-f32-nt-132x9000x4101", "A"),  # what is small is copied in no time, what is large is most of what is read
    ],
)
def test_large_contractions_read_copies(name: str, which: str) -> None:
    assert decided(text_of(name)) == (len(which), [copies(which)])


def test_rows_that_are_no_whole_pieces_are_read_as_they_are() -> None:
    assert decided(text_of("gemm-f32-nt-3000x4101x2101")) == (1, [*unaligned("B"), copies("A")])
    assert decided(text_of("gemm-f32-nt-3001x4102x2101")) == (0, unaligned("AB"))


def test_small_ones_read_their_operands_as_they_are() -> None:
    refusal = f"refusal: no turned copies: # us are modelled with {turned('B')}, # us without"
    assert decided(text_of("gemm-f32-nt-64x48x83")) == (0, [refusal])


def test_gains_of_less_than_a_launch_are_left() -> None:
    """Two of a hundred, and microseconds."""
    count, said = decided(text_of("gemm-f32-nt-12536x120x392"))
    assert (count, len(said)) == (0, 1) and said[0].startswith("refusal: no turned copies: # us are modelled with B")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gemm-f32-tn-3000x4100x2101", "sm_90a"),  # neither lies along k
        (LARGE, "gfx942"),  # no copies of threads that turn an operand
        (LARGE, "gfx1201"),
        ("gemm-f16-nt-3000x4100x2104", "sm_90a"),  # by matrix instructions
        ("rowsums-f32-500x4001", "sm_90a"),
        ("colsums-f32-500x4001", "sm_90a"),
    ],
)
def test_others_are_left_alone(name: str, target: str) -> None:
    assert decided(text_of(name), target) == (0, [])


@pytest.mark.parametrize("precision", ["tf32", "3xtf32", "bf16x3", "bf16x6"])
def test_f32_by_matrix_instructions_is_left_alone(precision: Literal["tf32", "3xtf32", "bf16x3", "bf16x6"]) -> None:
    assert decided(text_of("gemm-f32-nt-3000x4100x2104"), options=CompileOptions(f32_precision=precision)) == (0, [])


def test_copies_that_take_too_much_memory_are_refused() -> None:
    """Batches of 3 GiB."""
    said = "refusal: no turned copies: they take more than # bytes"
    assert decided(text_of("gemm-f32-nt-50x4000x4000x4001")) == (0, [said])


def test_a_user_may_ask_for_none_or_for_one() -> None:
    text = text_of(LARGE)
    for asked, count in (("0, 0", 0), ("3000, 0", 1)):
        marked = text.replace("linalg.generic {", f"linalg.generic {{treadle.turned_operands = array<i64: {asked}>, ", 1)
        assert decided(marked) == (count, [])


def test_options_ask_for_copies_or_for_none() -> None:
    always = CompileOptions(turned_operands="always")
    assert decided(text_of("gemm-f32-nt-65x47x83"), options=always) == (2, [f"decision: turned copies: {turned('AB')}, as asked"])
    assert decided(text_of("gemm-f32-nn-65x47x83"), options=always) == (1, [f"decision: turned copies: {turned('A')}, as asked"])
    assert decided(text_of(LARGE), options=CompileOptions(turned_operands="off")) == (0, [])


def test_rows_side_by_side_are_kept_where_they_are_whole_pieces() -> None:
    """Else they begin at whole lines."""
    module = parse_module(text_of("gemm-f32-nt-68x47x83"), "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec("sm_90a"), CompileOptions(turned_operands="always")))
    (said,) = [r.text for r in log.remarks if r.pass_name == NAME]
    assert said == "turned copies: A, rows 68 elements apart and B, rows 64 elements apart, as asked"


@pytest.mark.parametrize("options", [CompileOptions(form="streaming"), CompileOptions(pipeline_stages=1)])
def test_forms_whose_threads_do_not_copy_are_left_alone(options: CompileOptions) -> None:
    assert decided(text_of(LARGE), options=options) == (0, [])


def test_parts_and_groups_that_a_user_chooses_are_left_alone() -> None:
    text = text_of(LARGE)
    assert decided(text.replace("linalg.generic {", "linalg.generic {treadle.split_reduction = 3 : i64, ", 1)) == (0, [])
    assert decided(text.replace("linalg.generic {", "linalg.generic {dispatch.group = #dispatch.group<g = root>, ", 1)) == (0, [])
    padded = text.replace("linalg.generic {", "linalg.generic {treadle.padded_rows = array<i64: 0, 0>, ", 1)
    assert decided(padded) == (2, [copies("AB")])  # that mark has been followed, and says nothing of this


def test_runtime_sizes_are_refused_with_the_reason() -> None:
    text = text_of(LARGE)
    said = "refusal: operands lie as they are: only the runtime knows all sizes"
    assert decided(text.replace("x2101xf32", "x?xf32")) == (0, [said])
    rows = text.replace("3000x2101", "?x2101").replace("tensor<3000x4100", "tensor<?x4100").replace("tensor.empty()", "tensor.empty(%size)")
    rows = rows.replace("{\n", "{\n  %zero = arith.constant 0 : index\n  %size = tensor.dim %x, %zero : tensor<?x2101xf32>\n", 1)
    assert decided(rows) == (0, [said])


def test_how_arguments_lie_is_known() -> None:
    """Rows of A that are columns in memory do not lie along k, and those of B's columns do."""
    across = text_of("gemm-f32-nt-2616x6224x1816").replace("2616x1816xf32>,", "2616x1816xf32> {treadle.strides = array<i64: 1, 2616>},", 1)
    assert decided(across) == (1, [copies("B")])
    along = text_of("gemm-f32-tn-3000x4100x2101").replace("2101x3000xf32>,", "2101x3000xf32> {treadle.strides = array<i64: 1, 2101>},", 1)
    assert decided(along) == (1, [copies("A")])


def test_rows_of_several_loops_are_copied_where_they_are_whole_pieces() -> None:
    """(H, D) are columns, each along k."""
    for heads, width, said in ((16, 127, [copies("B")]), (15, 127, unaligned("B"))):
        text = f"""func.func @f(%x: tensor<2048x4097xf32>, %w: tensor<{heads}x{width}x2048xf32>,
                                %o: tensor<4097x{heads}x{width}xf32>) -> tensor<4097x{heads}x{width}xf32> {{
          %r = linalg.generic {{indexing_maps = [affine_map<(m, h, d, k) -> (k, m)>, affine_map<(m, h, d, k) -> (h, d, k)>,
              affine_map<(m, h, d, k) -> (m, h, d)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
              ins(%x, %w : tensor<2048x4097xf32>, tensor<{heads}x{width}x2048xf32>) outs(%o : tensor<4097x{heads}x{width}xf32>) {{
          ^bb0(%a: f32, %b: f32, %c: f32):
            %1 = arith.mulf %a, %b : f32
            %2 = arith.addf %c, %1 : f32
            linalg.yield %2 : f32
          }} -> tensor<4097x{heads}x{width}xf32>
          return %r : tensor<4097x{heads}x{width}xf32>
        }}"""
        assert decided(text) == (len(said) if "decision" in said[0] else 0, said)
