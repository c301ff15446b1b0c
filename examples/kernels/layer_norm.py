"""Layer normalisation, forward: mean and variance of each row, and the row normalised, scaled and shifted; the row is read once."""

import harness
import numpy as np

import treadle
import treadle.language as tl


def normalised(x, mean, rstd, row, EPS: tl.constexpr, BLOCK: tl.constexpr, STREAMING: tl.constexpr):
    """A row as it is before it is scaled and shifted; its mean and the inverse of its deviation are stored."""
    values = tl.load(x[row, 0:BLOCK], streaming=STREAMING).to(tl.float32)
    average = tl.sum(values, axis=0) / x.shape[1]
    centred = tl.where(tl.arange(BLOCK) < x.shape[1], values - average, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / x.shape[1] + EPS)
    mean[row] = average
    rstd[row] = scale
    return centred * scale


CONFIGS = [
    treadle.Config({"ROWS": rows, "STREAMING": streaming}, num_warps=warps)
    for streaming in (False, True)
    for rows, warps in ((2, 2), (2, 8), (4, 8), (1, 4), (1, 8))
]
"""Rows that are taken in turn share the scales and shifts, which are loaded once, ahead of the sums, and are twice as much as a row. Of
long rows these would fill the registers. Where the caches do not keep rows of `x`, which nobody reads again, they keep results: 2 to 4 %
of the time at 4096 x 4096, whose results fit an H200's cache; where they do not fit, 1 to 6 % are lost.
"""


@treadle.autotune(CONFIGS, key=["x"])
@treadle.kernel
def layer_norm(x, weight, bias, y, mean, rstd, EPS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STREAMING: tl.constexpr):
    if ROWS > 1:
        scales, shifts = tl.load(weight[0:BLOCK]), tl.load(bias[0:BLOCK])
        for row in tl.range(tl.program_id(0), x.shape[0], tl.num_programs(0)):
            y[row, 0:BLOCK] = normalised(x, mean, rstd, row, EPS, BLOCK, STREAMING) * scales + shifts
    else:
        row = tl.program_id(0)
        y[row, 0:BLOCK] = normalised(x, mean, rstd, row, EPS, BLOCK, STREAMING) * weight[0:BLOCK] + bias[0:BLOCK]


def problem(rng: np.random.Generator, rows: int, columns: int) -> harness.Problem:
    x = (rng.standard_normal((rows, columns), np.float32) * 0.5 - 2.3).astype(np.float16)
    weight, bias = (rng.standard_normal(columns, np.float32).astype(np.float16) for _ in range(2))
    wide = x.astype(np.float64)
    average, scale = wide.mean(1), 1 / np.sqrt(wide.var(1) + 1e-5)
    block = 1 << (columns - 1).bit_length()
    arrays = {"x": x, "weight": weight, "bias": bias, "y": np.zeros_like(x)}
    return harness.Problem(
        arrays | {"mean": np.zeros(rows, np.float32), "rstd": np.zeros(rows, np.float32)},
        lambda **given: layer_norm[lambda tile: (-(-rows // tile["ROWS"]),)](**given, EPS=1e-5, BLOCK=block),
        {"y": (wide - average[:, None]) * scale[:, None] * weight + bias, "mean": average, "rstd": scale},
        bytes_moved=2 * x.nbytes,
    )


if __name__ == "__main__":
    harness.main("layer_norm", problem, small=(37, 781), large=(4096, 8192))
