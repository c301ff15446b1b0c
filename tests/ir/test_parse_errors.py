"""Unparsable text: one error at the user's line and column, in words that say what is wrong there."""

import pytest

from treadle.dialects.mlir_ext import NamedOp
from treadle.errors import TreadleError
from treadle.ir.core import Parser
from treadle.ir.text import parse_module

HEAD = "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
TAIL = "  return %a : tensor<4xf32>\n}\n"
CASES = [
    ("", "1:1", "no operations"),
    ("// nothing\n\n", "1:1", "no operations"),
    ("\0\1{{", "1:1", "Unexpected character"),
    (HEAD + "  %0 = arith.addf %a, %b : tensor<4xf32>\n" + TAIL, "2:23", "'%b' is used but not defined"),
    (HEAD + "  %0 = arith.addf %c, %b : tensor<4xf32>\n" + TAIL, "2:19", "'%c' is used but not defined"),
    (HEAD + "  %z = arith.constant true : i1\n" + TAIL, "2:28", "expected an operation, found ':'"),
    (HEAD + "  return %a\n}\n", "2:12", "Expected ':'"),
    (HEAD + "  return %a : tensor<4xf32>\n", "2:28", "the text ends"),
    (HEAD + "  %0 = arith.addi %a, %a : tensor<4xf32>\n" + TAIL, "2:8", "'arith.addi': "),
    (HEAD + "  %c = arith.constant 300 : i8\n" + TAIL, "2:8", "out of range"),
    (HEAD + "  %c = arith.constant dense<[1.0]> : tensor<4xf32>\n" + TAIL, "2:51", "Shape mismatch"),
    (HEAD + "  %é = math.exp %a : tensor<4xf32>\n" + TAIL, "2:3", "starts no name"),
    (HEAD + "  %0 = math.exp %a : tensor<4xf32>\n  %0 = math.exp %a : tensor<4xf32>\n" + TAIL, "3:3", "already defined"),
    ("#m = affine_map<(d0) -> (d0\n" + HEAD + TAIL, "1:28", "')' expected"),
]


@pytest.mark.parametrize(("text", "place", "words"), CASES, ids=[words for _, _, words in CASES])
def test_place_and_words(text: str, place: str, words: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "a.mlir")
    assert caught.value.code == "TR101"
    assert f"a.mlir:{place}" == str(caught.value.location)
    assert words in caught.value.message


def test_an_operation_that_fails_without_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(parser: Parser) -> None:
        assert not parser.pos

    monkeypatch.setattr(NamedOp, "parse", fail)
    text = """func.func @f(%x: tensor<1x9x9x3xf16>, %w: tensor<3x3x3x5xf16>, %o: tensor<1x7x7x5xf32>) -> tensor<1x7x7x5xf32> {
  %0 = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<1x9x9x3xf16>, tensor<3x3x3x5xf16>) outs(%o : tensor<1x7x7x5xf32>) -> tensor<1x7x7x5xf32>
  return %0 : tensor<1x7x7x5xf32>
}"""
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "a.mlir")
    assert str(caught.value.location) == "a.mlir:2:8"
    assert "'linalg.conv_2d_nhwc_hwcf': " in caught.value.message
