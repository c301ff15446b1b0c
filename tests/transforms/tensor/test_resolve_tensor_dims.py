"""resolve-tensor-dims: no size waits for a computation."""

import pytest
from transforms.tensor.dispatch_programs import compare
from transforms.tensor.test_generalize_named_ops import generalized, normal

from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, tensor
from treadle.ir.passes import run_passes
from treadle.transforms.tensor.resolve_tensor_dims import ResolveTensorDimsPass


def resolved(text: str) -> builtin.ModuleOp:
    module = generalized(text)
    run_passes(module, [ResolveTensorDimsPass()])
    return module


def dims(module: builtin.ModuleOp) -> list[str]:
    """What the sizes that are left are read off: the names of arguments, or operations."""
    found = [op.source for op in module.walk() if isinstance(op, tensor.DimOp)]
    return [value.owner.name if isinstance(value.owner, Operation) else f"%{value.name_hint}" for value in found]


SIZED = """func.func @f(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %m = tensor.dim %x, %c0 : tensor<?x?xf32>
      %n = tensor.dim %x, %c1 : tensor<?x?xf32>
      %e = tensor.empty(%m, %n) : tensor<?x?xf32>
      %y = linalg.exp ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
      {body}
      %k = tensor.dim %z, %c1 : tensor<?x?xf32>
      %l = tensor.dim %y, %c0 : tensor<?x?xf32>
      %g = tensor.empty(%l, %k) : tensor<?x?xf32>
      %r = linalg.exp ins(%z : tensor<?x?xf32>) outs(%g : tensor<?x?xf32>) -> tensor<?x?xf32>
      return %r : tensor<?x?xf32> }}"""


@pytest.mark.parametrize(
    "body",
    [
        "%z = linalg.exp ins(%y : tensor<?x?xf32>) outs(%y : tensor<?x?xf32>) -> tensor<?x?xf32>",
        "%z = tensor.extract_slice %y[0, 0] [%m, %n] [1, 1] : tensor<?x?xf32> to tensor<?x?xf32>",
    ],
)
def test_sizes_of_what_is_computed_are_those_of_arguments(body: str) -> None:
    text = SIZED.format(body=body)
    assert set(dims(generalized(text))) == {"%x", "linalg.generic", body.split()[2].replace("linalg.exp", "linalg.generic")}
    assert set(dims(resolved(text))) == {"%x"}
    compare(text, normal(3, 5))


def test_leaves_sizes_of_collapsed_tensors_and_computed_axes_alone() -> None:
    text = """func.func @f(%x: tensor<?x3xf32>, %i: index) -> (index, index) {
      %c0 = arith.constant 0 : index
      %c = tensor.collapse_shape %x [[0, 1]] : tensor<?x3xf32> into tensor<?xf32>
      %n = tensor.dim %c, %c0 : tensor<?xf32>
      %m = tensor.dim %x, %i : tensor<?x3xf32>
      return %n, %m : index, index }"""
    assert dims(resolved(text)) == dims(generalized(text)) == ["tensor.collapse_shape", "%x"]
