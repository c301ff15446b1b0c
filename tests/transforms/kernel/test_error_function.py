"""1 + erf as a power of a polynomial: where it is written so, and that its error is the one stated."""

import math
from typing import Any

import numpy as np
import pytest
from generators.elementwise_programs import names, program, simulated, tile_operations

from treadle.transforms.kernel.error_function import LOG2_ERFC

CONSTANTS = ["%c = arith.constant 1.0 : f32", "%r = arith.constant 0.70710678 : f32", "%half = arith.constant 0.5 : f32"]
ERF = [*CONSTANTS, "%v = arith.mulf %x, %r : f32", "%t = math.erf %v : f32"]
SUM = "%s = arith.addf %t, %c : f32"
GELU = [*ERF, SUM, "%h = arith.mulf %x, %half : f32", "%y = arith.mulf %h, %s : f32"]


def gelu(x: Any) -> Any:
    return np.array([0.5 * v * math.erfc(-v * 0.70710678) for v in x])


def test_the_polynomial_is_as_good_as_it_says() -> None:
    y = np.linspace(0, 4.6, 100001)
    exact = np.array([math.erfc(v) for v in y])
    power = np.exp2(np.polyval(LOG2_ERFC[::-1], y))
    assert np.max(np.abs(power / exact - 1)) < 2.0**-17
    y = np.linspace(4.6, 300, 100001)
    power = np.exp2(np.maximum(np.polyval(LOG2_ERFC[::-1], y), -1000))
    assert np.all(np.diff(power) <= 0)
    assert np.max(np.abs(power - np.array([math.erfc(v) for v in y]))) < 1e-15


@pytest.mark.parametrize(("element", "half", "least"), [("bf16", 2.0**-8, 1e-37), ("f16", 2.0**-11, 2.0**-24)])
def test_gelu_keeps_its_digits(element: str, half: float, least: float) -> None:
    text = program(GELU, element, count=4099)
    found = names(tile_operations(text))
    assert "math.erf" not in found and found.count("math.exp2") == 1
    low = -5.0 if element == "bf16" else -3.0  # below, f16 has few digits
    x = (
        np.concatenate([np.random.default_rng(3).normal(0, 2, 3000), np.linspace(low, 9, 1097), [0.0, -0.0]])
        .clip(low, None)
        .astype(np.float32)
    )
    seen = simulated(text, x)
    np.testing.assert_allclose(seen, gelu(x.astype(np.float64)), rtol=1.125 * half, atol=least / 2)


def test_ends() -> None:
    x = np.array([-1e30, -60.0, 60.0, 1e30, np.inf, np.nan], np.float32)
    found = simulated(program([*ERF, SUM.replace("%s", "%y")], "bf16", count=x.size), x)
    np.testing.assert_array_equal(found, [0.0, 0.0, 2.0, 2.0, 2.0, np.nan])


@pytest.mark.parametrize(
    ("lines", "element"),
    [
        (GELU, "f32"),
        ([*ERF, "%s = arith.addf %t, %half : f32", "%y = arith.mulf %s, %x : f32"], "bf16"),
        ([*ERF, SUM, "%y = arith.mulf %s, %t : f32"], "bf16"),
    ],
    ids=["f32", "another sum", "used again"],
)
def test_leaves_alone(lines: list[str], element: str) -> None:
    assert "math.erf" in names(tile_operations(program(lines, element)))
