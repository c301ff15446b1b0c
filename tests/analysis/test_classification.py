"""What a structured operation computes is told by its maps and body, never by its name."""

import pytest

from treadle.analysis.indexing import Contraction, Reduction, classify
from treadle.ir.dialects import arith
from treadle.ir.text import parse_module
from treadle.transforms.tensor.generics import generics

GENERIC = """func.func @f(%a: tensor<3x5xf32>, %b: tensor<5x7xf32>, %c: tensor<3x7xf32>) -> tensor<3x7xf32> {{
  %p = linalg.generic {{indexing_maps = [affine_map<(k, n, m) -> (m, k)>, affine_map<(k, n, m) -> (k, n)>, affine_map<(k, n, m) -> (m, n)>],
    iterator_types = ["reduction", "parallel", "parallel"]}} ins(%a, %b : tensor<3x5xf32>, tensor<5x7xf32>) outs(%c : tensor<3x7xf32>) {{
  ^bb0(%x: f32, %y: f32, %acc: f32):
    {body}
  }} -> tensor<3x7xf32>
  return %p : tensor<3x7xf32> }}"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("%m = arith.mulf %x, %y : f32\n%s = arith.addf %acc, %m : f32\nlinalg.yield %s : f32", Contraction),
        ("%m = arith.mulf %y, %x : f32\n%s = arith.addf %m, %acc : f32\nlinalg.yield %s : f32", Contraction),
        ("%m = arith.mulf %x, %x : f32\n%s = arith.addf %m, %acc : f32\nlinalg.yield %s : f32", Reduction),
        ("%m = arith.addf %x, %y : f32\n%s = arith.mulf %m, %acc : f32\nlinalg.yield %s : f32", Reduction),
        ("%m = arith.mulf %x, %y : f32\n%s = arith.subf %acc, %m : f32\nlinalg.yield %s : f32", Reduction),
        ("%m = arith.mulf %x, %acc : f32\n%s = arith.addf %acc, %m : f32\nlinalg.yield %s : f32", Reduction),
    ],
)
def test_bodies_decide_not_names(body: str, kind: type) -> None:
    (generic,) = generics(parse_module(GENERIC.format(body=body), "test.mlir"))
    assert isinstance(classify(generic), kind)


def test_combiners() -> None:
    body = "%m = arith.mulf %x, %x : f32\n%s = arith.maximumf %m, %acc : f32\nlinalg.yield %s : f32"
    (generic,) = generics(parse_module(GENERIC.format(body=body), "test.mlir"))
    found = classify(generic)
    assert isinstance(found, Reduction)
    assert found.combiners == ("arith.maximumf",)
    assert found.elements[0] is not None
    assert isinstance(found.elements[0].owner, arith.MulfOp)
    coupled = GENERIC.format(body="%m = arith.mulf %x, %acc : f32\n%s = arith.addf %acc, %m : f32\nlinalg.yield %s : f32")
    (generic,) = generics(parse_module(coupled, "test.mlir"))
    found = classify(generic)
    assert isinstance(found, Reduction)
    assert (found.combiners, found.elements) == (("",), (None,))
