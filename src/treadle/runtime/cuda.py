"""NVIDIA GPUs through the CUDA driver API (`cuda-bindings`); needs the driver, no CUDA toolkit and no PyTorch."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np

from treadle import errors
from treadle.artifact import Kernel, Manifest
from treadle.errors import TreadleError
from treadle.machine.products import target_of
from treadle.runtime import cuda_launch, dlpack
from treadle.runtime.argument_block import ArgumentBlock, TensorMapEncoder
from treadle.runtime.arrays import HostArray
from treadle.runtime.gpu_program import GpuProgram, Limits
from treadle.runtime.invocation import TensorMapArg
from treadle.runtime.pool import Pool

_TENSOR_TYPES: Final = {
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "tf32": "TFLOAT32",
    "f64": "FLOAT64",
    "i8": "UINT8",
    "ui8": "UINT8",
    "i1": "UINT8",
    "f8E4M3FN": "UINT8",
    "f8E5M2": "UINT8",
    "i16": "UINT16",
    "ui16": "UINT16",
    "i32": "INT32",
    "ui32": "UINT32",
    "i64": "INT64",
    "ui64": "UINT64",
}
_SWIZZLES: Final = {"none": "SWIZZLE_NONE", "32B": "SWIZZLE_32B", "64B": "SWIZZLE_64B", "128B": "SWIZZLE_128B"}
_INTERLEAVES: Final = {"none": "INTERLEAVE_NONE", "16B": "INTERLEAVE_16B", "32B": "INTERLEAVE_32B"}
_DEFAULT_STREAMS: Final = frozenset((0, 1, 2))
"""NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD."""
_PROMOTIONS: Final = {"none": "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_FILLS: Final = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}
_STICKY_HINT: Final = "a fault of earlier work stays until the process ends; run with CUDA_LAUNCH_BLOCKING=1 to find the launch"


@lru_cache(maxsize=1)
def bindings() -> ModuleType:
    """The driver bindings, initialised. Raises TR601 without the package, the driver or a GPU."""
    try:
        from cuda.bindings import driver
    except ImportError as problem:
        raise _absent(f"the Python package cuda-bindings is not there ({problem})", "`pip install treadle[cuda]`") from None
    try:
        (status,) = driver.cuInit(0)
    except (RuntimeError, OSError):
        raise _absent("no NVIDIA driver is installed", "use a machine with an NVIDIA GPU, or --device sim") from None
    if status:
        raise _absent(f"the driver does not start ({status.name})", "check `nvidia-smi`, or use --device sim")
    return driver


def _absent(reason: str, hint: str) -> TreadleError:
    return TreadleError(errors.NO_DEVICE, device="cuda", reason=reason, hint=hint)


class CudaDevice:
    """One NVIDIA GPU with its primary context (the one that PyTorch and the CUDA runtime use)."""

    kind = "cuda"
    dlpack_type = dlpack.CUDA

    def __init__(self, ordinal: int = 0) -> None:
        self._driver = bindings()
        d = self._driver
        if ordinal >= self._call("cuDeviceGetCount"):
            raise _absent(f"there is no GPU number {ordinal}", "see `treadle devices`")
        self.ordinal = ordinal
        self._device = self._call("cuDeviceGet", ordinal)
        self.name = self._call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        attribute = d.CUdevice_attribute

        def ask(name: str) -> int:
            return int(self._call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), self._device))

        major, minor = ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")
        # From 9.0 on the fast instructions (wgmma, ..) belong to one architecture only: the `a` targets.
        self.target = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
        self.machine = target_of(self.target, self.name, ask("MULTIPROCESSOR_COUNT"))
        self.limits = Limits(
            (ask("MAX_GRID_DIM_X"), ask("MAX_GRID_DIM_Y"), ask("MAX_GRID_DIM_Z")), ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        )
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._context_number = int(self._context)
        self._current_context = self._driver.cuCtxGetCurrent
        self._functions = cuda_launch.functions()
        self.pool = Pool(self._allocate, self._release, self.synchronize)
        self._modules: list[Any] = []

    def _call(self, name: str, *args: Any) -> Any:
        """Call the driver API; returns the value (or values) behind the status."""
        status, *values = getattr(self._driver, name)(*args)
        if status:
            raise TreadleError(errors.DEVICE_CALL, call=name, reason=self._words(status), hint=_STICKY_HINT)
        return values[0] if len(values) == 1 else values or None

    def _words(self, status: Any) -> str:
        _, text = self._driver.cuGetErrorString(status)
        return f"{status.name}: {text.decode() if text else 'unknown'}"

    def activate(self) -> None:
        """Make the primary context current for this thread."""
        if int(self._current_context()[1]) != self._context_number:
            self._call("cuCtxSetCurrent", self._context)

    def preparation(self, stream: int) -> tuple[Callable[[], int], ...]:
        """What a call begins with: a default stream is the current context's, so that what a fill or a launch there is ordered with depends
        on it.

        Another stream belongs to one context, as a CUfunction does (that which its module was loaded into, cuModuleGetFunction); only a
        context-less CUkernel, which is not used here, could run in another. So a launch on it runs in the right context or fails without
        effect (CUDA_ERROR_INVALID_HANDLE; without a context CUDA_ERROR_INVALID_CONTEXT), and such calls need not ask for the current
        context before each (0.2 us): see `recovers`.
        """
        return (self._activated,) if stream in _DEFAULT_STREAMS else ()

    def _activated(self) -> int:
        self.activate()
        return 0

    def recovers(self, status: int) -> bool:
        """Whether another context was current, whatever the driver calls that: now it is this one."""
        was = int(self._current_context()[1])
        self.activate()
        return was != self._context_number

    def refuse(self, call: str, status: int) -> NoReturn:
        """Raise TR603 for a status of the driver that is not 0."""
        raise TreadleError(errors.DEVICE_CALL, call=call, reason=self._words(self._driver.CUresult(status)), hint=_STICKY_HINT)

    def is_capturing(self, stream: int) -> bool:
        """Whether work on a stream goes into a graph."""
        return self._functions.is_capturing(stream)

    def capture(self, stream: int) -> int:
        """A number of the capture that work on a stream goes into; 0 where that is not known."""
        return self._functions.capture(stream)

    def load(self, manifest: Manifest, files: Mapping[str, bytes]) -> GpuProgram:
        """Bring a program to this GPU."""
        return GpuProgram(self, manifest, files)

    def synchronize(self) -> None:
        """Wait for all work in the context."""
        self.activate()
        self._call("cuCtxSynchronize")

    def wait_stream(self, stream: int) -> None:
        """Wait for the work on a stream."""
        self.activate()
        self._call("cuStreamSynchronize", stream)

    def _allocate(self, nbytes: int) -> int | None:
        status, pointer = self._driver.cuMemAlloc(nbytes)
        if status == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        if status:
            raise TreadleError(errors.DEVICE_CALL, call="cuMemAlloc", reason=self._words(status), hint=_STICKY_HINT)
        return int(pointer)

    def _release(self, address: int) -> None:
        self._call("cuMemFree", address)

    def load_kernel(self, kernel: Kernel, binary: bytes) -> Any:
        """Load a cubin and get its function; raises TR605, TR607."""
        d = self._driver
        status, module = d.cuModuleLoadData(binary)
        if status:
            raise TreadleError(errors.BAD_BINARY, device=self.name, binary=kernel.binary, reason=self._words(status))
        self._modules.append(module)  # modules stay loaded for the life of the process
        status, function = d.cuModuleGetFunction(module, kernel.symbol.encode())
        if status:
            raise TreadleError(errors.BAD_BINARY, device=self.name, binary=kernel.binary, reason=f"no kernel '{kernel.symbol}' in it")
        attribute = d.CUfunction_attribute
        static = int(self._call("cuFuncGetAttribute", attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        if static + kernel.shared_bytes > self.limits.shared_bytes:
            needed = static + kernel.shared_bytes
            raise TreadleError(errors.SHARED_TOO_LARGE, kernel=kernel.name, needed=needed, device=self.name, limit=self.limits.shared_bytes)
        if static + kernel.shared_bytes > 48 << 10:
            self._call("cuFuncSetAttribute", function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared_bytes)
        return function

    def prepare(self, function: Any, block: ArgumentBlock, stream: int, early_start: bool = False) -> Callable[[], int]:
        """What enqueues a launch; it returns the driver's status."""
        return self._functions.launch(int(function), block, stream, early_start)

    def prepare_fill(self, address: int, nbytes: int, stream: int) -> Callable[[], int]:
        """What zeroes memory in stream order; it returns the driver's status."""
        return self._functions.fill_zero(address, nbytes, stream)

    def tensor_map_encoder(self, arg: TensorMapArg) -> TensorMapEncoder:
        """Makes the 128 bytes of tensor maps (cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col)."""
        d, form = self._driver, arg.map
        call = "cuTensorMapEncodeIm2col" if form.lower_corner else "cuTensorMapEncodeTiled"

        def refuse(status: int, address: int) -> NoReturn:
            sizes = f"sizes {arg.global_dim}, strides {arg.global_stride_bytes} bytes, box {form.box_dim}, address {address:#x}"
            sizes += f", corners {form.lower_corner} and {form.upper_corner}" if form.lower_corner else ""
            reason = f"{self._words(d.CUresult(status))} ({sizes})"
            raise TreadleError(errors.DEVICE_CALL, call=call, reason=reason, hint="report it with the program")

        return self._functions.tensor_map_encoder(
            int(getattr(d.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_TYPES[form.dtype]}")),
            (arg.global_dim, arg.global_stride_bytes, form.box_dim, form.element_stride),
            (
                int(getattr(d.CUtensorMapInterleave, f"CU_TENSOR_MAP_{_INTERLEAVES[form.interleave]}")),
                int(getattr(d.CUtensorMapSwizzle, f"CU_TENSOR_MAP_{_SWIZZLES[form.swizzle]}")),
                int(getattr(d.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[form.l2_promotion]}")),
                int(getattr(d.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[form.oob_fill]}")),
            ),
            (form.lower_corner, form.upper_corner),
            refuse,
        )

    def copy_to_device(self, address: int, data: HostArray, stream: int) -> None:
        """Copy host bytes in stream order; the host array may change after the return (pageable memory is staged first)."""
        self._call("cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes, stream)

    def copy_to_host(self, address: int, nbytes: int, stream: int) -> HostArray:
        """A copy of device bytes, after the work on the stream."""
        self.activate()
        made = np.empty(nbytes, np.uint8)
        self._call("cuMemcpyDtoHAsync", made.ctypes.data, address, nbytes, stream)
        self._call("cuStreamSynchronize", stream)
        return made


def open_device() -> CudaDevice:
    """The first NVIDIA GPU. Raises TR601 with the reason where there is none."""
    return CudaDevice(0)
