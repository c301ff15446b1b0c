"""DLPack 0.8 capsules, in and out, without any framework. Layout of the structures: dlpack.h of the DLPack project."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CPU: Final = 1
CUDA: Final = 2
ROCM: Final = 10
CUDA_MANAGED: Final = 13

_NAME: Final = b"dltensor"
_USED: Final = b"used_dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))

_api = ctypes.pythonapi
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.argtypes, _get_pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_set_name = _api.PyCapsule_SetName
_set_name.argtypes, _set_name.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_CAPSULE_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = _api.PyCapsule_New
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_char_p, _CAPSULE_DESTRUCTOR), ctypes.py_object
# The same functions on a bare address: a capsule that is being destroyed must not be referenced again.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


class ImportedTensor:
    """A tensor taken over from a capsule; released with this object."""

    __slots__ = ("_managed", "address", "device_id", "device_type", "shape", "strides", "type_bits", "type_code", "type_lanes")

    def __init__(self, managed: Any) -> None:
        t = managed.contents.tensor
        self._managed = managed
        self.address = int(t.data or 0) + int(t.byte_offset)
        self.device_type, self.device_id = int(t.device_type), int(t.device_id)
        self.shape: tuple[int, ...] = tuple(t.shape[i] for i in range(t.ndim))
        self.strides: tuple[int, ...] | None = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
        self.type_code, self.type_bits, self.type_lanes = int(t.code), int(t.bits), int(t.lanes)

    def __del__(self) -> None:
        deleter = self._managed.contents.deleter
        if deleter:
            deleter(self._managed)


def import_tensor(array: Any) -> ImportedTensor:
    """Take an array over through its `__dlpack__`."""
    capsule = array.__dlpack__()
    managed = ctypes.cast(_get_pointer(capsule, _NAME), ctypes.POINTER(_Managed))
    _set_name(capsule, _USED)
    return ImportedTensor(managed)


_exported: dict[int, tuple[Any, ...]] = {}
"""What exported capsules need to stay alive, by the address of their structure."""


@_DELETER
def _release(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@_CAPSULE_DESTRUCTOR
def _destroy(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # nobody took it over
        _exported.pop(_raw_pointer(capsule, _NAME), None)


def export_tensor(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: tuple[int, int], device: tuple[int, int], owner: Any
) -> Any:
    """A capsule for memory that `owner` keeps alive; `dtype` and `device` are DLPack's (code, bits) and (type, id)."""
    rank = len(shape)
    extents, steps = (ctypes.c_int64 * max(rank, 1))(*shape), (ctypes.c_int64 * max(rank, 1))(*strides)
    made = _Managed()
    t = made.tensor
    t.data, t.ndim, t.byte_offset = address, rank, 0
    t.device_type, t.device_id = device
    t.code, t.bits = dtype
    t.lanes = 1
    t.shape, t.strides = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    made.deleter = _release
    place = ctypes.addressof(made)
    _exported[place] = (made, extents, steps, owner)
    return _new(place, _NAME, _destroy)


class _HostMemory:
    """Host memory as NumPy takes it; the array made of it keeps this object, and so the owner, alive."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int, owner: Any) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": shape, "strides": strides, "typestr": f"|u{size}"}
        self.owner = owner


def host_array(address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any], owner: Any) -> NDArray[Any]:
    """A NumPy array over host memory that `owner` keeps alive; `strides` in elements."""
    if 0 in shape:
        return np.empty(tuple(shape), dtype)
    size = dtype.itemsize
    memory = _HostMemory(address, tuple(shape), tuple(s * size for s in strides), size, owner)
    return np.asarray(memory).view(dtype)
