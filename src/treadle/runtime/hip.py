"""AMD GPUs through the HIP runtime (`hip-python`); needs ROCm's runtime, no compiler and no PyTorch."""

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np

from treadle import errors
from treadle.artifact import Kernel, Manifest
from treadle.errors import InternalError, TreadleError
from treadle.machine.products import target_of
from treadle.runtime import dlpack
from treadle.runtime.argument_block import ArgumentBlock, TensorMapEncoder
from treadle.runtime.arrays import HostArray
from treadle.runtime.gpu_program import GpuProgram, Limits
from treadle.runtime.invocation import PointerArg, ScalarArg, TensorMapArg
from treadle.runtime.pool import Pool

_HINT: Final = "run with AMD_SERIALIZE_KERNEL=3 to find the launch"
_MOST_THREADS: Final = (1 << 32) - 1
"""Along an axis: a dispatch packet counts a grid's threads, not its workgroups, in 32 bits."""
_SCALARS: Final = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


@lru_cache(maxsize=1)
def bindings() -> ModuleType:
    """The HIP bindings, initialised. Raises TR601 without the package, the runtime or a GPU."""
    try:
        from hip import hip
    except ImportError as problem:
        raise _absent(f"the Python package hip-python is not there ({problem})", "`pip install treadle[hip]`") from None
    try:
        status, *_ = hip.hipInit(0)
    except (RuntimeError, OSError) as problem:
        raise _absent(f"the HIP runtime does not load ({problem})", "install ROCm's HIP runtime, or use --device sim") from None
    if status != hip.hipError_t.hipSuccess:
        raise _absent(f"the HIP runtime does not start ({status})", "check `rocminfo`, or use --device sim")
    return hip


def _absent(reason: str, hint: str) -> TreadleError:
    return TreadleError(errors.NO_DEVICE, device="hip", reason=reason, hint=hint)


