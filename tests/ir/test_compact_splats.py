"""Constants of one value cost what one value costs, and mean what they meant."""

import time

import numpy as np
import pytest

import treadle
from treadle.ir.dialects import arith, builtin
from treadle.ir.text import parse_module, print_module

TEXT = """func.func @f(%a: tensor<{shape}x{element}>) -> tensor<{shape}x{element}> {{
  %c = arith.constant dense<{value}> : tensor<{shape}x{element}>
  %b = arith.{op} %a, %c : tensor<{shape}x{element}>
  return %b : tensor<{shape}x{element}>
}}
"""


def constant_of(text: str) -> builtin.DenseIntOrFPElementsAttr:
    found = next(op.value for op in parse_module(text, "a.mlir").walk() if isinstance(op, arith.ConstantOp))
    assert isinstance(found, builtin.DenseIntOrFPElementsAttr)
    return found


def test_a_large_splat_is_small() -> None:
    start = time.process_time()
    text = TEXT.format(shape="65536x65536", element="f32", value="1.5", op="addf")
    assert len(constant_of(text).data.data) == 4
    assert "dense<1.500000e+00>" in print_module(parse_module(text, "a.mlir"))
    assert treadle.compile(text, target="sim").manifest.kernels
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("element", "value", "op", "number"),
    [
        ("f32", "0x3FC00000", "addf", 1.5),
        ("f16", "1.5", "addf", 1.5),
        ("i8", "-3", "addi", -3),
        ("i1", "true", "xori", 1),
        ("i32", "7", "addi", 7),
    ],
)
@pytest.mark.parametrize("shape", ["3x5", "1x1", "0x4", "7", "300x400"])
def test_values(shape: str, element: str, value: str, op: str, number: float) -> None:
    text = TEXT.format(shape=shape, element=element, value=value, op=op)
    kind = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i1": np.bool_, "i32": np.int32}[element]
    (found,) = treadle.compile(text, target="sim")(np.zeros([int(n) for n in shape.split("x")], kind))
    assert (found == kind(number)).all()


@pytest.mark.parametrize("value", ["2.5", "[2.5, 2.5, 2.5]", '"0x000020400000204000002040"', "0x40200000"])
def test_a_constant_that_is_returned(value: str) -> None:
    text = f"""func.func @f(%a: tensor<3xf32>) -> tensor<3xf32> {{
  %c = arith.constant dense<{value}> : tensor<3xf32>
  return %c : tensor<3xf32>
}}"""
    assert constant_of(text).is_splat()
    (found,) = treadle.compile(text, target="sim")(np.zeros(3, np.float32))
    np.testing.assert_array_equal(found, np.full(3, 2.5, np.float32))


def test_splats_are_those_of_one_value() -> None:
    text = "func.func @f(%a: tensor<0xf32>) {{\n  %c = arith.constant dense<{}> : tensor<{}xf32>\n  return\n}}"
    assert not constant_of(text.format("[1.0, 2.0]", 2)).is_splat()
    assert not constant_of(text.format("[0.0, -0.0]", 2)).is_splat()
    assert constant_of(text.format("0x7FC00000", 5)).is_splat()
    assert not constant_of(text.format("", 0)).is_splat()
