"""fold-data-movement: who reads a copy, a broadcast or a widened tensor reads its source, and the values."""

from transforms.tensor.dispatch_programs import body_generics, compare, kernels
from transforms.tensor.test_generalize_named_ops import generalized, normal

from treadle.analysis.indexing import Contraction, classify
from treadle.ir.passes import run_passes
from treadle.ir.text import print_module
from treadle.transforms.tensor.fold_data_movement import FoldDataMovementPass
from treadle.transforms.tensor.normalize_generics import NormalizeGenericsPass


def test_widened_operands_are_multiplied_narrow() -> None:
    text = """func.func @f(%a: tensor<3x5xf16>, %w: tensor<7x5xf16>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {
      %a32 = arith.extf %a : tensor<3x5xf16> to tensor<3x5xf32>
      %e = tensor.empty() : tensor<5x7xf16>
      %t = linalg.transpose ins(%w : tensor<7x5xf16>) outs(%e : tensor<5x7xf16>) permutation = [1, 0]
      %t32 = arith.extf %t : tensor<5x7xf16> to tensor<5x7xf32>
      %p = linalg.matmul ins(%a32, %t32 : tensor<3x5xf32>, tensor<5x7xf32>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
      return %p : tensor<3x7xf32> }"""
    (kernel,) = kernels(compare(text, normal(3, 5), normal(7, 5), normal(3, 7)))
    (generic,) = body_generics(kernel)
    assert [str(arg.type) for arg in kernel.body.block.args] == ["tensor<3x5xf16>", "tensor<7x5xf16>", "tensor<3x7xf32>"]
    assert isinstance(classify(generic), Contraction)


def test_broadcast_batch_operand_is_read_directly() -> None:
    text = """func.func @f(%a: tensor<2x3x5xf32>, %w: tensor<5x7xf32>, %c: tensor<2x3x7xf32>) -> tensor<2x3x7xf32> {
      %e = tensor.empty() : tensor<2x5x7xf32>
      %b = linalg.broadcast ins(%w : tensor<5x7xf32>) outs(%e : tensor<2x5x7xf32>) dimensions = [0]
      %p = linalg.batch_matmul ins(%a, %b : tensor<2x3x5xf32>, tensor<2x5x7xf32>) outs(%c : tensor<2x3x7xf32>) -> tensor<2x3x7xf32>
      return %p : tensor<2x3x7xf32> }"""
    (kernel,) = kernels(compare(text, normal(2, 3, 5), normal(5, 7), normal(2, 3, 7)))
    (generic,) = body_generics(kernel)
    found = classify(generic)
    assert isinstance(found, Contraction)
    assert (found.batch, found.m, found.n) == ((), (0, 1), (2,))


def test_a_reduction_over_a_broadcast_keeps_its_size() -> None:
    text = """func.func @f(%x: tensor<3xf32>, %c: tensor<3xf32>) -> tensor<3xf32> {
      %e = tensor.empty() : tensor<3x4xf32>
      %b = linalg.broadcast ins(%x : tensor<3xf32>) outs(%e : tensor<3x4xf32>) dimensions = [1]
      %r = linalg.reduce { arith.addf } ins(%b : tensor<3x4xf32>) outs(%c : tensor<3xf32>) dimensions = [1]
      return %r : tensor<3xf32> }"""
    compare(text, normal(3), normal(3))


def test_leaves_copies_alone_that_nothing_but_a_return_reads() -> None:
    text = """func.func @f(%x: tensor<3x5xf32>) -> tensor<5x3xf32> {
      %e = tensor.empty() : tensor<5x3xf32>
      %t = linalg.transpose ins(%x : tensor<3x5xf32>) outs(%e : tensor<5x3xf32>) permutation = [1, 0]
      return %t : tensor<5x3xf32> }"""
    module = generalized(text)
    run_passes(module, [NormalizeGenericsPass()])
    printed = print_module(module)
    run_passes(module, [FoldDataMovementPass()])
    assert print_module(module) == printed
    assert len(kernels(compare(text, normal(3, 5)))) == 1
