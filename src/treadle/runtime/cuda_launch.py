"""The calls into the CUDA driver that every launch pays for, straight through ctypes.

cuda-bindings converts Python objects at every call (3 to 6 us a launch); here the arguments are laid out once as the C structures of
cuda.h, and a call passes pointers to them. The rest of the driver API is reached through cuda-bindings.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from treadle.runtime.argument_block import ArgumentBlock, TensorMapEncoder
from treadle.runtime.invocation import ResolvedLaunch

_CLUSTER_DIMENSION: Final = 4
_PROGRAMMATIC_STREAM_SERIALIZATION: Final = 6


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint32),
    )


def launch_config(launch: ResolvedLaunch, stream: int, early_start: bool) -> LaunchConfig:
    """The configuration of a launch.

    `early_start`: the grid may start before the one ahead of it on the stream has ended (programmatic dependent launch), which is right
    only for kernels that wait for it themselves (`griddepcontrol.wait`).
    """
    attributes: list[_Attribute] = []
    if launch.kernel.cluster != (1, 1, 1):
        attributes.append(_Attribute(_CLUSTER_DIMENSION, 0, (ctypes.c_uint32 * 16)(*launch.kernel.cluster)))
    if early_start:
        attributes.append(_Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (ctypes.c_uint32 * 16)(1)))
    config = LaunchConfig(
        grid=launch.grid, block=launch.kernel.block, shared_bytes=launch.kernel.shared_bytes, stream=stream, attribute_count=len(attributes)
    )
    if attributes:
        config.attributes = (_Attribute * len(attributes))(*attributes)
    return config


_ACTIVE = 1
"""`CU_STREAM_CAPTURE_STATUS_ACTIVE`"""


class DriverFunctions:
    """Functions of the driver library. Calls release the interpreter's lock: a launch waits where the queue of a stream is full."""

    def __init__(self, library: Any) -> None:
        self._launch = library.cuLaunchKernelEx
        self._fill = library.cuMemsetD8Async
        self._is_capturing = library.cuStreamIsCapturing
        self._capture_info = library.cuStreamGetCaptureInfo_v2
        self._encode = library.cuTensorMapEncodeTiled
        self._encode_walk = library.cuTensorMapEncodeIm2col

    def launch(self, function: int, block: ArgumentBlock, stream: int, early_start: bool = False) -> Callable[[], int]:
        """What enqueues a launch and returns the driver's status. Holds everything that it needs."""
        config = block.configurations.get((stream, early_start))
        if config is None:
            config = block.configurations[stream, early_start] = launch_config(block.launch, stream, early_start)
        return partial(self._launch, ctypes.byref(config), ctypes.c_void_p(function), block.pointers_argument(), None)

    def fill_zero(self, address: int, nbytes: int, stream: int) -> Callable[[], int]:
        """What zeroes memory in stream order and returns the driver's status."""
        return partial(self._fill, ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))

    def is_capturing(self, stream: int) -> bool:
        """Whether work on a stream goes into a graph. The legacy stream says so by an error while any other is captured."""
        state = ctypes.c_int(0)
        status = self._is_capturing(ctypes.c_void_p(stream), ctypes.byref(state))
        return bool(status or state.value)

    def capture(self, stream: int) -> int:
        """A number of the capture that work on a stream goes into, which no other capture has; 0 where that is not known."""
        state, number, left_out = ctypes.c_int(0), ctypes.c_uint64(0), ctypes.c_void_p()
        status = self._capture_info(ctypes.c_void_p(stream), ctypes.byref(state), ctypes.byref(number), left_out, left_out, left_out)
        return number.value if not status and state.value == _ACTIVE else 0

    def tensor_map_encoder(
        self,
        dtype: int,
        sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        modes: tuple[int, int, int, int],
        corners: tuple[tuple[int, ...], tuple[int, ...]],
        refuse: Callable[[int, int], Any],
    ) -> TensorMapEncoder:
        """An encoder of tensor maps.

        `sizes`: extents, strides in bytes (one fewer), box, element strides, innermost first; `modes`: interleave, swizzle, L2 promotion
        and fill as numbers of cuda.h; `corners`: the lower and the upper one of a map that walks pixels (im2col), whose box is its
        channels and pixels, empty for a tiled one; `refuse(status, address)` is called when the driver does not take them.
        """
        extents, strides, box, steps = sizes
        rank = len(extents)
        array = ((ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * max(1, rank - 1))(*strides))
        each: tuple[Any, ...] = ((ctypes.c_uint32 * rank)(*steps), *modes)
        call = self._encode_walk if corners[0] else self._encode
        if corners[0]:
            fixed = (*array, *((ctypes.c_int32 * (rank - 2))(*corner) for corner in corners), *box, *each)
        else:
            fixed = (*array, (ctypes.c_uint32 * rank)(*box), *each)

        def encode(address: int, place: int) -> None:
            if status := call(ctypes.c_void_p(place), dtype, rank, ctypes.c_void_p(address), *fixed):
                refuse(status, address)

        return encode


@lru_cache(maxsize=1)
def functions() -> DriverFunctions:
    """The functions of the installed driver. Raises OSError without one, AttributeError for one older than CUDA 12."""
    return DriverFunctions(ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"))
