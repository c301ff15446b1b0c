"""What the runtime uses of PyTorch where the caller has loaded it: tensor types, guards, the current stream, memory. Never imports it."""

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
_guards: list[Any] = []
"""PyTorch's type of guards once it was looked for, None if it is not there or not what is needed."""


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


def torch_dtype(name: str) -> Any:
    """PyTorch's element type of an MLIR name."""
    return getattr(sys.modules["torch"], _NAMES[name])


def gpu_kind() -> str:
    """What PyTorch means by device type "cuda" here: `cuda` or `hip`."""
    return "hip" if sys.modules["torch"].version.hip else "cuda"


def stream_function(kind: str) -> Callable[[int], int] | None:
    """From a GPU's number to the handle of PyTorch's current stream on it; None where PyTorch is not loaded or does not use such GPUs."""
    get = _streams.get(kind)
    if get is None:
        torch = sys.modules.get("torch")
        # What torch.cuda.current_stream(..).cuda_stream says, without making a Stream object (5 us).
        get = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if torch is None or get is None or gpu_kind() != kind or not torch.cuda.is_available():
            return None
        _streams[kind] = get
    return get


def capture_function(kind: str) -> Callable[[], bool] | None:
    """Whether PyTorch's current stream goes into a graph, without a call through ctypes (0.3 us); None where PyTorch is not loaded, uses
    several GPUs or others, or lacks it.
    """
    torch = sys.modules.get("torch")
    found = getattr(getattr(torch, "_C", None), "_cuda_isCurrentStreamCapturing", None)
    return found if torch is not None and gpu_kind() == kind and torch.cuda.device_count() == 1 else None


def current_stream(kind: str, ordinal: int) -> int:
    """The handle of PyTorch's current stream on a GPU; 0, the default stream, where PyTorch is not loaded or does not use that GPU."""
    get = _streams.get(kind) or stream_function(kind)
    return 0 if get is None else get(ordinal)


def guard_of(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A function that tells whether as many tensors are like these in everything but addresses and contents.

    It compares types, shapes, strides, element types, devices and what PyTorch dispatches by, such as lazy negation: in one call (0.3 us
    for three tensors) what their methods say in twenty. It may refuse tensors that are alike, when gradients are switched on or where one
    stands for two arguments. It keeps no tensor alive. None without such a function in this PyTorch.
    """
    if not _guards:
        _guards.append(_guard_type())
    if (kind := _guards[0]) is None:
        return None
    check = kind(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    return check if check(*tensors) else None


def _guard_type() -> Any:
    """The type behind PyTorch's own guards of compiled functions, if it tells apart what it is used for: it is no public interface."""
    torch = sys.modules["torch"]
    try:
        kind = torch._C._dynamo.guards.TensorGuards
        first, second = (torch.zeros(2, 3, device="cpu") for _ in range(2))
        check = kind(first, second, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        alike = torch.zeros(2, 3, device="cpu")
        others = [
            torch.zeros(1, 3, device="cpu"),
            torch.zeros(2, 3, 1, device="cpu"),
            torch.zeros(3, 2, device="cpu").t(),
            torch.zeros(2, 3, dtype=torch.float16, device="cpu"),
            torch.zeros(2, 3, device="meta"),
            torch.nn.Parameter(torch.zeros(2, 3, device="cpu"), requires_grad=False),
            torch._neg_view(alike),
        ]
        right = check(first, second) and check(alike, first)
        return kind if right and not any(check(first, other) or check(other, second) for other in others) else None
    except Exception:  # noqa: BLE001 - whatever is missing or different, calls do without
        return None


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
