"""Element types and arrays at the border between Treadle and the world.

An array comes in as `ArrayView`: address, shape, strides in elements, element type and place. Views are taken from NumPy, PyTorch (by its
own methods: the cheapest way), Treadle's results, DLPack and `__cuda_array_interface__`, in this order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from treadle import errors
from treadle.errors import InternalError, TreadleError
from treadle.runtime import dlpack, torch_tensors

HostArray: TypeAlias = NDArray[Any]
Kind = str
"""Of a device: `cpu`, `cuda`, `hip` or a registered one."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type: MLIR name, NumPy type, bytes in memory, DLPack (code, bits)."""

    name: str
    numpy: np.dtype[Any]
    dlpack: tuple[int, int]

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize


_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_TYPES: Final = (
    ElementType("f64", np.dtype(np.float64), (_FLOAT, 64)),
    ElementType("f32", np.dtype(np.float32), (_FLOAT, 32)),
    ElementType("f16", np.dtype(np.float16), (_FLOAT, 16)),
    ElementType("bf16", np.dtype(ml_dtypes.bfloat16), (_BFLOAT, 16)),
    ElementType("f8E4M3FN", np.dtype(ml_dtypes.float8_e4m3fn), (10, 8)),
    ElementType("f8E4M3FNUZ", np.dtype(ml_dtypes.float8_e4m3fnuz), (11, 8)),
    ElementType("f8E5M2", np.dtype(ml_dtypes.float8_e5m2), (12, 8)),
    ElementType("f8E5M2FNUZ", np.dtype(ml_dtypes.float8_e5m2fnuz), (13, 8)),
    ElementType("i64", np.dtype(np.int64), (_INT, 64)),
    ElementType("i32", np.dtype(np.int32), (_INT, 32)),
    ElementType("i16", np.dtype(np.int16), (_INT, 16)),
    ElementType("i8", np.dtype(np.int8), (_INT, 8)),
    ElementType("i1", np.dtype(np.bool_), (_BOOL, 8)),
    ElementType("ui64", np.dtype(np.uint64), (_UINT, 64)),
    ElementType("ui32", np.dtype(np.uint32), (_UINT, 32)),
    ElementType("ui16", np.dtype(np.uint16), (_UINT, 16)),
    ElementType("ui8", np.dtype(np.uint8), (_UINT, 8)),
    ElementType("index", np.dtype(np.int64), (_INT, 64)),
)
_BY_NAME: Final[Mapping[str, ElementType]] = {t.name: t for t in _TYPES}
_BY_NUMPY: Final[Mapping[np.dtype[Any], str]] = {t.numpy: t.name for t in reversed(_TYPES)}
_BY_DLPACK: Final[Mapping[tuple[int, int], str]] = {t.dlpack: t.name for t in reversed(_TYPES)}


def dtype_names() -> tuple[str, ...]:
    """MLIR names of all element types that arrays can have."""
    return tuple(_BY_NAME)


def element(name: str) -> ElementType:
    """The element type of an MLIR name."""
    if name not in _BY_NAME:
        raise InternalError(f"'{name}' is no element type of arrays")
    return _BY_NAME[name]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of an MLIR name."""
    return element(name).numpy


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy type, those of ml_dtypes included, is a floating-point type."""
    return dtype.kind not in "biu"


def same_bits(given: str, expected: str) -> bool:
    """Whether arrays of the one type serve as the other: signedness is the operation's business in MLIR (i8 takes int8 and uint8)."""
    if given == expected or {given, expected} == {"i64", "index"}:
        return True
    return given.removeprefix("u") == expected.removeprefix("u") and given.lstrip("u").startswith("i")


