"""set-precision: the permitted errors of operations, from what becomes of their results."""

import pytest
from generators.elementwise_programs import program, tile_operations

from treadle import machine, pipelines
from treadle.dialects.precision import EXACT, FULL, error_bits
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks


def bits(lines: list[str], result: str, name: str) -> list[int]:
    return [error_bits(op) for op in tile_operations(program(lines, result)) if op.name == name]


@pytest.mark.parametrize(("result", "expected"), [("f32", FULL), ("f16", 14), ("bf16", 11), ("f8E4M3FN", 7), ("f8E5M2", 6)])
def test_the_stored_type_decides(result: str, expected: int) -> None:
    assert bits(["%y = math.tanh %x : f32"], result, "math.tanh") == [expected]


def test_products_pass_the_need_on_and_sums_that_may_cancel_do_not() -> None:
    product = ["%t = math.tanh %x : f32", "%y = arith.mulf %t, %x : f32"]
    assert bits(product, "bf16", "math.tanh") == [11]
    cancelling = ["%t = math.tanh %x : f32", "%y = arith.addf %t, %x : f32"]
    assert bits(cancelling, "bf16", "math.tanh") == [FULL]
    assert bits(cancelling, "bf16", "arith.addf") == [11]


def test_terms_that_cannot_be_negative_do_not_cancel() -> None:
    lines = ["%p = arith.mulf %x, %x : f32", "%s = math.sqrt %p : f32", "%t = math.absf %x : f32", "%y = arith.addf %s, %t : f32"]
    assert bits(lines, "bf16", "math.sqrt") == [11]
    assert bits([*lines[:3], "%y = arith.subf %s, %t : f32"], "bf16", "math.sqrt") == [FULL]


def test_exponentials_magnify() -> None:
    lines = ["%s = math.sqrt %x : f32", "%t = math.sinh %s : f32", "%y = arith.mulf %t, %x : f32"]
    assert bits(lines, "f8E5M2", "math.sqrt") == [13]


@pytest.mark.parametrize(
    "decision",
    [
        ["%c = arith.cmpf olt, %t, %x : f32", "%y = arith.select %c, %x, %t : f32"],
        ["%y = math.floor %t : f32"],
        ["%i = arith.fptosi %t : f32 to i32", "%y = arith.sitofp %i : i32 to f32"],
        ["%i = arith.bitcast %t : f32 to i32", "%y = arith.sitofp %i : i32 to f32"],
    ],
    ids=["compare", "round", "integer", "bits"],
)
def test_leaves_alone_what_decides_something(decision: list[str]) -> None:
    assert bits(["%t = math.tanh %x : f32", *decision], "bf16", "math.tanh") == [EXACT]


def test_the_most_demanding_use_counts() -> None:
    lines = [
        "%t = math.tanh %x : f32",
        "%h = arith.truncf %t : f32 to f16",
        "%w = arith.extf %h : f16 to f32",
        "%y = arith.mulf %w, %t : f32",
    ]
    assert bits(lines, "f8E4M3FN", "math.tanh") == [7]
    assert bits(lines, "f32", "math.tanh") == [FULL]


REDUCTION = """
func.func @f(%a: tensor<37x530xf32>) -> tensor<37xbf16> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<37xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<37xf32>) -> tensor<37xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<37x530xf32>) outs(%f : tensor<37xf32>) {
  ^bb0(%x: f32, %s: f32):
    %t = math.tanh %x : f32
    %n = arith.addf %t, %s : f32
    linalg.yield %n : f32
  } -> tensor<37xf32>
  %o = tensor.empty() : tensor<37xbf16>
  %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%r : tensor<37xf32>) outs(%o : tensor<37xbf16>) {
  ^bb0(%x: f32, %u: bf16):
    %q = math.sqrt %x : f32
    %h = arith.truncf %q : f32 to bf16
    linalg.yield %h : bf16
  } -> tensor<37xbf16>
  return %g : tensor<37xbf16>
}
"""


def test_sums_of_a_loop_are_sums() -> None:
    operations = tile_operations(REDUCTION)
    assert {error_bits(op) for op in operations if op.name == "math.tanh"} == {FULL}
    assert {error_bits(op) for op in operations if op.name == "math.sqrt"} == {11}


def test_remarks_name_what_became_cheaper() -> None:
    module = parse_module(program(["%y = math.tanh %x : f32"]), "test.mlir")
    with collect_remarks() as log:
        pipelines.lower(module, machine.target_spec("sm_90a"), CompileOptions(), until="tile")
    (text,) = [remark.text for remark in log.remarks if remark.pass_name == "set-precision"]
    assert text.startswith("1 math.tanh: relative error up to 2^-11")
