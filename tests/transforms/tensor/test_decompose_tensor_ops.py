"""decompose-tensor-ops: pads, concatenations and splats become fills and insertions, casts disappear."""

from transforms.tensor.dispatch_programs import compare
from transforms.tensor.test_generalize_named_ops import normal

from treadle.ir.dialects import arith, func
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.tensor.decompose_tensor_ops import DecomposeTensorOpsPass
from treadle.transforms.tensor.generalize_named_ops import GeneralizeNamedOpsPass


def test_pad_and_concat() -> None:
    text = """func.func @f(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x7xf32> {
      %zero = arith.constant -1.5 : f32
      %c = tensor.concat dim(0) %x, %y : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
      %p = tensor.pad %c low[0, 1] high[2, 3] {
      ^bb0(%i: index, %j: index):
        tensor.yield %zero : f32
      } : tensor<?x3xf32> to tensor<?x7xf32>
      return %p : tensor<?x7xf32> }"""
    compare(text, normal(4, 3), normal(2, 3))


def decomposed(text: str) -> list[str]:
    """The operations of the one function behind the pass, but constants."""
    module = parse_module(text, "test.mlir")
    run_passes(module, [GeneralizeNamedOpsPass(), DecomposeTensorOpsPass()])
    function = next(op for op in module.walk() if isinstance(op, func.FuncOp))
    return [op.name for op in function.body.block.ops if not isinstance(op, arith.ConstantOp)]


def test_casts_before_generics_and_ranks_disappear() -> None:
    text = """func.func @f(%x: tensor<3x5xf32>) -> tensor<?x5xf32> {
      %c = tensor.cast %x : tensor<3x5xf32> to tensor<?x5xf32>
      %n = tensor.rank %c : tensor<?x5xf32>
      %e = tensor.empty(%n) : tensor<?x5xf32>
      %s = tensor.cast %e : tensor<?x5xf32> to tensor<?x5xf32>
      %r = linalg.exp ins(%c : tensor<?x5xf32>) outs(%s : tensor<?x5xf32>) -> tensor<?x5xf32>
      return %s : tensor<?x5xf32> }"""
    names = decomposed(text)
    assert "tensor.rank" not in names
    assert names.count("linalg.generic") == 1


def test_a_splat_is_a_fill() -> None:
    text = """func.func @f(%x: tensor<f32>) -> tensor<2x3xf32> {
      %v = tensor.extract %x[] : tensor<f32>
      %s = tensor.splat %v : tensor<2x3xf32>
      return %s : tensor<2x3xf32> }"""
    assert decomposed(text) == ["tensor.extract", "tensor.empty", "linalg.fill", "func.return"]
    compare(text, normal())


def test_leaves_slices_and_reshapes_alone() -> None:
    text = """func.func @f(%x: tensor<4x6xf32>) -> tensor<6xf32> {
      %s = tensor.extract_slice %x[1, 0] [1, 6] [1, 1] : tensor<4x6xf32> to tensor<1x6xf32>
      %c = tensor.collapse_shape %s [[0, 1]] : tensor<1x6xf32> into tensor<6xf32>
      return %c : tensor<6xf32> }"""
    assert decomposed(text) == ["tensor.extract_slice", "tensor.collapse_shape", "func.return"]
