"""normalize-generics: one form of loops, scalars and outputs, and the values."""

import pytest
from transforms.tensor.dispatch_programs import body_generics, compare, host_ops, kernels, lower
from transforms.tensor.test_generalize_named_ops import contraction, generalized, normal

from treadle.analysis.indexing import Contraction, Copy, Elementwise, Fill, classify
from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.dialects import linalg
from treadle.ir.passes import run_passes
from treadle.ir.text import print_module
from treadle.transforms.tensor.generics import generics
from treadle.transforms.tensor.normalize_generics import NormalizeGenericsPass

GENERIC = """func.func @f(%a: tensor<3x5xf32>, %b: tensor<5x7xf32>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {{
  %p = linalg.generic {{indexing_maps = [affine_map<(k, n, m) -> (m, k)>, affine_map<(k, n, m) -> (k, n)>, affine_map<(k, n, m) -> (m, n)>],
    iterator_types = ["reduction", "parallel", "parallel"]}} ins(%a, %b : tensor<3x5xf32>, tensor<5x7xf32>) outs(%c : tensor<3x7xf32>) {{
  ^bb0(%x: f32, %y: f32, %acc: f32):
    {body}
  }} -> tensor<3x7xf32>
  return %p : tensor<3x7xf32> }}"""


def test_loops_are_put_in_order() -> None:
    text = GENERIC.format(body="%m = arith.mulf %x, %y : f32\n%s = arith.addf %acc, %m : f32\nlinalg.yield %s : f32")
    module = compare(text, normal(3, 5), normal(5, 7), normal(3, 7))
    (kernel,) = kernels(module)
    (generic,) = body_generics(kernel)
    maps = [str(attr.data) for attr in generic.indexing_maps]
    assert maps == ["(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)"]


def test_linalg_index_follows_the_loops() -> None:
    text = """func.func @f(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
      %e = tensor.empty() : tensor<3x2xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b, a)>],
          iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2x3xf32>) outs(%e : tensor<3x2xf32>) {
      ^bb0(%i: f32, %o: f32):
        %n = linalg.index 1 : index
        %ni = arith.index_cast %n : index to i32
        %nf = arith.sitofp %ni : i32 to f32
        %s = arith.addf %i, %nf : f32
        linalg.yield %s : f32
      } -> tensor<3x2xf32>
      return %r : tensor<3x2xf32> }"""
    compare(text, normal(2, 3))


def test_outputs_that_are_read_become_inputs() -> None:
    text = """func.func @f(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
      %r = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
        ins(%x : tensor<3xf32>) outs(%y : tensor<3xf32>) {
      ^bb0(%i: f32, %o: f32):
        %s = arith.addf %i, %o : f32
        linalg.yield %s : f32
      } -> tensor<3xf32>
      return %r : tensor<3xf32> }"""
    (kernel,) = kernels(compare(text, normal(3), normal(3)))
    assert len(kernel.arg_shapes) == 2


def test_scalars_fills_and_extracted_elements_move_into_bodies() -> None:
    text = """func.func @f(%x: tensor<3x4xf32>, %w: tensor<5xf32>) -> tensor<3x4xf32> {
      %c2 = arith.constant 2 : index
      %two = arith.constant 2.0 : f32
      %w2 = tensor.extract %w[%c2] : tensor<5xf32>
      %scaled = arith.mulf %w2, %two : f32
      %e = tensor.empty() : tensor<3x4xf32>
      %f = linalg.fill ins(%two : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
      %r = linalg.map ins(%x, %f : tensor<3x4xf32>, tensor<3x4xf32>) outs(%e : tensor<3x4xf32>) (%a: f32, %b: f32, %o: f32) {
        %s = arith.mulf %a, %scaled : f32
        %t = arith.addf %s, %b : f32
        linalg.yield %t : f32
      }
      return %r : tensor<3x4xf32> }"""
    module = compare(text, normal(3, 4), normal(5))
    (kernel,) = kernels(module)
    assert len(body_generics(kernel)) == 1
    assert len(host_ops(module, dispatch.LaunchOp)) == 1


def test_a_fill_that_is_returned_is_a_kernel_without_inputs() -> None:
    text = """func.func @f() -> tensor<3xf32> {
      %c = arith.constant 1.5 : f32
      %e = tensor.empty() : tensor<3xf32>
      %f = linalg.fill ins(%c : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
      return %f : tensor<3xf32> }"""
    (kernel,) = kernels(compare(text))
    assert isinstance(classify(body_generics(kernel)[0]), Fill)


