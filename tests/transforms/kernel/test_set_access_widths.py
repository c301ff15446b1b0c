"""set-access-widths on text."""

import numpy as np
import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle import pipelines
from treadle.dialects import tile
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule.program import run_program_scheduled
from treadle.transforms.kernel.set_access_widths import SetAccessWidthsPass

DTYPES = {"i8": np.int8, "f16": np.float16, "f32": np.float32}


def widths(text: str) -> list[int]:
    module = lowered(text, SetAccessWidthsPass)
    return [op.vector.value.data for op in module.walk() if isinstance(op, tile.LoadOp | tile.StoreOp)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (kernel_texts.matmul(512, 512, 512), [8, 8, 4]),
        (kernel_texts.matmul(123, 456, 51234), [2, 8, 4]),
        (kernel_texts.matmul(123, 457, 51233), [1, 1, 1]),
        (kernel_texts.matmul(512, 512, 512, element="f32", instruction="fma", tile=(64, 64, 32)), [4, 4, 4]),
        (kernel_texts.matmul(123, 456, 51234, lda=51240), [2, 8, 4]),
        (kernel_texts.matmul(120, 456, 512, a_transposed=True), [8, 8, 4]),
        (kernel_texts.transpose(1000, 999, (32, 32)), [1, 4]),
    ],
)
def test_widths_follow_pitch_size_and_offset(text: str, expected: list[int]) -> None:
    assert widths(text) == expected


def test_offsets_without_known_divisors_give_scalar_accesses() -> None:
    text = kernel_texts.matmul(512, 512, 512).replace("%m0 = arith.muli %pm, %bm", "%m0 = arith.addi %pm, %bm")
    assert widths(text) == [8, 8, 4]  # rows: the pitch is what matters
    text = kernel_texts.matmul(512, 512, 512).replace("%n0 = arith.muli %pn, %bn", "%n0 = arith.addi %pn, %bn")
    assert widths(text) == [8, 1, 1]


def test_everything_else_is_left_alone() -> None:
    text = kernel_texts.matmul(123, 457, 51233)  # all widths stay 1
    before, after = lowered(text, None), lowered(text, SetAccessWidthsPass)
    assert str(before) == str(after)
    assert len(find(after, tile.LoadOp)) == 2


def doubled(rows: int, columns: int, pitch: int, start: int, element: str, beside: int = 0) -> str:
    """Twice the elements of a part of an array with rows of `pitch`, which begins `start` elements into them; `beside`: plus elements of a
    vector along the columns (1) or the rows (2).
    """
    whole, part, add = f"tensor<{rows}x{pitch}x{element}>", f"tensor<{rows}x{columns}x{element}>", "addi" if element[0] == "i" else "addf"
    vector = f"tensor<{columns if beside == 1 else rows}x{element}>"
    same = "affine_map<(i, j) -> (i, j)>"
    maps = ", ".join([same, f"affine_map<(i, j) -> ({'j' if beside == 1 else 'i'})>", same] if beside else [same, same])
    return f"""
func.func @f(%x: {whole}, %b: {vector}) -> {part} {{
  %s = tensor.extract_slice %x[0, {start}] [{rows}, {columns}] [1, 1] : {whole} to {part}
  %e = tensor.empty() : {part}
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
      ins(%s{", %b" if beside else ""} : {part}{f", {vector}" if beside else ""}) outs(%e : {part}) {{
  ^bb0(%a: {element}{f", %c: {element}" if beside else ""}, %o: {element}):
    %v = arith.{add} %a, {"%c" if beside else "%a"} : {element}
    linalg.yield %v : {element}
  }} -> {part}
  return %r : {part}
}}"""


def said(text: str, target: str = "sm_90a") -> list[str]:
    """The remarks about the accesses of a function's kernel."""
    with collect_remarks() as log:
        pipelines.lower(parse_module(text, "test.mlir"), target_spec(target), CompileOptions())
    return [remark.text.partition(";")[0] for remark in log.remarks if remark.pass_name == SetAccessWidthsPass.name]


SHIFTED, SINGLE = "element(s) at once, shifted into place", "load: 1 element(s) at once"


@pytest.mark.parametrize(("element", "width"), [("i8", 16), ("f16", 8), ("bf16", 8)])
def test_what_begins_anywhere_is_shifted_where_what_is_stored_is_wide(element: str, width: int) -> None:
    assert said(doubled(37, 128, 131, 1, element)) == [f"load: {width} {SHIFTED}", f"store: {width} element(s) at once"]
    assert said(doubled(37, 128, 128, 0, element)) == [f"load: {width} element(s) at once", f"store: {width} element(s) at once"]


def test_a_vector_beside_it_is_read_as_it_lies() -> None:
    assert said(doubled(37, 128, 131, 1, "f16", 1)) == [f"load: 8 {SHIFTED}", "load: 8 element(s) at once", "store: 8 element(s) at once"]
    assert said(doubled(36, 128, 131, 1, "f16", 2)) == [f"load: 8 {SHIFTED}", "load: 8 element(s) at once", "store: 8 element(s) at once"]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (doubled(37, 128, 131, 1, "f32"), "sm_90a"),  # words
        (doubled(37, 127, 131, 1, "f16"), "sm_90a"),  # results of which each row begins elsewhere
        (doubled(37, 128, 131, 1, "f16"), "gfx942"),
        (kernel_texts.matmul(123, 457, 51233), "sm_90a"),
    ],
)
def test_single_elements_stay_where_words_move_whole_results_are_narrow_or_nothing_shifts(text: str, target: str) -> None:
    assert SINGLE in said(text, target) and not any(SHIFTED in one for one in said(text, target))


@pytest.mark.parametrize(("rows", "columns"), [(1, 7), (5, 7), (1, 1003), (5, 1003)])
def test_an_array_that_ends_anywhere_is_read_and_written_widely(rows: int, columns: int) -> None:
    """Rows without anything between them are one."""
    text = doubled(rows, columns, columns, 0, "f16")
    assert said(text) == ["load: 8 element(s) at once", "store: 8 element(s) at once"]
    assert said(text, "gfx942") == [SINGLE, "store: 1 element(s) at once"]


@pytest.mark.parametrize("seed", range(12))
def test_numbers_are_right_whatever_the_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    element = ("i8", "f16", "f32")[seed % 3]
    rows, columns, start = (int(rng.integers(low, high)) for low, high in ((1, 40), (1, 700), (0, 20)))
    columns = columns // 16 * 16 + 16 if seed % 2 else columns
    text = doubled(rows, columns, columns + start + int(rng.integers(0, 5)), start, element, int(rng.integers(0, 3)))
    module = parse_module(text, "test.mlir")
    shapes = [list(map(int, one.split("x")[:-1])) for one in (part.split(">")[0] for part in text.split("tensor<")[1:3])]
    arrays = [rng.integers(-20, 20, shape).astype(DTYPES[element]) for shape in shapes]
    wanted = evaluate_module(parse_module(text, "test.mlir"), arrays)
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions())
    report = run_program_scheduled(module, arrays, "late")
    assert report.ok, str(report)
    np.testing.assert_array_equal(np.asarray(report.outputs[0], np.float64), np.asarray(wanted[0].value, np.float64))