class HipDevice:
    """One AMD GPU."""

    kind = "hip"
    dlpack_type = dlpack.ROCM

    def __init__(self, ordinal: int = 0) -> None:
        self._hip = bindings()
        if ordinal >= int(self._call("hipGetDeviceCount")):
            raise _absent(f"there is no GPU number {ordinal}", "see `treadle devices`")
        self.ordinal = ordinal
        self._call("hipSetDevice", ordinal)
        properties = self._hip.hipDeviceProp_t()
        self._call("hipGetDeviceProperties", properties, ordinal)
        self.name = properties.name.decode()
        self.target = properties.gcnArchName.decode().partition(":")[0]  # gfx942:sramecc+:xnack-
        self.machine = target_of(self.target, self.name, int(properties.multiProcessorCount))
        x, y, z = (int(n) for n in properties.maxGridSize)
        self.limits = Limits((x, y, z), int(properties.sharedMemPerBlock), threads=_MOST_THREADS)
        self.pool = Pool(self._allocate, self._release, self.synchronize)
        self._modules: list[Any] = []

    def _call(self, name: str, *args: Any) -> Any:
        status, *values = getattr(self._hip, name)(*args)
        if status != self._hip.hipError_t.hipSuccess:
            self._refuse(name, status)
        return values[0] if len(values) == 1 else values or None

    def _refuse(self, name: str, status: Any) -> NoReturn:
        raise TreadleError(errors.DEVICE_CALL, call=name, reason=str(status), hint=_HINT)

    def activate(self) -> None:
        """Make this device current for the thread."""
        self._call("hipSetDevice", self.ordinal)

    def preparation(self, stream: int) -> tuple[Callable[[], int], ...]:
        """What a call begins with: stream 0 is the current device's, whatever is launched on it."""
        return (self._activated,)

    def _activated(self) -> int:
        self.activate()
        return 0

    def recovers(self, status: int) -> bool:
        """Nothing to make up for: every call begins on this device."""
        return False

    def load(self, manifest: Manifest, files: Mapping[str, bytes]) -> GpuProgram:
        """Bring a program to this GPU."""
        return GpuProgram(self, manifest, files)

    def synchronize(self) -> None:
        """Wait for all work on the device."""
        self.activate()
        self._call("hipDeviceSynchronize")

    def wait_stream(self, stream: int) -> None:
        """Wait for the work on a stream."""
        self.activate()
        self._call("hipStreamSynchronize", stream or None)

    def _allocate(self, nbytes: int) -> int | None:
        status, pointer = self._hip.hipMalloc(nbytes)
        if status == self._hip.hipError_t.hipErrorOutOfMemory:
            return None
        if status != self._hip.hipError_t.hipSuccess:
            self._refuse("hipMalloc", status)
        return int(pointer)

    def _release(self, address: int) -> None:
        self._call("hipFree", address)

    def load_kernel(self, kernel: Kernel, binary: bytes) -> Any:
        """Load a code object and get its function; raises TR607."""
        hip = self._hip
        status, module = hip.hipModuleLoadData(binary)
        if status != hip.hipError_t.hipSuccess:
            raise TreadleError(errors.BAD_BINARY, device=self.name, binary=kernel.binary, reason=str(status))
        self._modules.append((module, binary))  # the runtime may read the image lazily
        status, function = hip.hipModuleGetFunction(module, kernel.symbol.encode())
        if status != hip.hipError_t.hipSuccess:
            raise TreadleError(errors.BAD_BINARY, device=self.name, binary=kernel.binary, reason=f"no kernel '{kernel.symbol}' in it")
        return function

    def prepare(self, function: Any, block: ArgumentBlock, stream: int, early_start: bool = False) -> Callable[[], int]:
        """What enqueues a launch; it returns the runtime's status. AMD has no early start.

        The binding packs `extra` by the C layout, which must be the manifest's.
        """
        launch = block.launch
        items: list[tuple[int, Any]] = []
        for arg in launch.args:
            match arg:
                case PointerArg():
                    items.append((arg.offset, ctypes.c_void_p.from_address(block.address + arg.offset)))
                case ScalarArg():
                    items.append((arg.offset, _SCALARS[arg.kind].from_address(block.address + arg.offset)))
                case TensorMapArg():
                    raise InternalError(f"{launch.kernel.name}: AMD kernels take no tensor maps")
        end = 0
        for offset, value in items:
            size = ctypes.sizeof(value)
            if offset != -(-end // size) * size:
                raise InternalError(f"{launch.kernel.name}: argument at offset {offset} is not where C puts it")
            end = offset + size
        launcher, grid, threads, shared = self._hip.hipModuleLaunchKernel, launch.grid, launch.kernel.block, launch.kernel.shared_bytes
        values = tuple(value for _, value in items)

        def enqueue(keep: ArgumentBlock = block) -> int:
            return int(launcher(function, *grid, *threads, shared, stream or None, None, values)[0])

        return enqueue

    def prepare_fill(self, address: int, nbytes: int, stream: int) -> Callable[[], int]:
        """What zeroes memory in stream order; it returns the runtime's status."""
        return lambda: int(self._hip.hipMemsetAsync(address, 0, nbytes, stream or None)[0])

    def refuse(self, call: str, status: int) -> NoReturn:
        """Raise TR603 for a status of the runtime that is not 0."""
        self._refuse(call, self._hip.hipError_t(status))

    def is_capturing(self, stream: int) -> bool:
        """Whether work on a stream goes into a graph. The legacy stream says so by an error while any other is captured."""
        status, state = self._hip.hipStreamIsCapturing(stream or None)
        return status != self._hip.hipError_t.hipSuccess or state != self._hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone

    def capture(self, stream: int) -> int:
        """Captures are not told apart here."""
        return 0

    def tensor_map_encoder(self, arg: TensorMapArg) -> TensorMapEncoder:
        """There are none on AMD."""
        raise InternalError(f"AMD kernels take no tensor maps ({arg.map.dtype})")

    def copy_to_device(self, address: int, data: HostArray, stream: int) -> None:
        """Copy host bytes in stream order, and wait: the host array is the caller's."""
        kind = self._hip.hipMemcpyKind.hipMemcpyHostToDevice
        self._call("hipMemcpyAsync", address, data.ctypes.data, data.nbytes, kind, stream or None)
        self._call("hipStreamSynchronize", stream or None)

    def copy_to_host(self, address: int, nbytes: int, stream: int) -> HostArray:
        """A copy of device bytes, after the work on the stream."""
        self.activate()
        made = np.empty(nbytes, np.uint8)
        kind = self._hip.hipMemcpyKind.hipMemcpyDeviceToHost
        self._call("hipMemcpyAsync", made.ctypes.data, address, nbytes, kind, stream or None)
        self._call("hipStreamSynchronize", stream or None)
        return made


def open_device() -> HipDevice:
    """The first AMD GPU. Raises TR601 with the reason where there is none."""
    return HipDevice(0)
