"""A stand-in for the CUDA driver: the functions behind ctypes read real C structures, the rest answers as cuda-bindings does.

Device memory is host memory; the one kernel that tests launch is the vector addition of `programs.py`, which runs at the launch.
"""

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
from cuda.bindings import driver as real

from treadle.runtime.cuda_launch import LaunchConfig

ELF = b"\x7fELF\x02\x01" + bytes(58)
"""A file without segments and sections."""

_OK = real.CUresult.CUDA_SUCCESS
_ATTRIBUTES = {"MAX_GRID_DIM_X": 2**31 - 1, "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0}
_CONTEXT = 0xC0
FUNCTION = 0x7FFF_0000_00F0


def _foreign(function: Any, *argtypes: Any) -> Any:
    """A C function of these types that calls a Python function, as a loaded library has it.

    It knows no argument types, so that whatever is passed goes by its own type.
    """
    made = ctypes.CFUNCTYPE(ctypes.c_int, *argtypes)(function)
    kind: Any = type(ctypes.CDLL(None).abs)
    found = kind(ctypes.cast(made, ctypes.c_void_p).value)
    found.keep = made
    return found


class FakeLibrary:
    """libcuda's functions, with C signatures. `calls` lists what was enqueued, `refused` the statuses of launches that were not, `strays`
    what was asked for in another context without being a launch.
    """

    def __init__(self, bindings: "FakeBindings") -> None:
        self.bindings = bindings
        self.refused: list[int] = []
        self.strays: list[str] = []
        self.calls: list[tuple[Any, ...]] = []
        self.captured: set[int] = set()
        self.capture = 1  # the number of the graph that captured streams go into, 0 where the driver does not tell
        self.encoded: list[int] = []
        self.status = 0
        word, pointer = ctypes.c_int, ctypes.c_void_p
        wide, number, byte = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_ubyte
        self.cuLaunchKernelEx = _foreign(self._launch, ctypes.POINTER(LaunchConfig), pointer, ctypes.POINTER(pointer), pointer)
        self.cuMemsetD8Async = _foreign(self._fill, wide, byte, ctypes.c_size_t, pointer)
        self.cuStreamIsCapturing = _foreign(self._capturing, pointer, ctypes.POINTER(word))
        self.cuStreamGetCaptureInfo_v2 = _foreign(self._capture_info, pointer, ctypes.POINTER(word), ctypes.POINTER(wide), *[pointer] * 3)
        lists = [ctypes.POINTER(wide)] * 2 + [ctypes.POINTER(number)] * 2
        self.cuTensorMapEncodeTiled = _foreign(self._encode, pointer, word, word, pointer, *lists, *[word] * 4)
        walk = [*lists[:2], *[ctypes.POINTER(word)] * 2, number, number, lists[3]]
        self.cuTensorMapEncodeIm2col = _foreign(self._encode_walk, pointer, word, word, pointer, *walk, *[word] * 4)

    def _launch(self, config: Any, function: int, pointers: Any, extra: Any) -> int:
        # A function belongs to one context, and a stream too: the null stream to the current one.
        if (current := self.bindings.current) != _CONTEXT:
            self.refused.append(int(real.CUresult.CUDA_ERROR_INVALID_HANDLE if current else real.CUresult.CUDA_ERROR_INVALID_CONTEXT))
            return self.refused[-1]
        c = config.contents
        attributes = [(c.attributes[i].id, tuple(c.attributes[i].value[:3])) for i in range(c.attribute_count)]
        x, y, z = (ctypes.c_uint64.from_address(pointers[i]).value for i in range(3))
        self.calls.append(("launch", function, tuple(c.grid), tuple(c.block), c.shared_bytes, c.stream or 0, attributes, (x, y, z)))
        if self.status:
            return self.status
        n = ctypes.c_int32.from_address(pointers[3]).value
        a, b, r = (np.ctypeslib.as_array((ctypes.c_float * n).from_address(p)) for p in (x, y, z))
        r[:] = a + b
        return 0

    def _fill(self, address: int, value: int, nbytes: int, stream: Any) -> int:
        if self.bindings.current != _CONTEXT:
            self.strays.append("fill")  # it runs, on the null stream of another device
            return 0
        self.calls.append(("fill", address, value, nbytes, stream or 0))
        ctypes.memset(address, value, nbytes)
        return 0

    def _capturing(self, stream: Any, place: Any) -> int:
        place[0] = int((stream or 0) in self.captured)
        return 0

    def _capture_info(self, stream: Any, place: Any, number: Any, *_: Any) -> int:
        number[0] = self.capture
        return self._capturing(stream, place)

    def _encode(self, place: int, dtype: int, rank: int, address: int, *rest: Any) -> int:
        extents, strides, box, steps, *modes = rest
        return self._encoded(
            place, address, [dtype, rank, address, *extents[:rank], *strides[: rank - 1], *box[:rank], *steps[:rank], *modes]
        )

    def _encode_walk(self, place: int, dtype: int, rank: int, address: int, *rest: Any) -> int:
        extents, strides, lower, upper, channels, pixels, steps, *modes = rest
        corners = [corner + 1000 for corner in (*lower[: rank - 2], *upper[: rank - 2])]
        words = [dtype, rank, address, *extents[:rank], *strides[: rank - 1], *corners, channels, pixels, *steps[:rank], *modes]
        return self._encoded(place, address, words[:16])

    def _encoded(self, place: int, address: int, words: list[int]) -> int:
        assert place % 64 == 0
        if self.bindings.current != _CONTEXT:
            self.strays.append("tensor map")
            return int(real.CUresult.CUDA_ERROR_INVALID_CONTEXT)
        if address % 16:
            return int(real.CUresult.CUDA_ERROR_INVALID_VALUE)
        self.encoded.append(address)
        ctypes.memmove(place, struct.pack(f"<{len(words)}Q", *words).ljust(128, b"\0"), 128)
        return 0


class FakeBindings:
    """cuda.bindings.driver as far as the runtime uses it; enumerations are the real ones."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.syncs: list[Any] = []
        self.current = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)  # enumerations

    def cuGetErrorString(self, status: Any) -> tuple[Any, bytes]:
        return _OK, b"a text"

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return _OK, 1

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, int]:
        return _OK, ordinal

    def cuDeviceGetName(self, room: int, device: int) -> tuple[Any, bytes]:
        return _OK, b"Fake H200\0"

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> tuple[Any, int]:
        return _OK, _ATTRIBUTES.get(attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_"), 65535)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, int]:
        return _OK, _CONTEXT

    def cuCtxGetCurrent(self) -> tuple[Any, int]:
        return _OK, self.current

    def cuCtxSetCurrent(self, context: int) -> tuple[Any]:
        self.current = context
        return (_OK,)

    def cuCtxSynchronize(self) -> tuple[Any]:
        self.syncs.append("context")
        return (_OK,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any]:
        self.syncs.append(stream)
        return (_OK,)

    def cuMemAlloc(self, nbytes: int) -> tuple[Any, int]:
        block = ctypes.create_string_buffer(b"\xff" * (nbytes + 256), nbytes + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = block
        return _OK, address

    def cuMemFree(self, address: int) -> tuple[Any]:
        del self.memory[address]
        return (_OK,)

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, Any]:
        return _OK, image

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[Any, int]:
        return _OK, FUNCTION

    def cuFuncGetAttribute(self, attribute: Any, function: Any) -> tuple[Any, int]:
        return _OK, 0

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple[Any]:
        return (_OK,)

    def cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: int) -> tuple[Any]:
        ctypes.memmove(to, source, nbytes)
        return (_OK,)

    def cuMemcpyDtoHAsync(self, to: int, source: int, nbytes: int, stream: int) -> tuple[Any]:
        ctypes.memmove(to, source, nbytes)
        return (_OK,)


class FakeGuards:
    """torch._C._dynamo.guards.TensorGuards; `checks` counts the calls that were let through."""

    checks = 0
    blind: frozenset[str] = frozenset()
    """Facts that are not compared."""

    def __init__(self, *tensors: Any, dynamic_dims_sizes: None, dynamic_dims_strides: None) -> None:
        if not all(hasattr(tensor, "is_neg") for tensor in tensors):
            raise TypeError("expected Tensor()")
        self.facts = [self.facts_of(tensor) for tensor in tensors]

    def facts_of(self, tensor: Any) -> tuple[Any, ...]:
        place = (tensor.device.type, tensor.device.index)
        facts = {"type": type(tensor), "shape": tensor.shape, "stride": tensor.stride(), "dtype": tensor.dtype, "device": place}
        return tuple(value for name, value in {**facts, "neg": tensor.is_neg()}.items() if name not in type(self).blind)

    def check(self, *tensors: Any) -> bool:
        if len(tensors) != len(self.facts):
            raise TypeError("wrong length")
        if len({id(tensor) for tensor in tensors}) < len(tensors):
            return False
        alike = all(hasattr(tensor, "is_neg") and self.facts_of(tensor) == facts for tensor, facts in zip(tensors, self.facts, strict=True))
        type(self).checks += alike
        return alike


def make_torch(guards: bool = True) -> Any:
    """A module like PyTorch with one GPU: `torch.tensor(array)`, `torch.stream`, and a count of allocations.

    `guards`: with tensor guards. `torch.rooms`, if it is a dictionary: tensors of one shape are made in the same memory every time.
    """
    torch = SimpleNamespace(
        stream=0, allocations=0, recorded=[], rooms=None, version=SimpleNamespace(hip=None), float32=_Type("float32", 4)
    )
    torch.uint8, torch.float16 = _Type("uint8", 1), _Type("float16", 2)
    sizes = {torch.float32: np.float32, torch.uint8: np.uint8, torch.float16: np.float16}

    class Tensor:
        def __init__(self, memory: Any, dtype: Any, on_gpu: bool = True, shape: Any = None) -> None:
            self.memory, self.dtype, self.on_gpu, self.negated = memory, dtype, on_gpu, False
            self.device = SimpleNamespace(type="cuda" if on_gpu else "cpu", index=0)

        @property
        def shape(self) -> tuple[int, ...]:
            return self.memory.shape

        def stride(self) -> tuple[int, ...]:
            return tuple(step // self.memory.itemsize for step in self.memory.strides)

        def data_ptr(self) -> int:
            return self.memory.ctypes.data

        def get_device(self) -> int:
            return 0 if self.on_gpu else -1

        def is_neg(self) -> bool:
            return self.negated

        def t(self) -> "Tensor":
            return Tensor(self.memory.T, self.dtype, self.on_gpu)

        def record_stream(self, stream: Any) -> None:
            torch.recorded.append(stream)

    class Parameter(Tensor):
        def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
            super().__init__(data.memory, data.dtype, data.on_gpu)
            self.device = data.device

    Tensor.__module__, Parameter.__module__ = "torch", "torch.nn"

    def room(count: int, dtype: Any) -> Any:
        raw = np.full(count * dtype.itemsize + 256, 0xFF, np.uint8)
        start = -raw.ctypes.data % 256
        return raw[start : start + count * dtype.itemsize].view(sizes[dtype])

    def empty_strided(shape: Any, strides: Any, dtype: Any, device: Any) -> Tensor:
        torch.allocations += 1
        if torch.rooms is not None and (shape, dtype) in torch.rooms:
            return Tensor(torch.rooms[shape, dtype], dtype)
        made = Tensor(room(int(np.prod(shape)), dtype).reshape(shape), dtype)
        if torch.rooms is not None:
            torch.rooms[shape, dtype] = made.memory
        return made

    def tensor(values: Any, dtype: Any = None, on_gpu: bool = True) -> Tensor:
        dtype = dtype or torch.float32
        data = np.asarray(values, sizes[dtype])
        made = room(data.size, dtype).reshape(data.shape)
        made[...] = data
        return Tensor(made, dtype, on_gpu)

    def zeros(*shape: int, dtype: Any = None, device: str) -> Tensor:
        made = tensor(np.zeros(shape), dtype, on_gpu=False)
        made.device.type = device
        return made

    def negative(values: Tensor) -> Tensor:
        made = Tensor(values.memory, values.dtype, values.on_gpu)
        made.negated = True
        return made

    def device(*which: Any) -> Any:
        return which

    def wrapped(array: Any) -> Any:
        return "wrapped", array

    def current_stream(which: Any) -> int:
        return torch.stream

    torch.Tensor, torch.nn = Tensor, SimpleNamespace(Parameter=Parameter)
    torch.tensor, torch.empty_strided, torch.device, torch.from_dlpack = tensor, empty_strided, device, wrapped
    torch.zeros, torch._neg_view, torch.FakeGuards = zeros, negative, type("TensorGuards", (FakeGuards,), {})
    found = SimpleNamespace(guards=SimpleNamespace(TensorGuards=torch.FakeGuards) if guards else None)
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=current_stream, _dynamo=found)
    torch.cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 1, current_stream=current_stream)
    return torch


class _Type:
    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"
