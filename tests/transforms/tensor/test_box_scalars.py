"""box-scalars: arguments and results of one number; sizes that they give; calls with numbers."""

import numpy as np
import pytest

import treadle
from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.tensor.box_scalars import BoxScalarsPass

SLICED = """func.func @f(%a: tensor<?xf32>, %n: index, %s: f32, %i: i8) -> (tensor<?xf32>, f32, index) {
  %x = tensor.extract_slice %a[0] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  %f = arith.sitofp %i : i8 to f32
  %p = arith.mulf %s, %f : f32
  return %x, %p, %n : tensor<?xf32>, f32, index
}"""


def test_signature() -> None:
    module = parse_module(SLICED, "test.mlir")
    run_passes(module, [BoxScalarsPass()])
    text = print_module(module)
    assert "(%a: tensor<?xf32>, %n: tensor<index>, %s: tensor<f32>, %i: tensor<i8>) -> (tensor<?xf32>, tensor<f32>, tensor<i64>)" in text


def test_leaves_functions_on_tensors_alone() -> None:
    text = "func.func @f(%a: tensor<7xf32>) -> tensor<7xf32> { return %a : tensor<7xf32> }"
    module = parse_module(text, "test.mlir")
    run_passes(module, [BoxScalarsPass()])
    assert print_module(module) == print_module(parse_module(text, "test.mlir"))


def test_numbers_are_arguments() -> None:
    program = treadle.compile(SLICED, target="sim")
    array = np.arange(9, dtype=np.float32)
    for n in (9, 0, 4, np.int64(5)):
        part, product, size = program(array, n, 1.5, -3)
        assert np.array_equal(part, array[: int(n)])
        assert (float(product), int(size)) == (-4.5, int(n))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((10, 1.5, -3), "TR724", "leaves axis 0"),
        ((-1, 1.5, -3), "TR724", "is negative"),
        ((2**31, 1.5, -3), "TR724", "2147483648"),
        ((2.5, 1.5, -3), "TR725", "float \\(2.5\\)"),
        ((3, 1.5, 300), "TR725", "int \\(300\\)"),
        ((np.float32(3), 1.5, 3), "TR725", "f32"),
        ((3, "x", 3), "TR729", "no array"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[object, ...], code: str, words: str) -> None:
    program = treadle.compile(SLICED, target="sim")
    with pytest.raises(TreadleError, match=words) as caught:
        program(np.arange(9, dtype=np.float32), *arguments)
    assert caught.value.code == code
