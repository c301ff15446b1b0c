"""What MLIR has and is not compiled: a code, the line, and what to write instead."""

import pytest

import treadle
from treadle.errors import TreadleError

HEAD = "func.func @f(%a: tensor<4x4xf32>, %n: tensor<4xi32>) -> tensor<4x4xf32> {\n"
TAIL = "\n  return %a : tensor<4x4xf32>\n}"
PACK = """  %e = tensor.empty() : tensor<2x2x2x2xf32>
  %p = linalg.{} %a inner_dims_pos = [0, 1] inner_tiles = [2, 2] into %e : tensor<4x4xf32> -> tensor<2x2x2x2xf32>"""
CASES = [
    (HEAD + PACK.format("pack") + TAIL, "TR301", 3, "tensor.expand_shape and linalg.transpose"),
    (HEAD + PACK.format("unpack") + TAIL, "TR301", 3, "tensor.expand_shape and linalg.transpose"),
    (HEAD + "  %c = complex.create %a, %a : complex<f32>" + TAIL, "TR301", 2, "real and imaginary"),
    (HEAD + "  %g = tensor.generate %a { }" + TAIL, "TR301", 2, "linalg.index"),
    (HEAD + "  %g = tensor.gather %a[%n] gather_dims([0]) : f32" + TAIL, "TR301", 2, "tensor.extract inside linalg.generic"),
    (HEAD + "  %g = tensor.scatter %a into %a[%n] scatter_dims([0]) : f32" + TAIL, "TR301", 2, "updates could meet"),
    ("func.func @f(%a: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> { return %a : tensor<4xcomplex<f32>> }", "TR203", 1, "imaginary"),
    ("func.func @f(%a: tensor<4xi4>) -> tensor<4xi4> { return %a : tensor<4xi4> }", "TR203", 1, "addressed in bytes"),
    (
        HEAD + "  %c0 = arith.constant 0 : index\n  %i = tensor.extract %n[%c0] : tensor<4xi32>\n"
        "  %j = arith.index_cast %i : i32 to index\n"
        "  %s = tensor.extract_slice %a[0, 0] [%j, 4] [1, 1] : tensor<4x4xf32> to tensor<?x4xf32>\n  return %s : tensor<?x4xf32>\n}",
        "TR301",
        3,
        "integer arguments",
    ),
    (
        "func.func @f(%a: f32) -> tensor<300xf32> {\n  %0 = tensor.from_elements "
        + ", ".join(["%a"] * 300)
        + " : tensor<300xf32>\n  return %0 : tensor<300xf32>\n}",
        "TR301",
        2,
        "dense constant",
    ),
]
CASES[8] = (CASES[8][0].replace("-> tensor<4x4xf32> {", "-> tensor<?x4xf32> {"), *CASES[8][1:])


@pytest.mark.parametrize(("text", "code", "line", "advice"), CASES, ids=[f"{number}-{case[3]}" for number, case in enumerate(CASES)])
def test_refusal(text: str, code: str, line: int, advice: str) -> None:
    with pytest.raises(TreadleError) as caught:
        treadle.compile(text, target="sim")
    assert (caught.value.code, caught.value.location and caught.value.location.line) == (code, line)
    assert advice in caught.value.fix


def test_functions_of_f64_without_code_are_refused() -> None:
    text = "func.func @f(%a: tensor<4xf64>) -> tensor<4xf64> {\n  %0 = math.asin %a : tensor<4xf64>\n  return %0 : tensor<4xf64>\n}"
    with pytest.raises(TreadleError) as caught:
        treadle.compile(text, target="gfx942")
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR301", 2)
