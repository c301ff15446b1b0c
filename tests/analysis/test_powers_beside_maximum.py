"""Which powers may be zero below the normal range: those of differences from a maximum of the same row that are summed and nothing else."""

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl


@treadle.kernel(target="sim")
def powers(x: Any, y: Any, z: Any, form: tl.constexpr, B: tl.constexpr = 64) -> None:
    """Row sums of powers, differently spelled."""
    row = tl.program_id(0) * B
    tile, c = tl.load(x[row : row + B, 0:B]), 0.25
    top = tl.max(tile, 1, keep_dims=True)
    p = tl.zeros((B, B))
    if form == "scaled first":
        p = tl.exp2(tile * c - top * c)
    if form == "scaled last":
        p = tl.exp2((tile - top) * c)
    if form == "unscaled, of a larger maximum":
        p = tl.exp2(tile - tl.maximum(top, 3.0))
    if form == "of another factor":
        p = tl.exp2(tile * c - top * (2 * c))
    if form == "of a negative factor":
        p = tl.exp2((tile - top) * -c)
    if form == "of a minimum":
        p = tl.exp2(tile - tl.min(tile, 1, keep_dims=True))
    if form == "of another tile's maximum":
        p = tl.exp2(tile - tl.max(tl.abs(tile), 1, keep_dims=True))
    if form == "stored":
        p = tl.exp2(tile - top)
        z[row : row + B, 0:B] = p
    if form == "stored as a product's term":
        p = tl.exp2(tile - top)
        z[row : row + B, 0:B] = p.to(tl.float16)
    y[row : row + B] = tl.sum(p, 1)


FORMS = {
    "scaled first": True,
    "scaled last": True,
    "unscaled, of a larger maximum": True,
    "of another factor": False,
    "of a negative factor": False,
    "of a minimum": False,
    "of another tile's maximum": False,
    "stored": False,
    "stored as a product's term": False,
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    arrays = np.zeros((64, 64), np.float32), np.zeros(64, np.float32), np.zeros((64, 64), np.float32)
    text = powers[1].trace(*arrays, form, target="sm_90a", until="llvm").stages["llvm"]
    assert ("ex2.approx.ftz" in text) == FORMS[form]
    assert "ex2.approx" in text
