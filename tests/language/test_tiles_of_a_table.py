"""Workgroups that take tiles in turn, where a table says which rows a tile multiplies."""

from typing import Any

import numpy as np

import treadle
import treadle.language as tl
from treadle.dialects import pipe, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.language.build import build
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate


@treadle.kernel
def reordered(a: Any, b: Any, order: Any, c: Any, BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 64) -> None:
    """Tile `number` of the result is that of the rows that its number in `order` names."""
    for number in tl.range(tl.program_id(0), tl.cdiv(c.shape[0], BM), tl.num_programs(0)):
        m, row = tl.index(order[number]) * BM, number * BM
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, a.shape[1], BK):
            acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, 0:BN], acc)
        c[row : row + BM, 0:BN] = acc


def test_each_tile_reads_its_own_number() -> None:
    """Both roles read it with the tile: ahead of them, it would be read for the first tile alone."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((8 * 64, 128), (128, 64)))
    order, c = rng.permutation(8).astype(np.int32), np.full((8 * 64, 64), np.nan, np.float16)
    launch = reordered[3]
    form, given, numbers = launch._resolved((a, b, order, c), {}, 4, 3)
    with collect_remarks() as log:
        module = scheduled(read_source(build(reordered.function, form).module, "tile"), "sm_90a", CompileOptions(), None)
    assert any("workgroups take the tiles in turn" in remark.text for remark in log.remarks)
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    sizes = dict(launch._inspection(form, given, numbers, "sm_90a")._sizes)
    report = simulate(kernel, [a, b, order, c], sizes, mode="late", seed=0)
    assert report.ok, str(report)
    want = a.reshape(8, 64, 128)[order].reshape(8 * 64, 128).astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(report.outputs[0].reshape(8 * 64, 64), want.astype(np.float16))
