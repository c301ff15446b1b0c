"""How far rows are apart and along which axis they lie, by what a function's text says of its arguments and slices."""

import pytest

from treadle.analysis.row_pitch import row_pitch, unit_axis
from treadle.ir.core import SSAValue
from treadle.ir.dialects import func
from treadle.ir.text import parse_module


def value_of(argument: str, line: str = "", result: str = "") -> SSAValue:
    """The result of a line about %a, the argument where there is none."""
    returned = "%r" if line else "%a"
    kind = result or argument.partition(" {")[0]
    module = parse_module(f"func.func @f(%a: {argument}) -> {kind} {{\n {line}\n return {returned} : {kind}\n}}", "test.mlir")
    function = next(op for op in module.walk() if isinstance(op, func.FuncOp))
    last = function.body.block.last_op
    assert last is not None
    return last.operands[0]


def pitch_of(argument: str, line: str = "", result: str = "") -> int | None:
    return row_pitch(value_of(argument, line, result))


@pytest.mark.parametrize(
    ("argument", "pitch"),
    [
        ("tensor<5x7xf16>", 7),
        ("tensor<3x5x7xf16>", 7),
        ("tensor<?x7xf16>", 7),
        ("tensor<5x?xf16>", None),
        ("tensor<5x7xf16> {treadle.strides = array<i64: 12, 1>}", 12),
        ("tensor<3x5x7xf16> {treadle.strides = array<i64: 44, 8, 1>}", 4),
        ("tensor<5x7xf16> {treadle.strides = array<i64: 1, 8>}", None),
        ("tensor<5x7xf16> {treadle.strides = array<i64: -1, 1>}", None),
    ],
)
def test_arguments(argument: str, pitch: int | None) -> None:
    assert pitch_of(argument) == pitch


@pytest.mark.parametrize(
    ("slice_", "result", "pitch"),
    [
        ("[0, 0] [5, 7] [1, 1]", "tensor<5x7xf16>", 40),
        ("[2, 3] [5, 7] [1, 1]", "tensor<5x7xf16>", 40),
        ("[0, 0] [5, 7] [2, 1]", "tensor<5x7xf16>", None),
        ("[0, 3] [5, 1] [1, 1]", "tensor<5xf16>", None),
    ],
)
def test_slices_have_the_pitch_of_their_source(slice_: str, result: str, pitch: int | None) -> None:
    assert pitch_of("tensor<20x40xf16>", f"%r = tensor.extract_slice %a{slice_} : tensor<20x40xf16> to {result}", result) == pitch


@pytest.mark.parametrize(
    ("argument", "axis"),
    [
        ("tensor<5x7xf16>", 1),
        ("tensor<5x?xf16>", 1),
        ("tensor<f16>", None),
        ("tensor<5x7xf16> {treadle.strides = array<i64: 12, 1>}", 1),
        ("tensor<3x5x7xf16> {treadle.strides = array<i64: 44, 1, 8>}", 1),
        ("tensor<5x7xf16> {treadle.strides = array<i64: 1, 8>}", 0),
        ("tensor<5x7xf16> {treadle.strides = array<i64: 1, 1>}", None),
        ("tensor<5x7xf16> {treadle.strides = array<i64: 9, -9223372036854775808>}", None),
    ],
)
def test_the_axis_along_which_arguments_lie(argument: str, axis: int | None) -> None:
    assert unit_axis(value_of(argument)) == axis


@pytest.mark.parametrize(
    ("slice_", "result", "axis"),
    [
        ("[2, 3] [5, 7] [1, 1]", "tensor<5x7xf16>", 0),
        ("[2, 3] [5, 7] [1, 2]", "tensor<5x7xf16>", 0),
        ("[2, 3] [5, 7] [2, 1]", "tensor<5x7xf16>", None),
        ("[2, 3] [1, 7] [1, 1]", "tensor<7xf16>", None),
        ("[2, 3] [5, 1] [1, 1]", "tensor<5xf16>", 0),
    ],
)
def test_slices_lie_along_the_axis_of_their_source(slice_: str, result: str, axis: int | None) -> None:
    line = f"%r = tensor.extract_slice %a{slice_} : tensor<20x40xf16> to {result}"
    assert unit_axis(value_of("tensor<20x40xf16> {treadle.strides = array<i64: 1, 24>}", line, result)) == axis