def test_reduction_with_two_results() -> None:
    text = """func.func @f(%x: tensor<3x5xf32>) -> (tensor<3xf32>, tensor<3xi32>) {
      %lowest = arith.constant -3.0e38 : f32
      %none = arith.constant 0 : i32
      %ve = tensor.empty() : tensor<3xf32>
      %ie = tensor.empty() : tensor<3xi32>
      %vi = linalg.fill ins(%lowest : f32) outs(%ve : tensor<3xf32>) -> tensor<3xf32>
      %ii = linalg.fill ins(%none : i32) outs(%ie : tensor<3xi32>) -> tensor<3xi32>
      %r:2 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a)>],
          iterator_types = ["parallel", "reduction"]} ins(%x : tensor<3x5xf32>) outs(%vi, %ii : tensor<3xf32>, tensor<3xi32>) {
      ^bb0(%v: f32, %best: f32, %at: i32):
        %n = linalg.index 1 : index
        %ni = arith.index_cast %n : index to i32
        %p = arith.cmpf ogt, %v, %best : f32
        %b = arith.select %p, %v, %best : f32
        %a = arith.select %p, %ni, %at : i32
        linalg.yield %b, %a : f32, i32
      } -> (tensor<3xf32>, tensor<3xi32>)
      return %r#0, %r#1 : tensor<3xf32>, tensor<3xi32> }"""
    (kernel,) = kernels(compare(text, normal(3, 5)))
    assert len(kernel.function_type.outputs) == 2


def test_convolution_maps_stay_affine() -> None:
    text = """func.func @f(%x: tensor<9xf32>, %w: tensor<3xf32>, %c: tensor<7xf32>) -> tensor<7xf32> {
      %r = linalg.generic {indexing_maps = [affine_map<(o, k) -> (o + k)>, affine_map<(o, k) -> (k)>, affine_map<(o, k) -> (o)>],
          iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<9xf32>, tensor<3xf32>) outs(%c : tensor<7xf32>) {
      ^bb0(%a: f32, %b: f32, %acc: f32):
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %acc, %p : f32
        linalg.yield %s : f32
      } -> tensor<7xf32>
      return %r : tensor<7xf32> }"""
    compare(text, normal(9), normal(3), normal(7))


def test_results_that_are_no_projection_are_refused() -> None:
    text = """func.func @f(%x: tensor<3xf32>, %y: tensor<3x3xf32>) -> tensor<3x3xf32> {
      %r = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a, a)>], iterator_types = ["parallel"]}
        ins(%x : tensor<3xf32>) outs(%y : tensor<3x3xf32>) {
      ^bb0(%i: f32, %o: f32):
        linalg.yield %i : f32
      } -> tensor<3x3xf32>
      return %r : tensor<3x3xf32> }"""
    with pytest.raises(TreadleError) as caught:
        lower(text)
    assert caught.value.code == "TR301"
    assert caught.value.location is not None
    assert caught.value.location.line == 2


def test_normalize_leaves_normal_generics_alone() -> None:
    text = """func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> {
      %e = tensor.empty() : tensor<3xf32>
      %r = linalg.exp ins(%x : tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
      return %r : tensor<3xf32> }"""
    module = generalized(text)
    run_passes(module, [NormalizeGenericsPass()])
    (before,) = generics(module)
    printed = print_module(module)
    run_passes(module, [NormalizeGenericsPass()])
    assert generics(module) == [before]
    assert print_module(module) == printed
    assert isinstance(classify(before), Elementwise)
    assert not [op for op in module.walk() if isinstance(op, linalg.ops.FillOp)]


@pytest.mark.parametrize(("m", "n"), [(3, 5), (0, 5), (1, 1)])
def test_contractions_over_nothing_give_way_to_their_initial_values(m: int, n: int) -> None:
    text = contraction("linalg.matmul", f"{m}x0xf16", f"0x{n}xf16", f"{m}x{n}xf32")
    module = compare(text, normal(m, 0), normal(0, n), normal(m, n))
    kinds = [type(classify(op)) for kernel in kernels(module) for op in body_generics(kernel)]
    assert kinds == ([Copy] if m else []), "a result without elements needs no kernel"


@pytest.mark.parametrize("sizes", [(0, 4, 5), (3, 0, 5)])
def test_contractions_of_no_elements_need_no_kernel(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    text = contraction("linalg.matmul", f"{m}x{k}xf16", f"{k}x{n}xf16", f"{m}x{n}xf32")
    module, _ = lower(text)
    assert not any(isinstance(classify(op), Contraction) for kernel in kernels(module) for op in body_generics(kernel))
