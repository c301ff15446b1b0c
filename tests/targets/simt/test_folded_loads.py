"""Loads of folded views executed thread by thread on the CPU: random windows, whose matrix is what NumPy takes from the padded image."""

from random import Random

import numpy as np
import pytest
from targets.host import run_kernel
from targets.tile_kernels import finish, index, kernel_block

from treadle.dialects.tile import LoadOp, ProgramIdOp, ReturnOp, StoreOp, ViewOp, tile_of
from treadle.ir.core import ImplicitBuilder
from treadle.ir.dialects import arith, builtin
from treadle.layout.tile_layout import blocked
from treadle.layout.windows import FoldedAxis, Part, Windows
from treadle.plan.layout_choice import blocked_tile

ROWS, COLUMNS = 8, 16


def columns_of(image: np.ndarray, window: tuple[int, int], step: int, spread: int, pad: int) -> np.ndarray:
    """Row m: the window of output pixel m, its pixels after one another with their channels."""
    n, h, w, c = image.shape
    padded = np.pad(image, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    sides = [(side + 2 * pad - (k - 1) * spread - 1) // step + 1 for side, k in zip((h, w), window, strict=True)]
    parts = [
        padded[:, i * spread :: step, j * spread :: step][:, : sides[0], : sides[1]] for i in range(window[0]) for j in range(window[1])
    ]
    return np.stack(parts, axis=3).reshape(n * sides[0] * sides[1], window[0] * window[1] * c)


@pytest.mark.parametrize("seed", range(16))
def test_random_windows(seed: int) -> None:
    draw = Random(seed)
    n, h, w, c = draw.randint(1, 3), draw.randint(5, 9), draw.randint(5, 9), draw.choice([1, 3, 5, 8, 16])
    window, step, spread, pad = (draw.randint(1, 3), draw.randint(1, 3)), draw.randint(1, 2), draw.randint(1, 2), draw.randint(0, 2)
    image = np.random.default_rng(seed).integers(1, 100, (n, h, w, c)).astype(np.float32)
    wanted = columns_of(image, window, step, spread, pad)
    m, k = wanted.shape
    oh, ow = ((side + 2 * pad - (reach - 1) * spread - 1) // step + 1 for side, reach in zip((h, w), window, strict=True))
    # A pitch beyond 31 bits of distance for an image of no more: places of the first axis that only one image has.
    far = draw.random() < 0.3 and n == 1
    axes = (FoldedAxis(1 << 29 if far else h * w * c), FoldedAxis(w * c, pad, pad + h), FoldedAxis(c, pad, pad + w), FoldedAxis(1))
    rows = (Part(0, n + far, 1), Part(1, oh, step), Part(2, ow, step))
    windows = Windows(axes, (rows, (Part(1, window[0], spread), Part(2, window[1], spread), Part(3, c, 1))))
    layout = draw.choice(
        [
            blocked([ROWS, COLUMNS], (1, 0), 1, 32, 2),
            blocked_tile((ROWS, COLUMNS), (1, 0), (1, 1), 32, 2, lanes_fast=4, warp_order=(0, 1)),
            blocked([ROWS, COLUMNS], (0, 1), 2, 32, 1),
        ]
    )
    below, behind = -m % ROWS, -k % COLUMNS  # what tiles have beyond the matrix, which is zero
    block = kernel_block([builtin.f32, builtin.f32])
    x, y = block.args
    with ImplicitBuilder(block):
        at = [arith.MuliOp(ProgramIdOp(axis).result, index(extent)).result for axis, extent in enumerate((ROWS, COLUMNS))]
        view = ViewOp(x, [m, k], [windows.step(0), 1], offset=-pad * (w + 1) * c, align=4, windows=windows).result
        value = LoadOp(view, at, [0, 1], tile_of([ROWS, COLUMNS], builtin.f32, layout)).result
        StoreOp(value, ViewOp(y, [m + below, k + behind], [k + behind, 1], align=4).result, at, [0, 1])
        ReturnOp()
    warps = 1 << len(layout.warp)
    kernel = finish("folded", block, grid=[str(-(-m // ROWS)), str(-(-k // COLUMNS)), "1"], warps=warps)
    found = np.full((m + below, k + behind), -1, np.float32)
    run_kernel(kernel, [image, found])
    np.testing.assert_array_equal(found, np.pad(wanted, [(0, below), (0, behind)]))
