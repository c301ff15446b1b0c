"""What the runtime uses of PyTorch where the caller has loaded it: tensor types, the current stream, memory. Never imports it."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

TENSOR_TYPES: Final[set[type]] = set()
"""Types whose instances are plain tensors; filled when the first tensor is met. Subclasses may override what their methods say."""

_NAMES: Final = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "i64": "int64",
    "index": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "i1": "bool",
    "ui64": "uint64",
    "ui32": "uint32",
    "ui16": "uint16",
    "ui8": "uint8",
}
_MLIR_NAMES: Final = {f"torch.{theirs}": name for name, theirs in _NAMES.items() if name != "index"}

_met: dict[Any, str] = {}
"""MLIR names of the PyTorch types that were met; by the type object, since its text takes a microsecond."""
_streams: dict[str, Callable[[int], int]] = {}


def is_tensor(array: Any) -> bool:
    """Whether this is a PyTorch tensor, of a subclass of PyTorch's own too."""
    return type(array).__module__.partition(".")[0] == "torch" and hasattr(array, "data_ptr")


def dtype_name(tensor: Any) -> str:
    """MLIR name of a tensor's element type, "" where there is none."""
    dtype = tensor.dtype
    name = _met.get(dtype)
    if name is None:
        torch = sys.modules["torch"]
        TENSOR_TYPES.update((torch.Tensor, torch.nn.Parameter))
        name = _met[dtype] = _MLIR_NAMES.get(str(dtype), "")
    return name


def gpu_kind() -> str:
    """What PyTorch means by device type "cuda" here: `cuda` or `hip`."""
    return "hip" if sys.modules["torch"].version.hip else "cuda"


def current_stream(kind: str, ordinal: int) -> int:
    """The handle of PyTorch's current stream on a GPU; 0, the default stream, where PyTorch is not loaded or does not use that GPU."""
    get = _streams.get(kind)
    if get is None:
        torch = sys.modules.get("torch")
        # What torch.cuda.current_stream(..).cuda_stream says, without making a Stream object (5 us).
        raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if torch is None or raw is None or gpu_kind() != kind or not torch.cuda.is_available():
            return 0
        get = _streams[kind] = raw
    return get(ordinal)


class TensorMemory:
    """Memory from PyTorch's caching allocator: ordered with its current stream, kept by a graph where one is being captured."""

    def __init__(self, ordinal: int) -> None:
        torch = sys.modules["torch"]
        self._torch = torch
        self._device = torch.device("cuda", ordinal)
        # The allocation behind torch.empty_strided for the current device, without dispatch (saves about a microsecond): used where
        # there is but one device, and where this PyTorch has it.
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        self._direct = getattr(guards, "_empty_strided_cuda", None) if torch.cuda.device_count() == 1 else None

    def has(self, dtype: str) -> bool:
        """Whether this PyTorch has the element type."""
        return hasattr(self._torch, _NAMES[dtype])

    def maker(self, shape: Sequence[int], strides: Sequence[int], dtype: str, least_bytes: int) -> Callable[[], Any]:
        """What makes a tensor of a shape, strides in elements and an MLIR type, in memory of at least `least_bytes` bytes."""
        kind = getattr(self._torch, _NAMES[dtype])
        size = kind.itemsize
        reach = 0 if 0 in shape else 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        make = self._direct or partial(self._torch.empty_strided, device=self._device)
        if reach * size < least_bytes:
            flat = self._maker(make, (-(-least_bytes // size),), (1,), kind)
            return lambda: flat().as_strided(tuple(shape), tuple(strides))
        return self._maker(make, tuple(shape), tuple(strides), kind)

    def _maker(self, make: Callable[..., Any], shape: tuple[int, ...], strides: tuple[int, ...], kind: Any) -> Callable[[], Any]:
        return partial(make, shape, strides, kind) if self._direct else partial(make, shape, strides, dtype=kind)

    def wrap(self, array: Any) -> Any:
        """A tensor over memory that an array with DLPack describes."""
        return self._torch.from_dlpack(array)

    def note_use(self, tensor: Any) -> None:
        """Tell the allocator that PyTorch's current stream uses a tensor's memory too."""
        tensor.record_stream(self._torch.cuda.current_stream(self._device))
