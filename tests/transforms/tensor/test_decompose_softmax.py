"""decompose-softmax: four steps along one dimension, in f32 where elements are narrower."""

import pytest

from treadle.analysis.indexing import Elementwise, Reduction, classify
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.tensors import tensor_type
from treadle.ir.text import parse_module, print_module
from treadle.transforms.tensor.decompose_softmax import DecomposeSoftmaxPass
from treadle.transforms.tensor.generics import generics


def decomposed(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [DecomposeSoftmaxPass()])
    return module


@pytest.mark.parametrize(("element", "compute"), [("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f64", "f64")])
def test_steps(element: str, compute: str) -> None:
    kind = f"tensor<3x?x5x{element}>"
    text = f"""func.func @f(%a: {kind}, %e: {kind}) -> {kind} {{
  %0 = linalg.softmax dimension(1) ins(%a : {kind}) outs(%e : {kind}) -> {kind}
  return %0 : {kind}
}}"""
    steps = generics(decomposed(text))
    assert [type(classify(op)) for op in steps] == [Reduction, Elementwise, Reduction, Elementwise]
    assert [str(tensor_type(op.results[0]).element_type) for op in steps] == [compute, compute, compute, element]
    reductions = [kind for op in steps if isinstance(kind := classify(op), Reduction)]
    assert [kind.dims for kind in reductions] == [(1,), (1,)]


def test_leaves_other_operations_alone() -> None:
    text = "func.func @f(%a: tensor<7xf32>) -> tensor<7xf32> {\n  %0 = math.exp %a : tensor<7xf32>\n  return %0 : tensor<7xf32>\n}"
    assert print_module(decomposed(text)) == print_module(parse_module(text, "test.mlir"))
