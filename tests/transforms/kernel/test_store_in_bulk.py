"""store-in-bulk: boxes, their buffers, and arithmetic box by box."""

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from treadle import machine, pipelines
from treadle.bench.texts import Body, Function
from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.plan.role_tiles import box_widths
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.verify.check import prove

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


IN_TURNS = CompileOptions(tile=(128, 192, 64), warps=(4, 1), consumer_warpgroups=1, ping_pong=2, num_stages=4, steps_in_flight=1)


def scaled(m: int, n: int, k: int) -> str:
    """(A @ B^T) * r + c with a number for each row and each column."""
    f = Function("f")
    a, b, r, c = (
        f.argument("a", (m, k), "bf16"),
        f.argument("b", (n, k), "bf16"),
        f.argument("r", (m,), "f32"),
        f.argument("c", (n,), "f32"),
    )

    def compute(body: Body, taken: list[str]) -> Sequence[str]:
        return [body.binary("arith.addf", body.binary("arith.mulf", taken[0], taken[1]), taken[2])]

    return f.text(*f.elementwise("mn,m,n->mn", [f.contract("mk,nk->mn", a, b), r, c], ["bf16"], compute))


def kernel_of(text: str, options: CompileOptions) -> tile.KernelOp:
    """The kernel's schedule."""
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, machine.target_spec("sm_90a"), options)
    (kernel,) = [op for op in module.walk() if isinstance(op, tile.KernelOp)]
    return kernel


@pytest.mark.parametrize(("columns", "is_large"), [(64, False), (128, False), (192, True)])
def test_beside_many_accumulators_rows_of_numbers_stay_behind_the_box_before(columns: int, is_large: bool) -> None:
    kernel = kernel_of(scaled(4000, 1992, 200), replace(IN_TURNS, tile=(128, columns, 64)))
    loads = [op for op in kernel.walk() if isinstance(op, tile.LoadOp)]
    rows = [op for op in loads if tile.tile_type(op.result).get_shape() == (1, 64)]
    assert len(rows) >= 2 * columns // 64, "of both sets of consumers"
    assert all((op.ordered is not None) == is_large for op in rows)


@pytest.mark.parametrize(("m", "n", "k"), [(136, 264, 72), (500, 200, 200)])
def test_results_of_many_accumulators_are_right(m: int, n: int, k: int) -> None:
    kernel = kernel_of(scaled(m, n, k), replace(IN_TURNS, persistent="always"))
    assert any(isinstance(op, tile.LoadOp) and op.ordered is not None for op in kernel.walk()) and prove(kernel).is_proven
    rng = np.random.default_rng(m)
    a, b, r, c = (rng.integers(-2, 3, shape).astype(np.float64) for shape in ((m, k), (n, k), m, n))
    wanted = (a @ b.T * r[:, None] + c).astype(ml_dtypes.bfloat16).astype(np.float64)
    given = [a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16), r.astype(np.float32), c.astype(np.float32)]
    report = simulate(kernel, [*given, np.full((m, n), np.nan, ml_dtypes.bfloat16)], mode="late", seed=0)
    assert report.ok, report
    assert np.array_equal(report.outputs[-1].reshape(m, n).astype(np.float64), wanted)
