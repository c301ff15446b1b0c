"""MLIR text as a program: which function, and what is outside the tensor level."""

import pytest

from treadle.errors import TreadleError
from treadle.frontends.mlir import load

TWO = """func.func @one(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = call @helper(%x) : (tensor<?x3xf32>) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
func.func @two(%x: tensor<7xf32>) -> tensor<7xf32> {
  return %x : tensor<7xf32>
}
func.func private @helper(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  return %x : tensor<?x3xf32>
}
"""


def functions(text: str, function: str | None = None) -> list[str]:
    module = load(text, "user.mlir", function)
    return [str(op.attributes.get("sym_name") or op.properties.get("sym_name")).strip('"') for op in module.body.block.ops]


def test_the_named_function_and_what_it_calls_stay() -> None:
    assert functions(TWO, "one") == ["one", "helper"]
    assert functions(TWO, "two") == ["two"]


@pytest.mark.parametrize(
    ("text", "function", "code", "words", "line"),
    [
        (TWO, None, "TR104", "the module has 2 functions (functions: one, two)", 1),
        (TWO, "three", "TR104", "there is no function 'three'", 1),
        ("module {\n}\n", None, "TR104", "the module has no function", 1),
        ("func.func @f(%x: memref<3xf32>, %y: tensor<3xf32>) {\n  return\n}\n", None, "TR301", "of type memref<3xf32>", 1),
        ("func.func @f(%x: tensor<*xf32>) {\n  return\n}\n", None, "TR301", "of type tensor<*xf32>", 1),
        (
            "func.func @f(%x: tensor<3xf32>) {\n  %m = memref.alloc() : memref<3xf32>\n  return\n}\n",
            None,
            "TR301",
            "operation 'memref.alloc'",
            2,
        ),
        (
            "func.func private @g(tensor<3xf32>)\nfunc.func @f(%x: tensor<3xf32>) {\n  call @g(%x) : (tensor<3xf32>) -> ()\n  return\n}\n",
            None,
            "TR301",
            "'g', which has no body",
            3,
        ),
    ],
)
def test_is_refused(text: str, function: str | None, code: str, words: str, line: int) -> None:
    with pytest.raises(TreadleError) as caught:
        load(text, "user.mlir", function)
    assert caught.value.code == code, caught.value
    assert words in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == line


@pytest.mark.parametrize(("element", "line"), [("i4", 1), ("i128", 1), ("complex<f32>", 1), ("tf32", 1), ("i24", 2)])
def test_element_types_without_arrays_are_refused_at_their_line(element: str, line: int) -> None:
    inside = element if line == 2 else "i8"
    outer = "i32" if line == 2 else element
    text = f"""func.func @f(%a: tensor<4x{outer}>, %b: tensor<4xi32>) -> tensor<4x{outer}> {{
  %t = arith.trunci %b : tensor<4xi32> to tensor<4x{inside}>
  return %a : tensor<4x{outer}>
}}"""
    with pytest.raises(TreadleError) as caught:
        load(text, "a.mlir")
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR203", line)
    assert element in caught.value.message
