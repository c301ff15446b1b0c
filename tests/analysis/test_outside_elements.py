"""Whether what a tile has outside of its array can be seen."""

import pytest

from treadle.analysis.outside_elements import outside_matters
from treadle.dialects import tile
from treadle.ir.text import parse_module

HEAD = """
"tile.kernel"() <{sym_name = "k", symbols = [], grid = ["9", "1", "1"], num_warps = 1 : i64, target = "sm_90a",
  arg_align = array<i64: 16, 16>,
  output_count = 1 : i64}> ({
^bb0(%p: !tile.ptr<f32>, %q: !tile.ptr<f32>):
  %x = tile.view %p offset 0 : i64 align 16 : i64 sizes[] strides[] : !tile.ptr<f32> -> memref<7x99xf32, strided<[99, 1]>>
  %y = tile.view %q offset 0 : i64 align 16 : i64 sizes[] strides[] : !tile.ptr<f32> -> memref<7xSIZExf32, strided<[128, 1]>>
  %z = arith.constant 0 : index
  %o = arith.constant 64 : index
  %r = tile.program_id 0 : i64
  %a = tile.load %x[%r, %o] dims array<i64: 1> vector 1 : i64 : memref<7x99xf32, strided<[99, 1]>> -> tensor<64xf32>
"""
STORE = "tile.store VALUE, %y[%r, %o] dims array<i64: 1> vector 1 : i64 : tensor<64xf32>, memref<7xSIZExf32, strided<[128, 1]>>"
CASES = {
    "copied": ("", STORE.replace("VALUE", "%a"), False),
    "computed": ("%b = arith.mulf %a, %a : tensor<64xf32>", STORE.replace("VALUE", "%b"), False),
    "stored elsewhere": ("", STORE.replace("VALUE", "%a").replace("%o", "%z"), True),
    "computed and stored elsewhere, too": (
        "%b = arith.mulf %a, %a : tensor<64xf32>",
        STORE.replace("VALUE", "%a") + "\n" + STORE.replace("VALUE", "%b").replace("%o", "%z"),
        True,
    ),
    "given to a loop": (
        "%n = arith.constant 3 : index\n%i = arith.constant 1 : index\n"
        "%b = scf.for %j = %z to %n step %i iter_args(%c = %a) -> (tensor<64xf32>) {\n"
        "scf.yield %c : tensor<64xf32>\n}",
        STORE.replace("VALUE", "%b"),
        True,
    ),
}


def matters(case: str, size: int) -> bool:
    computed, stored, _ = CASES[case]
    text = f"{HEAD}{computed}\n{stored}\ntile.return\n}}) : () -> ()".replace("SIZE", str(size))
    (load,) = [op for op in parse_module(text, "test.mlir").walk() if isinstance(op, tile.LoadOp)]
    return outside_matters(load)


@pytest.mark.parametrize("case", CASES)
def test_it_matters_where_it_comes_to_another_place(case: str) -> None:
    assert matters(case, 99) == CASES[case][2]


@pytest.mark.parametrize(("size", "expected"), [(98, False), (100, True)])
def test_it_matters_where_the_result_reaches_further(size: int, expected: bool) -> None:
    assert matters("copied", size) == expected
