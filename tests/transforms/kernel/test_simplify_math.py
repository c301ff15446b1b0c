"""simplify-math: what elementwise functions become, and that they compute the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generators.elementwise_programs import names, program, simulated, tile_operations

from treadle import machine, pipelines
from treadle.dialects.precision import has_flag
from treadle.ir.dialects import arith
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks

ROUNDED = 1.125 * 2.0**-8
"""Half a unit of bf16, and an eighth of that for the function itself."""

C = "%c = arith.constant"
EXPONENTIAL = ["%n = arith.negf %x : f32", "%e = math.exp %n : f32"]
ONE = [f"{C} 1.0 : f32"]
SIGMOID = [*EXPONENTIAL, *ONE, "%d = arith.addf %e, %c : f32", "%y = arith.divf %c, %d : f32"]
SILU = [*SIGMOID[:-1], "%y = arith.divf %x, %d : f32"]
SILU_BY_PRODUCT = [*SIGMOID[:-1], "%s = arith.divf %c, %d : f32", "%y = arith.mulf %x, %s : f32"]
CUBIC = [
    "%k = arith.constant 0.044715 : f32",
    "%m = arith.constant 0.7978845608028654 : f32",
    "%x2 = arith.mulf %x, %x : f32",
    "%x3 = arith.mulf %x2, %x : f32",
    "%x4 = arith.mulf %x3, %k : f32",
    "%i = arith.addf %x, %x4 : f32",
    "%v = arith.mulf %i, %m : f32",
    "%t = math.tanh %v : f32",
    "%half = arith.constant 0.5 : f32",
]
GELU = [*CUBIC, *ONE, "%s = arith.addf %t, %c : f32", "%h = arith.mulf %x, %half : f32", "%y = arith.mulf %h, %s : f32"]
GELU_OUTER_HALF = [*CUBIC, *ONE, "%s = arith.addf %c, %t : f32", "%h = arith.mulf %x, %s : f32", "%y = arith.mulf %half, %h : f32"]
GELU_BY_SUM = [*CUBIC, "%h = arith.mulf %x, %half : f32", "%p = arith.mulf %h, %t : f32", "%y = arith.addf %h, %p : f32"]
GELU_FACTORED = [
    *CUBIC[:3],
    *ONE,
    "%q = arith.mulf %x2, %k : f32",
    "%w = arith.addf %q, %c : f32",
    "%xm = arith.mulf %x, %m : f32",
    "%v = arith.mulf %xm, %w : f32",
    "%t = math.tanh %v : f32",
    *GELU[8:9],
    *GELU[10:],
]

TANH_GELU = ["arith.mulf", "arith.mulf", "arith.addf", "arith.mulf", "math.exp2", "arith.addf", "arith.divf", "arith.truncf"]
SILU_FORM = ["arith.mulf", "math.exp2", "arith.addf", "arith.divf", "arith.truncf"]


def gelu(x: Any) -> Any:
    return x / (1 + np.exp(-2 * 0.7978845608028654 * (x + 0.044715 * x**3)))  # 1 + tanh(u) without its cancellation


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


FORMS: list[tuple[str, list[str], list[str], Callable[[Any], Any]]] = [
    ("sigmoid", SIGMOID, SILU_FORM, lambda x: 1 / (1 + np.exp(-x))),
    ("silu", SILU, SILU_FORM, silu),
    ("silu-product", SILU_BY_PRODUCT, SILU_FORM, silu),
    ("gelu", GELU, TANH_GELU, gelu),
    ("gelu-outer-half", GELU_OUTER_HALF, TANH_GELU, gelu),
    ("gelu-sum", GELU_BY_SUM, TANH_GELU, gelu),
    ("gelu-factored", GELU_FACTORED, TANH_GELU, gelu),
    ("exp", ["%y = math.exp %x : f32"], ["arith.mulf", "math.exp2", "arith.truncf"], np.exp),
    ("square", ["%c = arith.constant 2.0 : f32", "%y = math.powf %x, %c : f32"], ["arith.mulf", "arith.truncf"], np.square),
    ("third", ["%c = arith.constant 3.0 : f32", "%y = arith.divf %x, %c : f32"], ["arith.mulf", "arith.truncf"], lambda x: x / 3),
    (
        "factors",
        ["%c = arith.constant 3.0 : f32", "%p = arith.mulf %x, %c : f32", "%n = arith.negf %p : f32", "%y = arith.mulf %n, %c : f32"],
        ["arith.mulf", "arith.truncf"],
        lambda x: -9 * x,
    ),
]


@pytest.mark.parametrize(("lines", "form", "function"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_form_and_values(lines: list[str], form: list[str], function: Callable[[Any], Any]) -> None:
    text = program(lines, count=4099)
    assert names(tile_operations(text)) == form
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(0, 3, 4000), rng.uniform(-60, 60, 92), [0.0, -0.0, 80.0, -80.0, -1e30, np.inf, np.nan]])
    found = simulated(text, x.astype(np.float32))
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float32).astype(np.float64))
    exact[(x == -1e30) & (np.abs(exact) < 1)] = 0.0
    exact[np.abs(exact) > 3.4e38] *= np.inf
    np.testing.assert_allclose(found, exact, rtol=ROUNDED, atol=1e-32)


def test_the_tail_of_gelu_keeps_its_digits() -> None:
    x = np.linspace(-8, -3, 997, dtype=np.float32)
    found = simulated(program(GELU, count=997), x)
    exact = gelu(x.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=ROUNDED)


def test_quotients_of_exponentials_may_use_a_reciprocal() -> None:
    operations = {op.name: op for op in tile_operations(program(SILU))}
    assert has_flag(operations["arith.divf"], arith.FastMathFlag.ALLOW_RECIP)
    assert has_flag(operations["math.exp2"], arith.FastMathFlag.APPROX_FUNC)
    plain = {op.name: op for op in tile_operations(program(["%e = math.absf %x : f32", "%y = arith.divf %x, %e : f32"]))}
    assert not has_flag(plain["arith.divf"], arith.FastMathFlag.ALLOW_RECIP)


def test_remark_says_what_was_replaced() -> None:
    module = parse_module(program(GELU), "test.mlir")
    with collect_remarks() as log:
        pipelines.lower(module, machine.target_spec("sm_90a"), CompileOptions(), until="tile")
    (text,) = [remark.text for remark in log.remarks if remark.pass_name == "simplify-math"]
    assert text.startswith("9 operations become 7:") and "1 math.exp2" in text and text.endswith("1 math.tanh")


def test_leaves_f32_results_alone() -> None:
    kept = ["arith.negf", "math.exp", "arith.addf", "arith.divf"]
    assert names(tile_operations(program(SILU, "f32"))) == kept
    assert "math.tanh" in names(tile_operations(program(GELU, "f32")))


def test_leaves_alone_what_is_used_again() -> None:
    lines = [*SIGMOID[:-1], "%s = arith.divf %c, %d : f32", "%y = arith.mulf %s, %d : f32"]
    assert "math.exp2" in names(tile_operations(program(lines)))
    divisions = [op for op in tile_operations(program(lines)) if op.name == "arith.divf"]
    assert not any(has_flag(op, arith.FastMathFlag.ALLOW_RECIP) for op in divisions)


def test_leaves_decisions_alone() -> None:
    lines = ["%c = arith.constant 3.0 : f32", "%q = arith.divf %x, %c : f32", "%y = math.floor %q : f32"]
    assert names(tile_operations(program(lines))) == ["arith.divf", "math.floor", "arith.truncf"]
