"""generalize-named-ops: the computation that a name stands for, and what keeps its name."""

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import Array, compare, kernels

from treadle.analysis.indexing import Contraction, Reduction, classify
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.tensor.generalize_named_ops import GeneralizeNamedOpsPass
from treadle.transforms.tensor.generics import generics

RANDOM = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def generalized(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [GeneralizeNamedOpsPass()])
    return module


def contraction(op: str, a: str, b: str, c: str) -> str:
    return f"""func.func @f(%a: tensor<{a}>, %b: tensor<{b}>, %c: tensor<{c}>) -> tensor<{c}> {{
      %p = {op} ins(%a, %b : tensor<{a}>, tensor<{b}>) outs(%c : tensor<{c}>) -> tensor<{c}>
      return %p : tensor<{c}> }}"""


@pytest.mark.parametrize(
    ("op", "a", "b", "c", "casts"),
    [
        ("linalg.matmul", "3x5xf16", "5x7xf16", "3x7xf32", ("arith.extf", "arith.extf")),
        ("linalg.matmul", "3x5xi8", "5x7xi8", "3x7xi32", ("arith.extsi", "arith.extsi")),
        ("linalg.matmul", "3x5xf8E4M3FN", "5x7xf8E5M2", "3x7xf32", ("arith.extf", "arith.extf")),
        ("linalg.matmul_transpose_a", "5x3xf32", "5x7xf32", "3x7xf32", ("", "")),
        ("linalg.matmul_transpose_b", "3x5xbf16", "7x5xbf16", "3x7xf32", ("arith.extf", "arith.extf")),
    ],
)
def test_contractions_are_recognised(op: str, a: str, b: str, c: str, casts: tuple[str, str]) -> None:
    (generic,) = generics(generalized(contraction(op, a, b, c)))
    found = classify(generic)
    assert isinstance(found, Contraction)
    assert (found.batch, found.m, found.n, found.k) == ((), (0,), (1,), (2,))
    assert (found.lhs_cast, found.rhs_cast) == casts


def test_batch_dimensions() -> None:
    (generic,) = generics(generalized(contraction("linalg.batch_matmul", "2x3x5xf32", "2x5x7xf32", "2x3x7xf32")))
    found = classify(generic)
    assert isinstance(found, Contraction)
    assert (found.batch, found.m, found.n, found.k) == ((0,), (1,), (2,), (3,))
    compare(contraction("linalg.batch_matmul", "2x3x5xf32", "2x5x7xf32", "2x3x7xf32"), normal(2, 3, 5), normal(2, 5, 7), normal(2, 3, 7))


def test_a_matrix_times_a_vector_is_a_reduction() -> None:
    (generic,) = generics(generalized(contraction("linalg.matvec", "3x5xf32", "5xf32", "3xf32")))
    found = classify(generic)
    assert isinstance(found, Reduction)
    assert found.combiners == ("arith.addf",)


@pytest.mark.parametrize("result", ["i1", "i8"])
def test_truth_values_are_joined_by_and_then_by_or(result: str) -> None:
    (generic,) = generics(generalized(contraction("linalg.matmul", "3x5xi1", "5x7xi1", f"3x7x{result}")))
    names = [op.name for op in generic.body.block.ops]
    assert names[-3:-1] == (["arith.andi", "arith.ori"] if result == "i1" else ["arith.muli", "arith.addi"])


def test_arithmetic_on_whole_tensors() -> None:
    text = """func.func @f(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf16> {
      %a = arith.addf %x, %y : tensor<?x3xf32>
      %p = arith.cmpf ogt, %a, %x : tensor<?x3xf32>
      %s = arith.select %p, %a, %x : tensor<?x3xi1>, tensor<?x3xf32>
      %t = math.tanh %s : tensor<?x3xf32>
      %h = arith.truncf %t : tensor<?x3xf32> to tensor<?x3xf16>
      return %h : tensor<?x3xf16> }"""
    module = compare(text, normal(5, 3), normal(5, 3))
    assert len(kernels(module)) == 1


def test_leaves_fills_constants_and_generics_alone() -> None:
    text = """func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {
      %one = arith.constant dense<1.0> : tensor<3xf32>
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<3xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
      %r = linalg.map ins(%x, %f : tensor<3xf32>, tensor<3xf32>) outs(%e : tensor<3xf32>) (%a: f32, %b: f32, %o: f32) {
        %s = arith.addf %a, %b : f32
        linalg.yield %s : f32
      }
      return %r : tensor<3xf32> }"""
    module = generalized(text)
    printed = print_module(module)
    assert [op.name for op in module.walk() if op.name.startswith("linalg.")] == [
        "linalg.fill",
        "linalg.yield",
        "linalg.generic",
        "linalg.yield",
    ]
    run_passes(module, [GeneralizeNamedOpsPass()])
    assert print_module(module) == printed