@dataclass(slots=True)  # not frozen: that would double the cost of making one, which every call pays for every argument
class ArrayView:
    """An array wherever it is. `dtype` is the MLIR name ("" if there is none), `strides` are in elements, `owner` keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    kind: Kind
    device: int
    owner: Any
    host: HostArray | None = None

    @property
    def place(self) -> str:
        """In words: `cpu`, `cuda:0`."""
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.device}"


class ArrayForm(NamedTuple):
    """What an array is like, wherever its memory is. Strides are in elements, `element_type` is the MLIR name."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_type: str
    kind: Kind
    ordinal: int


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a dense array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def view_of_numpy(array: HostArray) -> ArrayView:
    """The view of a NumPy array."""
    size = array.dtype.itemsize or 1
    strides = tuple(s // size for s in array.strides)
    return ArrayView(array.ctypes.data, array.shape, strides, _BY_NUMPY.get(array.dtype, ""), "cpu", 0, array, array)


def view(array: Any, name: str, index: int) -> ArrayView:
    """The view of any array; name and index of the argument are for the error. Raises TR729 for what is no array."""
    if isinstance(array, np.ndarray):
        return view_of_numpy(array)  # pyright: ignore[reportUnknownArgumentType]
    if torch_tensors.is_tensor(array):
        if array.is_neg():  # the imaginary part of a conjugate: its memory has the other sign
            given = "a lazily negated tensor: call its resolve_neg()"
            raise TreadleError(errors.ARGUMENT_KIND, index=index, name=name, given=given)
        return _view_of_torch(array)
    if isinstance(form := getattr(array, "form", None), ArrayForm):
        return ArrayView(array.address, form.shape, form.strides, form.element_type, form.kind, form.ordinal, array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _view_of_dlpack(array)
    if (interface := getattr(array, "__cuda_array_interface__", None)) is not None:
        return _view_of_interface(interface, array)
    if hasattr(array, "__array__") or type(array) in (bool, int, float, list, tuple):
        made: HostArray = np.asarray(array)
        if made.dtype.kind != "O":
            return view_of_numpy(made)
    raise TreadleError(errors.ARGUMENT_KIND, index=index, name=name, given=type(array).__name__)


def _view_of_torch(tensor: Any) -> ArrayView:
    where = tensor.device
    kind: Kind = "cpu"
    if where.type == "cuda":
        kind = "hip" if torch_tensors.gpu_kind() == "hip" else "cuda"
    dtype = torch_tensors.dtype_name(tensor)
    shape, strides, address = tuple(tensor.shape), tensor.stride(), tensor.data_ptr()
    host = dlpack.host_array(address, shape, strides, numpy_dtype(dtype), tensor) if kind == "cpu" and dtype else None
    return ArrayView(address, shape, strides, dtype, kind, where.index or 0, tensor, host)


def _view_of_dlpack(array: Any) -> ArrayView:
    tensor = dlpack.import_tensor(array)
    kind: Kind = {dlpack.CUDA: "cuda", dlpack.CUDA_MANAGED: "cuda", dlpack.ROCM: "hip"}.get(tensor.device_type, "cpu")
    dtype = _BY_DLPACK.get((tensor.type_code, tensor.type_bits), "") if tensor.type_lanes == 1 else ""
    strides = tensor.strides or row_major(tensor.shape)
    host = dlpack.host_array(tensor.address, tensor.shape, strides, numpy_dtype(dtype), tensor) if kind == "cpu" and dtype else None
    return ArrayView(tensor.address, tensor.shape, strides, dtype, kind, tensor.device_id, tensor, host)


def _view_of_interface(interface: Mapping[str, Any], owner: Any) -> ArrayView:
    shape, kind = tuple(interface["shape"]), np.dtype(interface["typestr"])
    given = interface.get("strides")
    strides = tuple(s // kind.itemsize for s in given) if given else row_major(shape)
    device = getattr(getattr(owner, "device", None), "id", 0)
    return ArrayView(int(interface["data"][0]), shape, strides, _BY_NUMPY.get(kind, ""), "cuda", int(device), owner)


def strided(memory: HostArray, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> HostArray:
    """The array with these strides in elements at the start of `memory` (bytes), no copy.

    Through integers, because NumPy cannot stride all of the 8-bit floats.
    """
    size = dtype.itemsize
    whole = memory[: memory.size // size * size].view(f"u{size}")
    return np.lib.stride_tricks.as_strided(whole, shape, [s * size for s in strides]).view(dtype)


def laid_out(array: HostArray, strides: Sequence[int], nbytes: int) -> HostArray:
    """The bytes of `array` with the given strides in elements, as a flat array of at least `nbytes` bytes."""
    if tuple(strides) == row_major(array.shape) or array.size == 0:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return flat if flat.size >= nbytes else np.concatenate([flat, np.zeros(nbytes - flat.size, np.uint8)])
    size = array.dtype.itemsize
    room = np.zeros(max(nbytes, (1 + sum((e - 1) * s for e, s in zip(array.shape, strides, strict=True))) * size), np.uint8)
    strided(room, array.shape, strides, array.dtype)[...] = array
    return room
