"""A stand-in for `hip.hip`: records calls, keeps "device" memory in host memory, runs the one kernel that tests launch."""

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np


class hipError_t(IntEnum):
    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorInvalidImage = 200
    hipErrorNotFound = 500


class hipMemcpyKind(IntEnum):
    hipMemcpyHostToDevice = 1
    hipMemcpyDeviceToHost = 2


class hipStreamCaptureStatus(IntEnum):
    hipStreamCaptureStatusNone = 0
    hipStreamCaptureStatusActive = 1


class FakeHip:
    """The functions that the HIP device uses; `calls` lists names and arguments in order."""

    hipError_t = hipError_t
    hipMemcpyKind = hipMemcpyKind
    hipStreamCaptureStatus = hipStreamCaptureStatus

    def __init__(self, arch: str = "gfx942:sramecc+:xnack-", memory_bytes: int = 1 << 24, name: str = "Fake Instinct") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.room = memory_bytes
        self.memory: dict[int, Any] = {}
        self.arch, self.name = arch, name
        self.captured: set[Any] = set()
        self.chosen = 0

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def hipDeviceProp_t(self) -> SimpleNamespace:
        return SimpleNamespace(name=b"", gcnArchName=b"", maxGridSize=(), sharedMemPerBlock=0, multiProcessorCount=0)

    def hipInit(self, flags: int) -> tuple[hipError_t]:
        return (hipError_t.hipSuccess,)

    def hipGetDeviceCount(self) -> tuple[hipError_t, int]:
        return hipError_t.hipSuccess, 1

    def hipSetDevice(self, ordinal: int) -> tuple[hipError_t]:
        self.chosen += 1
        return (hipError_t.hipSuccess,)

    def hipGetDeviceProperties(self, properties: SimpleNamespace, ordinal: int) -> tuple[hipError_t]:
        properties.name, properties.gcnArchName = self.name.encode(), self.arch.encode()
        properties.maxGridSize, properties.sharedMemPerBlock = (2**31 - 1, 65535, 65535), 65536
        return (hipError_t.hipSuccess,)

    def hipMalloc(self, nbytes: int) -> tuple[hipError_t, int]:
        self.calls.append(("hipMalloc", nbytes))
        if nbytes > self.room:
            return hipError_t.hipErrorOutOfMemory, 0
        self.room -= nbytes
        block = ctypes.create_string_buffer(b"\xff" * (nbytes + 256), nbytes + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = (block, nbytes)
        return hipError_t.hipSuccess, address

    def hipFree(self, address: int) -> tuple[hipError_t]:
        self.calls.append(("hipFree", address))
        self.room += self.memory.pop(address)[1]
        return (hipError_t.hipSuccess,)

    def hipMemcpyAsync(self, to: int, source: int, nbytes: int, kind: int, stream: Any) -> tuple[hipError_t]:
        self.calls.append(("hipMemcpyAsync", kind, nbytes, stream))
        ctypes.memmove(to, source, nbytes)
        return (hipError_t.hipSuccess,)

    def hipMemsetAsync(self, address: int, value: int, nbytes: int, stream: Any) -> tuple[hipError_t]:
        self.calls.append(("hipMemsetAsync", address, nbytes))
        ctypes.memset(address, value, nbytes)
        return (hipError_t.hipSuccess,)

    def hipStreamSynchronize(self, stream: Any) -> tuple[hipError_t]:
        self.calls.append(("hipStreamSynchronize", stream))
        return (hipError_t.hipSuccess,)

    def hipStreamIsCapturing(self, stream: Any) -> tuple[hipError_t, hipStreamCaptureStatus]:
        return hipError_t.hipSuccess, hipStreamCaptureStatus(int(stream in self.captured))

    def hipDeviceSynchronize(self) -> tuple[hipError_t]:
        self.calls.append(("hipDeviceSynchronize",))
        return (hipError_t.hipSuccess,)

    def hipModuleLoadData(self, image: bytes) -> tuple[hipError_t, Any]:
        return (hipError_t.hipSuccess, image) if image[:4] == b"\x7fELF" else (hipError_t.hipErrorInvalidImage, None)

    def hipModuleGetFunction(self, module: bytes, name: bytes) -> tuple[hipError_t, Any]:
        return (hipError_t.hipSuccess, name) if name + b".kd" in module else (hipError_t.hipErrorNotFound, None)

    def hipModuleLaunchKernel(self, function: bytes, *rest: Any) -> tuple[hipError_t]:
        *numbers, stream, parameters, extra = rest
        self.calls.append(("hipModuleLaunchKernel", function, *numbers, stream, parameters, tuple(type(e) for e in extra)))
        x, y, z, n = (e.value or 0 for e in extra)
        if n:
            a, b, c = (np.ctypeslib.as_array((ctypes.c_float * n).from_address(p)) for p in (x, y, z))
            count = min(n, numbers[0] * numbers[3])
            c[:count] = a[:count] + b[:count]
        return (hipError_t.hipSuccess,)
