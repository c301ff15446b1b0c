"""Values of arith and math operations in their exact types."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle.dialects import all_dialects_context
from treadle.ir.text import parse_module
from treadle.sim.element_types import reference_dtype, storage_dtype
from treadle.sim.elementwise import Formats, elementwise_function
from treadle.sim.reference import function_named
from treadle.sim.special_functions import erf

BF16 = ml_dtypes.bfloat16


def run(op: str, types: list[str], args: list[Any], formats: Formats = storage_dtype) -> Any:
    """The value of one operation written with %a, %b, ... of the given types."""
    names = ["%" + c for c in "abc"[: len(types)]]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    module = parse_module(f"func.func @f({arguments}) {{\n  %r = {op}\n  return\n}}", "t", all_dialects_context())
    function = elementwise_function(next(iter(function_named(module, None).body.block.ops)), formats)
    assert function is not None
    with np.errstate(all="ignore"):
        return function(*args)


@pytest.mark.parametrize(
    ("op", "type_", "args", "expected"),
    [
        ("arith.addi %a, %b : i8", "i8", (127, 1), -128),
        ("arith.maxsi %a, %b : i1", "i1", (True, False), False),
        ("arith.minsi %a, %b : i1", "i1", (True, False), True),
        ("arith.maxui %a, %b : i1", "i1", (True, False), True),
        ("arith.cmpi slt, %a, %b : i1", "i1", (True, False), True),
        ("arith.cmpi ult, %a, %b : i1", "i1", (True, False), False),
        ("arith.muli %a, %b : i8", "i8", (16, 16), 0),
        ("arith.divsi %a, %b : i32", "i32", (-7, 2), -3),
        ("arith.floordivsi %a, %b : i32", "i32", (-7, 2), -4),
        ("arith.ceildivsi %a, %b : i32", "i32", (7, 2), 4),
        ("arith.remsi %a, %b : i32", "i32", (-7, 2), -1),
        ("arith.divui %a, %b : i8", "i8", (-1, 2), 127),
        ("arith.remui %a, %b : i8", "i8", (-1, 16), 15),
        ("arith.maxui %a, %b : i8", "i8", (-1, 3), -1),
        ("arith.maxsi %a, %b : i8", "i8", (-1, 3), 3),
        ("arith.shrui %a, %b : i8", "i8", (-1, 4), 15),
        ("arith.shrsi %a, %b : i8", "i8", (-16, 2), -4),
        ("arith.shli %a, %b : i8", "i8", (1, 8), 0),
        ("arith.xori %a, %b : i8", "i8", (5, 3), 6),
    ],
)
def test_integers(op: str, type_: str, args: tuple[int, int], expected: int) -> None:
    dtype = {"i1": np.bool_, "i8": np.int8, "i32": np.int32}[type_]
    result = np.asarray(run(op, [type_] * 2, [np.array(a, dtype) for a in args]))
    assert result == expected
    assert result.dtype == dtype


def test_bits_counted() -> None:
    x = np.array([0, 1, -1, 40], np.int32)
    for name, expected in (("ctpop", [0, 1, 32, 2]), ("ctlz", [32, 31, 0, 26]), ("cttz", [32, 0, 0, 3])):
        assert list(run(f"math.{name} %a : i32", ["i32"], [x])) == expected


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["f16", "bf16"])
def test_narrow_floats_round_once_an_operation(dtype: type) -> None:
    name = "f16" if dtype is np.float16 else "bf16"
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(1000).astype(dtype) for _ in range(2))
    for op, expected in (("arith.mulf", a.astype("d") * b.astype("d")), ("arith.addf", a.astype("d") + b.astype("d"))):
        got = run(f"{op} %a, %b : {name}", [name] * 2, [a, b])
        assert got.dtype == dtype
        assert np.array_equal(got, expected.astype(np.float32).astype(dtype))


def test_nan_in_extrema() -> None:
    a, b = np.array([np.nan, 1.0], "f"), np.array([2.0, np.nan], "f")
    assert np.isnan(run("arith.maximumf %a, %b : f32", ["f32"] * 2, [a, b])).all()
    assert list(run("arith.maxnumf %a, %b : f32", ["f32"] * 2, [a, b])) == [2.0, 1.0]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("olt", (1, 0, 0)),
        ("ult", (1, 0, 1)),
        ("une", (1, 0, 1)),
        ("one", (1, 0, 0)),
        ("ord", (1, 1, 0)),
        ("uno", (0, 0, 1)),
        ("oeq", (0, 1, 0)),
    ],
)
def test_float_comparisons(predicate: str, expected: tuple[int, ...]) -> None:
    a, b = np.array([1.0, 2.0, np.nan], "f"), np.array([2.0, 2.0, 0.0], "f")
    assert tuple(run(f"arith.cmpf {predicate}, %a, %b : f32", ["f32"] * 2, [a, b])) == expected


@pytest.mark.parametrize(("predicate", "expected"), [("slt", True), ("ult", False), ("uge", True), ("eq", False)])
def test_integer_comparisons(predicate: str, expected: bool) -> None:
    assert run(f"arith.cmpi {predicate}, %a, %b : i8", ["i8"] * 2, [np.int8(-1), np.int8(1)]) == expected


def test_conversions() -> None:
    assert run("arith.extsi %a : i1 to i32", ["i1"], [np.True_]) == -1
    assert run("arith.extui %a : i1 to i32", ["i1"], [np.True_]) == 1
    assert run("arith.extui %a : i8 to i32", ["i8"], [np.int8(-1)]) == 255
    assert run("arith.uitofp %a : i8 to f32", ["i8"], [np.int8(-1)]) == 255.0
    assert run("arith.sitofp %a : i1 to f32", ["i1"], [np.True_]) == -1.0
    assert run("arith.trunci %a : i32 to i8", ["i32"], [np.int32(300)]) == 44
    assert list(run("arith.fptosi %a : f32 to i8", ["f32"], [np.array([-1.9, 1e9, -np.inf, np.nan], "f")])) == [-1, 127, -128, 0]
    assert list(run("arith.fptoui %a : f32 to i8", ["f32"], [np.array([200.5, -3.0, 1e9], "f")]).view("u1")) == [200, 0, 255]
    assert run("arith.bitcast %a : f32 to i32", ["f32"], [np.float32(1)]) == 0x3F800000
    # The reference holds f16 as float64; its bits are those of the declared type all the same.
    assert run("arith.bitcast %a : f16 to i16", ["f16"], [np.float64(1)], reference_dtype) == 0x3C00


def test_constants_round_to_their_type() -> None:
    assert run("arith.constant 0.1 : bf16", [], [], reference_dtype) == float(np.float32(0.1).astype(BF16))
    assert list(run("arith.constant dense<[1, -2]> : tensor<2xi8>", [], [])) == [1, -2]


def test_erf() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20_001), [1e-9, -1e-300, 0.0]])
    expected = np.array([math.erf(v) for v in x])
    assert np.max(np.abs(erf(x) - expected) / np.maximum(np.abs(expected), 1e-300)) < 1e-15
    assert np.array_equal(erf(np.array([np.inf, -np.inf])), [1, -1])
    assert np.isnan(erf(np.array([np.nan])))
