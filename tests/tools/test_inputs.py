"""The `--input` grammar and random inputs."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from treadle.artifact import TensorRecord
from treadle.errors import TreadleError
from treadle.plan.expr import symbol
from treadle.tools.inputs import make_inputs, parse_shape, random_array


def record(*shape: int | str, dtype: str = "f32") -> TensorRecord:
    sizes = tuple(symbol(extent) if isinstance(extent, str) else extent for extent in shape)
    return TensorRecord("x", dtype, sizes, sizes, "b0")


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("64x32xf16", (64, 32), "f16"),
        ("f32", (), "f32"),
        ("0x7xi8", (0, 7), "i8"),
        ("3xf8E4M3FN", (3,), "f8E4M3FN"),
        ("1x1x1x1xbf16", (1, 1, 1, 1), "bf16"),
    ],
)
def test_shapes(text: str, shape: tuple[int, ...], dtype: str) -> None:
    assert parse_shape(text) == (shape, dtype)


@pytest.mark.parametrize("text", ["", "64", "64x", "xf32", "64x32", "-3xf32", "3 xf32", "3xf31", "3x?xf32", "f32x3", "3XF32"])
def test_no_shapes(text: str) -> None:
    with pytest.raises(TreadleError) as caught:
        parse_shape(text)
    assert caught.value.code == "TR802"


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_floats_are_standard_normal(dtype: str) -> None:
    values = random_array((401, 251), dtype, np.random.default_rng(3)).astype(np.float64)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02


def test_integers_are_small_and_spread() -> None:
    assert set(np.unique(random_array((999,), "i8", np.random.default_rng(0)))) == set(range(-4, 5))
    assert set(np.unique(random_array((999,), "ui8", np.random.default_rng(0)))) == set(range(5))
    assert random_array((99,), "i1", np.random.default_rng(0)).dtype == np.bool_


def test_equal_seeds_give_equal_inputs() -> None:
    records = [record(5, 7), record(5, 7)]
    first, second = make_inputs("f", records, (), 1)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, make_inputs("f", records, ("5x7xf32", "9xf32"), 1)[0])
    assert not np.array_equal(first, make_inputs("f", records, (), 2)[0])


def test_dynamic_dimensions_need_a_size() -> None:
    with pytest.raises(TreadleError) as caught:
        make_inputs("f", [record("s0", 5)], (), 0)
    assert (caught.value.code, "64x5xf32" in caught.value.fix) == ("TR804", True)
    assert make_inputs("f", [record("s0", 5)], ("3x5xf32",), 0)[0].shape == (3, 5)


def test_files_keep_their_contents(tmp_path: Path) -> None:
    array = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    np.save(tmp_path / "x.npy", array)
    (read,) = make_inputs("f", [record(2, 3, dtype="bf16")], (str(tmp_path / "x.npy"),), 0)
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)
