"""tile.atomic, tile.reshape, tile.extract, tile.lookup and tile.print: their text, and what they refuse."""

import pytest

from treadle.dialects.tile import ATOMIC_KINDS
from treadle.errors import TreadleError
from treadle.ir.text import parse_module, print_module

KERNEL = """
tile.kernel @k(%x: !tile.ptr<{element}>, %n: index) attributes {{output_count = 1, grid = ["1"], num_warps = 1}} {{
  %v = tile.view %x offset 0 : i64 align 4 : i64 sizes [%n] strides [] : !tile.ptr<{element}> -> memref<?x{element}, strided<[1]>>
  %i = tile.iota 0 : i64 : tensor<8xi32>
  %y = arith.constant dense<1> : tensor<8x{element}>
  {body}
  tile.return
}}
"""
ATOMIC = 'tile.atomic "{kind}" %y, %v[%i] : tensor<8x{element}>, memref<?x{element}, strided<[1]>>, tensor<8xi32>'


def module(body: str, element: str = "i32") -> str:
    text = KERNEL.format(element=element, body=body)
    return text if element.startswith("i") else text.replace("dense<1>", "dense<1.0>")


@pytest.mark.parametrize(
    "body",
    [
        *(ATOMIC.format(kind=kind, element="i32") for kind in ATOMIC_KINDS),
        "%r = tile.reshape %y : tensor<8xi32> -> tensor<2x4xi32>",
        "%one = tile.iota 0 : i64 : tensor<1xi32>\n  %e = tile.extract %one : tensor<1xi32>",
        "%l = tile.lookup %n in array<i64: 5, 0, -7>",
        'tile.print "here" ["y", "n"] (%y, %n) : tensor<8xi32>, index',
        'tile.print "here" ["y"] stops (%y) : tensor<8xi32>',
    ],
)
def test_text(body: str) -> None:
    once = print_module(parse_module(module(body), "a.mlir"))
    assert print_module(parse_module(once, "b.mlir")) == once


@pytest.mark.parametrize(
    ("body", "element", "says"),
    [
        (ATOMIC.format(kind="nand", element="i32"), "i32", "an atomic update of the kind 'nand'"),
        (ATOMIC.format(kind="xor", element="f32"), "f32", "an atomic 'xor' of f32"),
        (ATOMIC.format(kind="add", element="i8"), "i8", "an atomic 'add' of i8"),
        ("%r = tile.reshape %y : tensor<8xi32> -> tensor<2x3xi32>", "i32", "keeps neither the elements' number nor their type"),
        ("%r = tile.reshape %s : tensor<6xi32> -> tensor<2x3xi32>", "i32", "sides are powers of two"),
        ("%e = tile.extract %y : tensor<8xi32>", "i32", "takes a tile of one i32 or i64"),
        ("%l = tile.lookup %n in array<i64>", "i32", "has a table of one number at least"),
        ("%l = tile.lookup %n in 7 : i64", "i32", "expected array<i64: ..>"),
        ('tile.print "here" ["y", "z"] (%y) : tensor<8xi32>', "i32", "has 2 names for 1 values"),
    ],
)
def test_what_is_refused(body: str, element: str, says: str) -> None:
    six = "%s = tile.iota 0 : i64 : tensor<6xi32>\n  "
    with pytest.raises(TreadleError) as caught:
        parse_module(module(six + body, element), "a.mlir")
    assert says in str(caught.value)
