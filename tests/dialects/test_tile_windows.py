"""Folded views in text: what is refused, and at which line."""

import pytest

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.ir.core import VerifyException
from treadle.ir.text import parse_module

WINDOWS = "<axes = [[8, 1, 6], [1, 0, 0]], dims = [[[0, 4, 1]], [[0, 3, 1], [1, 8, 1]]]>"
KERNEL = """"tile.kernel"() <{{sym_name = "k", symbols = [], grid = ["1", "1", "1"], num_warps = 1 : i64, target = "sm_90a",
  arg_align = array<i64: 16, 16>, output_count = 1 : i64}}> ({{
^bb0(%x: !tile.ptr<f16>, %y: !tile.ptr<f16>):
  %zero = arith.constant 0 : index
  %v = tile.view %x offset -8 : i64 align 16 : i64 sizes[] strides[] windows {windows} : !tile.ptr<f16> -> memref<4x24xf16, strided<[8, 1]>>
  %t = tile.load %v[%zero, %zero] dims array<i64: 0, 1> vector 1 : i64 {other}: memref<4x24xf16, strided<[8, 1]>> -> tensor<4x8xf16>
  {more}
  tile.return
}}) : () -> ()
"""


STORE = "tile.store %t, %v[%zero, %zero] dims array<i64: 0, 1> vector 1 : i64 : tensor<4x8xf16>, memref<4x24xf16, strided<[8, 1]>>"


def parse(windows: str = WINDOWS, other: str = "", more: str = "") -> None:
    module = parse_module(KERNEL.format(windows=windows, other=other, more=more), "test.mlir")
    module.verify()
    assert any(isinstance(op, tile.ViewOp) and op.folding is not None for op in module.walk())


def test_a_folded_view_is_loaded() -> None:
    parse()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"windows": WINDOWS.replace(", [1, 8, 1]]]", ", [1, 8, 1]], []]")}, "a list of parts for each dimension"),
        ({"windows": WINDOWS.replace("[[8, 1, 6]", "[[8, 1]")}, r"an axis is \[pitch, low, high\]"),
        ({"other": "other 1.0 : f16 "}, "with zeros outside"),
        ({"more": STORE}, "or copied from; nothing else"),
    ],
)
def test_what_is_refused(changed: dict[str, str], reason: str) -> None:
    with pytest.raises((TreadleError, VerifyException), match=reason):
        parse(**changed)
