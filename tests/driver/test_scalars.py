"""Scalar arguments and results: numbers inside of kernels, sizes of the program, and what is neither."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from generators.scalar_programs import ALONE, filled, scaled

import treadle
from treadle.errors import TreadleError

DTYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "i1": np.bool_,
}
TARGETS = ("sm_90a", "gfx942", "gfx1201")


@pytest.mark.parametrize("kind", DTYPES)
def test_a_number_in_a_kernel(kind: str) -> None:
    program = treadle.compile(scaled(kind), target="sim")
    dtype = np.dtype(DTYPES[kind])
    for n in (0, 1, 300):
        x = np.random.default_rng(n).integers(0, 2 if kind == "i1" else 5, n).astype(dtype)
        for number in (1 if kind == "i1" else 3, dtype.type(1), np.array(1, dtype)):
            scale = np.asarray(number).astype(dtype)
            got, squared = program(number, x)
            assert got.dtype == squared.dtype == dtype and squared.shape == ()
            np.testing.assert_array_equal(got, x & scale if kind == "i1" else x * scale)
            np.testing.assert_array_equal(squared, scale & scale if kind == "i1" else scale * scale)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["f32", "i64", "i1"])
def test_there_is_code_for_it(kind: str, target: str) -> None:
    assert all(contents.startswith(b"\x7fELF") for contents in treadle.compile(scaled(kind), target=target).binaries.values())


@pytest.mark.parametrize("target", TARGETS)
def test_a_function_without_tensors(target: str) -> None:
    program = treadle.compile(ALONE, target="sim")
    for number, flag in ((7, True), (-3, False)):
        product, twice, chosen = program(1.5, number, flag)
        assert (float(product), int(twice), float(chosen)) == (1.5 * number, 2 * number, 1.5 * number if flag else 2.5)
        assert [float(r.value) for r in program.reference(1.5, number, flag)] == [float(product), float(twice), float(chosen)]
    assert treadle.compile(ALONE, target=target).manifest.kernels
    assert treadle.compile("func.func @f() {\n  return\n}\n", target="sim")() == ()


@pytest.mark.parametrize("kind", ["index", "i64", "i32"])
def test_a_number_that_is_a_size(kind: str) -> None:
    program = treadle.compile(filled(kind), target="sim")
    for n in (0, 1, 700):
        array, twice = program(n, 2.5)
        np.testing.assert_array_equal(array, np.full(n, 2.5, np.float32))
        assert int(twice) == 2 * n
    with pytest.raises(TreadleError, match="must not be negative") as caught:
        program(-1, 2.5)
    assert caught.value.code == "TR724"


def test_a_size_that_no_integer_gives() -> None:
    text = filled("i32").replace("%n: i32", "%s: f32").replace("  %m =", "  %n = arith.fptosi %s : f32 to i32\n  %m =", 1)
    with pytest.raises(TreadleError) as caught:
        treadle.compile(text, target="sim")
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR301", 2)
    assert "computed from argument 0 ('s') of type f32" in caught.value.message
    assert "take it as an integer" in caught.value.fix
