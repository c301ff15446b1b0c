"""An array in device memory, as programs return it to callers that use no PyTorch."""

from typing import Any, Protocol

import numpy as np

from treadle.runtime import dlpack
from treadle.runtime.arrays import ArrayForm, HostArray, element, strided


class MemoryOwner(Protocol):
    """What an array asks of the device it lives on."""

    @property
    def kind(self) -> Any:
        """`cuda`, `hip` or a registered one."""
        ...

    @property
    def dlpack_type(self) -> int:
        """What DLPack calls such devices."""
        ...

    @property
    def ordinal(self) -> int:
        """The device's number."""
        ...

    def copy_to_host(self, address: int, nbytes: int, stream: int) -> HostArray:
        """Bytes of device memory, after the work on the stream."""
        ...

    def wait_stream(self, stream: int) -> None:
        """Wait for the work on a stream."""
        ...


class DeviceArray:
    """A dense or strided array on a GPU. Hand it to other libraries through DLPack or `__cuda_array_interface__`, or take `numpy()`.

    `dtype` is the NumPy type (ml_dtypes for bf16 and fp8), `strides` are in elements. The work that fills it runs on `stream`.
    """

    __slots__ = ("__weakref__", "_owner", "address", "device", "form", "stream")

    def __init__(self, device: MemoryOwner, address: int, form: ArrayForm, stream: int, owner: Any) -> None:
        self.device = device
        self.address = address
        self.form = form
        self.stream = stream
        self._owner = owner

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.form.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances between neighbours, in elements."""
        return self.form.strides

    @property
    def element_type(self) -> str:
        """The element type's MLIR name."""
        return self.form.element_type

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as NumPy has it."""
        return element(self.form.element_type).numpy

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    def numpy(self) -> HostArray:
        """A copy in host memory, after the work that fills the array."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        reach = 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        memory = self.device.copy_to_host(self.address, reach * self.dtype.itemsize, self.stream)
        return np.ascontiguousarray(strided(memory, self.shape, self.strides, self.dtype)).reshape(self.shape)

    def ready_for(self, stream: int) -> None:
        """Let a stream other than the array's own read it: waits for the work that fills it, and keeps its memory from early reuse."""
        if stream != self.stream:
            self.device.wait_stream(self.stream)
            if (share := getattr(self._owner, "share", None)) is not None:
                share()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        if copy is False:
            raise ValueError("an array on a device is always copied to the host")
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack_type, self.device.ordinal

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        # The consumer's stream does not know ours. 1 and None mean the legacy default stream, -1 "do not synchronise".
        if stream != -1:
            self.ready_for(0 if stream in (None, 1) else stream)
        return dlpack.export_tensor(
            self.address, self.shape, self.strides, element(self.element_type).dlpack, self.__dlpack_device__(), self
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind == "V" or self.device.kind != "cuda":
            raise AttributeError(f"the CUDA array interface has no {self.element_type}; use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": tuple(s * self.dtype.itemsize for s in self.strides),
            "stream": self.stream or 1,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"DeviceArray({'x'.join([*map(str, self.shape), self.element_type])}, {self.device.kind}:{self.device.ordinal})"
