"""What is known about accesses of views: ends that are chosen, and ends that vary otherwise."""

import pytest

from treadle.analysis.view_access import access_facts, chosen_size, view_op
from treadle.dialects import tile
from treadle.ir.text import parse_module

VIEW = """
builtin.module {{
  "tile.kernel"() <{{sym_name = "k", symbols = [], grid = ["4", "1", "1"], num_warps = 4 : i64, target = "sm_90a",
    arg_align = array<i64: 256>, output_count = 1 : i64}}> ({{
  ^bb0(%a: !tile.ptr<f16>):
    %p = tile.program_id 0 : i64
    %c1 = arith.constant 1 : index
    %c40 = arith.constant 40 : index
    %c72 = arith.constant 72 : index
    %last = arith.cmpi eq, %p, %c1 : index
    %size = {size}
    %v = tile.view %a offset 0 : i64 align 256 : i64 sizes[%size] strides[] : !tile.ptr<f16> -> memref<?x64xf16, strided<[64, 1]>>
    tile.return
  }}) : () -> ()
}}"""


@pytest.mark.parametrize(
    ("size", "varies", "sizes"),
    [
        ("arith.select %last, %c72, %c40 : index", False, (72, 40)),
        ("arith.select %last, %c72, %p : index", True, None),
        ("arith.addi %p, %c40 : index", True, None),
        ("arith.addi %c72, %c40 : index", False, None),
    ],
)
def test_an_end_of_two_is_chosen(size: str, varies: bool, sizes: tuple[int, int] | None) -> None:
    module = parse_module(VIEW.format(size=size), "view.mlir")
    view = next(op for op in module.walk() if isinstance(op, tile.ViewOp))
    start = next(op for op in module.walk() if isinstance(op, tile.ProgramIdOp)).result
    facts = access_facts(view.result, [start, start], (0, 1), (64, 64))
    assert facts.varies is varies and facts.dims[0].size is None
    found = chosen_size(view_op(view.result).size_values()[0])
    assert (None if found is None else found[1:]) == sizes
    if sizes is not None:
        assert facts.dims[0].size_divisor == 8
