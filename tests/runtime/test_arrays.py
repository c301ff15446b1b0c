"""Arrays at the border: element types, views of NumPy and DLPack arrays, exported capsules, layouts of copies."""

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle.errors import InternalError, TreadleError
from treadle.runtime import dlpack
from treadle.runtime.arrays import dtype_names, element, laid_out, numpy_dtype, row_major, same_bits, strided, view


class Exporter:
    """Host memory as any library would hand it out."""

    def __init__(self, array: np.ndarray, dtype: str) -> None:
        self.array, self.dtype = array, dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(self) -> object:
        a = self.array
        strides = [s // a.itemsize for s in a.strides]
        return dlpack.export_tensor(a.ctypes.data, a.shape, strides, element(self.dtype).dlpack, (dlpack.CPU, 0), self)


def test_element_types() -> None:
    assert numpy_dtype("bf16") == ml_dtypes.bfloat16
    assert element("f8E4M3FN").bytes == 1
    assert len({element(n).dlpack for n in dtype_names() if n != "index"}) == len(dtype_names()) - 1
    with pytest.raises(InternalError):
        numpy_dtype("f12")


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ("f32", "f32", True),
        ("ui8", "i8", True),
        ("i8", "ui8", True),
        ("i64", "index", True),
        ("f16", "bf16", False),
        ("i32", "i64", False),
        ("", "f32", False),
    ],
)
def test_signedness_is_not_a_difference(given: str, expected: str, same: bool) -> None:
    assert same_bits(given, expected) == same


@pytest.mark.parametrize("dtype", [n for n in dtype_names() if n != "index"])
def test_dlpack_round_trip(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(numpy_dtype(dtype)).transpose(2, 0, 1)
    exporter = Exporter(array, dtype)
    seen = view(exporter, "x", 0)
    assert (seen.shape, seen.dtype, seen.kind, seen.address) == (array.shape, dtype, "cpu", array.ctypes.data)
    assert seen.strides == (1, 12, 4)
    assert seen.host is not None
    assert seen.host.dtype == array.dtype
    assert seen.host.tobytes() == array.tobytes()


def test_numpy_takes_our_capsules() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.from_dlpack(_numpy_exporter(array)), array)


def _numpy_exporter(array: np.ndarray) -> Any:
    class WithKeywords(Exporter):
        def __dlpack__(self, **_: object) -> object:
            return super().__dlpack__()

    return WithKeywords(array, "f32")


def test_owners_live_exactly_as_long_as_needed() -> None:
    exporter = Exporter(np.arange(4, dtype=np.float32), "f32")
    alive = weakref.ref(exporter)
    before = len(dlpack._exported)
    host = view(exporter, "x", 0).host
    del exporter
    gc.collect()
    assert alive() is not None
    assert host is not None
    assert host[3] == 3
    del host
    gc.collect()
    assert alive() is None
    unused = Exporter(np.arange(4, dtype=np.float32), "f32").__dlpack__()
    del unused  # a capsule that nobody took
    gc.collect()
    assert len(dlpack._exported) == before


def test_views_of_numpy_and_scalars() -> None:
    array = np.zeros((4, 6), np.float16)[::2, ::-1]
    seen = view(array, "x", 0)
    assert (seen.shape, seen.strides, seen.dtype) == ((2, 6), (12, -1), "f16")
    assert view(3.0, "x", 0).dtype == "f64"
    assert view([1, 2], "x", 0).shape == (2,)
    assert view(np.zeros(2, "U3"), "x", 0).dtype == ""
    for wrong in ("text", None, object(), {1: 2}, [object()]):
        with pytest.raises(TreadleError) as caught:
            view(wrong, "weights", 0)
        assert caught.value.code == "TR729"
        assert "weights" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 5), (5, 1)), ((3, 5), (1, 3)), ((3, 5), (8, 1)), ((2, 3, 4), (4, 8, 1)), ((), ()), ((0, 3), (3, 1))]
)
@pytest.mark.parametrize("name", dtype_names())
def test_copies_have_the_layout_asked_for(shape: tuple[int, ...], strides: tuple[int, ...], name: str) -> None:
    dtype = numpy_dtype(name)
    array = np.asarray(np.random.default_rng(0).integers(0, 5, shape)).astype(dtype)
    for source in (array, array.copy(order="F")):
        flat = laid_out(source, strides, 4)
        assert flat.nbytes >= 4
        seen = strided(flat, shape, strides, dtype)
        assert seen.dtype == dtype
        np.testing.assert_array_equal(seen.astype(np.float64), array.astype(np.float64))
    assert row_major((2, 3, 4)) == (12, 4, 1)
