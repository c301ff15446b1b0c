"""The comparison with float64: what it accepts, and that it can say no."""

import ml_dtypes
import numpy as np
import pytest

from treadle.tools.checking import compare, compare_all, tolerance

GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_rounding_is_granted(dtype: type) -> None:
    reference = GENERATOR.standard_normal((33, 77))
    assert compare(reference.astype(dtype), reference, 77).correct


def test_long_f32_sums_are_granted_and_lost_terms_are_not() -> None:
    a = GENERATOR.standard_normal((8, 4097)).astype(np.float32)
    reference = a.astype(np.float64).sum(1)
    assert compare(np.add.accumulate(a, axis=1)[:, -1], reference, 4097).correct
    assert not compare(a[:, :-1].sum(1), reference, 4097).correct


def test_tf32_operands_are_not_f32() -> None:
    a, b = GENERATOR.standard_normal((2, 64, 64)).astype(np.float32)
    rounded = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    reference = a.astype(np.float64) @ b.astype(np.float64)
    assert compare(a @ b, reference, 64).correct
    assert not compare(rounded[0] @ rounded[1], reference, 64).correct


def test_one_wrong_element_is_seen() -> None:
    reference = GENERATOR.standard_normal((200, 300))
    result = reference.astype(np.float32)
    result[199, 299] = 0
    assert not compare(result, reference, 300).correct


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity(bad: float) -> None:
    reference = np.array([1.0, 2.0])
    assert not compare(np.array([1.0, bad], np.float32), reference, 2).correct
    assert compare(np.array([1.0, bad], np.float32), np.array([1.0, bad]), 2).correct
    assert not compare(np.array([1.0, 2.0], np.float32), np.array([1.0, bad]), 2).correct


def test_integers_are_exact() -> None:
    assert compare(np.array([3, 4]), np.array([3.0, 4.0]), 2).correct
    assert not compare(np.array([3, 5]), np.array([3.0, 4.0]), 2).correct
    assert tolerance(np.dtype(np.int32), 1000) == 0


def test_shapes() -> None:
    assert not compare(np.zeros((2, 1)), np.zeros((1, 2)), 2).correct
    assert compare(np.zeros((0, 5), np.float32), np.zeros((0, 5)), 5).correct
    with pytest.raises(ValueError, match="zip"):
        compare_all([np.zeros(1)], [], [])
