"""Which contractions are to read copies with longer rows, what the remarks say, and what a user may say of it."""

import re

import pytest

from treadle.bench.named_shapes import named_workload
from treadle.dialects import dispatch
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.remarks import collect_remarks
from treadle.transforms.tensor.pad_rows import COPY
from treadle.transforms.tensor.set_row_padding import NAME

LARGE = "gemm-bf16-nt-5000x3000x4001"


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
    origins = [str(op.attributes["origin"]) for op in module.walk() if isinstance(op, dispatch.KernelOp)]
    return origins.count(f'"{COPY}"'), said


def copies(which: str) -> str:
    rows = " and ".join(f"{operand}, # elements apart" for operand in which)
    return f"decision: copies with longer rows: # us are modelled with rows of {rows}, # us without"


@pytest.mark.parametrize(
    ("name", "which"),
    [
        (LARGE, "AB"),
        ("gemm-f16-tt-5000x3000x4001", "B"),  # A lies along m, whose size is a multiple of eight
        ("gemm-f16-tn-5001x3002x4001-gelu", "AB"),
        ("gemm-i8-nt-5000x3000x4002", "AB"),
        ("gemm-f16-nt-4x2000x1000x2001", "B"),  # copies of A take longer than they save
    ],
)
def test_large_contractions_read_copies(name: str, which: str) -> None:
    assert decided(text_of(name)) == (len(which), [copies(which)])


def test_small_ones_read_their_operands_as_they_are() -> None:
    refusal = "refusal: no copies with longer rows: # us are modelled with rows of A, # elements apart, # us without"
    assert decided(text_of("gemm-f16-nt-64x48x83")) == (0, [refusal])


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gemm-bf16-nt-5000x3000x4008", "sm_90a"),  # rows of whole 16 bytes
        (LARGE, "gfx942"),  # threads load at any pitch
        ("gemm-f32-nn-5000x3001x4001", "sm_90a"),  # the vector units multiply what copies of any pitch bring
        ("rowsums-f32-500x4001", "sm_90a"),
        ("conv-bf16-2x94x443x641-146-k5-s2", "sm_90a"),
    ],
)
def test_others_are_left_alone(name: str, target: str) -> None:
    assert decided(text_of(name), target) == (0, [])


def test_f32_that_is_rounded_is_copied_where_the_rows_are_odd() -> None:
    assert decided(text_of("gemm-f32-nt-5000x3000x4001"), options=CompileOptions(f32_precision="tf32")) == (2, [copies("AB")])


def test_copies_that_take_too_much_memory_are_refused() -> None:
    """A batch whose operands take 3 GiB each."""
    said = "refusal: no copies with longer rows: they take more than # bytes"
    assert decided(text_of("gemm-bf16-nt-100x4000x4000x4001")) == (0, [said])


def test_a_user_may_ask_for_none() -> None:
    text = text_of(LARGE).replace("linalg.generic {", "linalg.generic {treadle.padded_rows = array<i64: 0, 0>, ", 1)
    assert decided(text) == (0, [])


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("gemm-f16-nt-64x48x83", "A, # elements apart and B, # elements apart"),
        ("gemm-f16-tn-64x40x96", "B, # elements apart"),
        ("gemm-f16-nn-200x16x83", "A, # elements apart"),
    ],
)
def test_options_ask_for_copies_or_for_none(name: str, rows: str) -> None:
    """Copies of rows that begin inside lines, small as they are; the last one's B has rows of 32 bytes, as its copy would have."""
    text = text_of(name)
    assert decided(text, options=CompileOptions(row_padding="always")) == (
        rows.count("#"),
        [f"decision: copies with longer rows: rows of {rows}, as asked"],
    )
    assert decided(text_of(LARGE), options=CompileOptions(row_padding="off")) == (0, [])


def test_forms_whose_threads_load_and_parts_that_a_user_chooses_are_left_alone() -> None:
    text = text_of(LARGE)
    assert decided(text, options=CompileOptions(form="tiles")) == (0, [])
    assert decided(text, options=CompileOptions(roles=False)) == (0, [])
    assert decided(text.replace("linalg.generic {", "linalg.generic {treadle.split_reduction = 3 : i64, ", 1)) == (0, [])


def test_groups_that_a_user_names_are_left_alone() -> None:
    text = text_of(LARGE).replace("linalg.generic {", "linalg.generic {dispatch.group = #dispatch.group<g = root>, ", 1)
    assert decided(text) == (0, [])


def test_runtime_sizes_are_refused_with_the_reason() -> None:
    text = text_of(LARGE)
    rows = text.replace("x4001xbf16", "x?xbf16")
    assert decided(rows) == (
        0,
        [f"refusal: rows of {which} stay as they are: only the runtime knows how far its rows are apart" for which in "AB"],
    )
    batch = text_of("gemm-bf16-nn-5000x3000x4001").replace("5000x4001", "?x4001").replace("tensor<5000x3000", "tensor<?x3000")
    batch = batch.replace("tensor.empty()", "tensor.empty(%size)").replace(
        "{\n", "{\n  %zero = arith.constant 0 : index\n  %size = tensor.dim %x, %zero : tensor<?x4001xbf16>\n", 1
    )
    assert decided(batch) == (0, ["refusal: rows stay as they are: only the runtime knows all sizes"])


def test_pitches_that_arguments_have_are_known() -> None:
    """Rows of odd length that lie at whole lines need no copy."""
    text = text_of(LARGE)
    lying = text.replace("x4001xbf16>,", "x4001xbf16> {treadle.strides = array<i64: 4008, 1>},", 1)
    assert decided(lying) == (1, [copies("B")])


def test_rows_that_are_walked_as_one_are_left_alone() -> None:
    """(H, D) are columns whose rows are H * D elements apart."""
    text = """func.func @f(%x: tensor<4000x4096xbf16>, %w: tensor<4096x16x100xbf16>,
                           %o: tensor<4000x16x100xf32>) -> tensor<4000x16x100xf32> {
      %r = linalg.generic {indexing_maps = [affine_map<(m, h, d, k) -> (m, k)>, affine_map<(m, h, d, k) -> (k, h, d)>,
          affine_map<(m, h, d, k) -> (m, h, d)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%x, %w : tensor<4000x4096xbf16>, tensor<4096x16x100xbf16>) outs(%o : tensor<4000x16x100xf32>) {
      ^bb0(%a: bf16, %b: bf16, %c: f32):
        %1 = arith.extf %a : bf16 to f32
        %2 = arith.extf %b : bf16 to f32
        %3 = arith.mulf %1, %2 : f32
        %4 = arith.addf %c, %3 : f32
        linalg.yield %4 : f32
      } -> tensor<4000x16x100xf32>
      return %r : tensor<4000x16x100xf32>
    }"""
    assert decided(text) == (0, ["refusal: rows of B stay as they are: its rows are walked as one"])
