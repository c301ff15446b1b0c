"""store-in-bulk: boxes, their buffers, and arithmetic box by box."""

import pytest

from treadle import machine, pipelines
from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.plan.role_tiles import box_widths
from treadle.remarks import collect_remarks

LINEAR = """
func.func @f(%a: tensor<512x256xbf16>, %b: tensor<{n}x256xbf16>, %bias: tensor<{n}xf32>) -> tensor<512x{n}xbf16> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x{n}xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<512x{n}xf32>) -> tensor<512x{n}xf32>
  %r = linalg.matmul_transpose_b ins(%a, %b : tensor<512x256xbf16>, tensor<{n}x256xbf16>)
      outs(%f : tensor<512x{n}xf32>) -> tensor<512x{n}xf32>
  %o = tensor.empty() : tensor<512x{n}xbf16>
  %g = linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}} ins(%r, %bias : tensor<512x{n}xf32>, tensor<{n}xf32>) outs(%o : tensor<512x{n}xbf16>) {{
  ^bb0(%x: f32, %y: f32, %u: bf16):
    %s = arith.addf %x, %y : f32
    %t = math.tanh %s : f32
    %h = arith.truncf %t : f32 to bf16
    linalg.yield %h : bf16
  }} -> tensor<512x{n}xbf16>
  return %g : tensor<512x{n}xbf16>
}}
"""


def lowered(n: int, tile_n: int) -> tuple[list[Operation], list[str]]:
    """Operations of the role kernel and the pass's remarks; the schedule is verified on the way."""
    module = parse_module(LINEAR.format(n=n), "test.mlir")
    with collect_remarks() as log:
        pipelines.lower(
            module, machine.target_spec("sm_90a"), CompileOptions(tile=(64, tile_n, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3)
        )
    return list(module.walk()), [r.text for r in log.remarks if r.pass_name == "store-in-bulk"]


@pytest.mark.parametrize("tile_n", [64, 128, 192, 256])
def test_arithmetic_goes_box_by_box(tile_n: int) -> None:
    ops, remarks = lowered(768, tile_n)
    assert remarks == ["stored by descriptor copies"]
    shapes = {tile.tile_type(op.results[0]).get_shape() for op in ops if op.name == "math.tanh"}
    assert shapes == {(64, 64)}
    assert sum(op.name == "tile.copy_out" for op in ops) == tile_n // 64


@pytest.mark.parametrize(
    ("tile_n", "widths"),
    [
        (96, [64, 32]),
        (160, [64, 64, 32]),
        (176, [64, 64, 32, 16]),
        (208, [64, 64, 64, 16]),
        (40, [32, 8]),
        (88, [64, 16, 8]),
        (168, [64, 64, 32, 8]),
        (248, [64, 64, 64, 32, 16, 8]),
    ],
)
def test_widths_that_are_no_whole_number_of_boxes_end_in_narrower_ones(tile_n: int, widths: list[int]) -> None:
    ops, remarks = lowered(768, tile_n)
    assert remarks == ["stored by descriptor copies"]
    found = [tile.memref_type(op.source).get_shape()[1] for op in ops if isinstance(op, tile.CopyOutOp)]
    assert found == widths
    assert box_widths(tile_n, 2, (128, 64, 32, 16)) == tuple(widths)
    assert box_widths(tile_n + 4, 2, (128, 64, 32, 16)) is None


def test_rows_that_end_anywhere_are_stored_by_the_threads() -> None:
    ops, remarks = lowered(772, 64)
    assert not any(op.name == "tile.copy_out" for op in ops)
    assert any(why in remarks[0] for why in ("do not end at 16 bytes", "not a multiple of 16", "begin between multiples of 16"))
