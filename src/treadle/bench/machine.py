"""The device as measuring sees it, through PyTorch: inputs, time stamps, the sweep of the L2 cache, samples of results."""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treadle import errors
from treadle.bench.peers import require_torch
from treadle.bench.protocol import Clock
from treadle.bench.workload import TensorSpec
from treadle.errors import TreadleError
from treadle.runtime.arrays import numpy_dtype

Array = NDArray[Any]
Pick = tuple[int, Sequence[int]]
_TORCH_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "i8": "int8",
    "i32": "int32",
}


class Machine(Clock, Protocol):
    """A device with arrays."""

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        """An array of random values: N(0, 1), integers uniform over their type."""
        ...

    def adopt(self, result: Any) -> Any:
        """A program's result as an array of this machine."""
        ...

    def sample(self, array: Any, picks: Sequence[Pick], dtype: str) -> Array:
        """The part of an array at the indices of the picked axes, on the host."""
        ...

    def difference(self, left: Any, right: Any) -> float:
        """Largest difference of two arrays over the largest magnitude of `right`; infinite where the shapes or NaNs differ."""
        ...

    def bits(self, array: Any) -> Any:
        """A copy of the array's bits, which `equal_bits` compares."""
        ...

    def equal_bits(self, left: Any, right: Any) -> bool:
        """Whether two copies of `bits` are the same."""
        ...

    def copy(self, moved_bytes: int) -> Callable[[], object]:
        """A call that copies half as many bytes within the device's memory: so many are moved, one read for each one written."""
        ...


class TorchMachine:
    """The GPU that PyTorch has as current device."""

    def __init__(self, flush_bytes: int) -> None:
        require_torch()
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(min(16, os.cpu_count() or 1)))
        torch: Any = import_module("torch")
        if not torch.cuda.is_available():
            raise TreadleError(errors.BENCH_NEEDS, what="PyTorch with a GPU", reason="torch.cuda.is_available() is False")
        self._torch = torch
        self._sweep = torch.zeros(flush_bytes // 4, dtype=torch.int32, device="cuda")
        self._total = torch.zeros((), dtype=torch.int64, device="cuda")

    def flush(self) -> None:
        """Read a large buffer: the cache holds that, and nothing in it must be written back later."""
        self._torch.sum(self._sweep, dim=0, out=self._total)

    def mark(self) -> Any:
        """A recorded event of the current stream."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Time between two events."""
        return float(start.elapsed_time(end))

    def synchronize(self) -> None:
        """Wait for the device."""
        self._torch.cuda.synchronize()

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        """A random tensor on the device."""
        torch = self._torch
        generator = torch.Generator(device="cuda")
        generator.manual_seed(seed)
        kind = getattr(torch, _TORCH_NAMES[spec.dtype])
        if spec.dtype.startswith("i"):
            most = 128 if spec.dtype == "i8" else 1 << 15
            return torch.randint(-most, most, spec.shape, generator=generator, device="cuda", dtype=torch.int32).to(kind)
        return torch.randn(spec.shape, generator=generator, device="cuda").to(kind)

    def adopt(self, result: Any) -> Any:
        """The same memory as a tensor."""
        return result if isinstance(result, self._torch.Tensor) else self._torch.from_dlpack(result)

    def sample(self, array: Any, picks: Sequence[Pick], dtype: str) -> Array:
        """Rows and columns by index, bit for bit."""
        torch = self._torch
        width = array.element_size()
        bits = array.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width])
        for axis, indices in picks:
            bits = bits.index_select(axis, torch.tensor(list(indices), device=bits.device))
        return np.ascontiguousarray(bits.cpu().numpy()).view(numpy_dtype(dtype))

    def difference(self, left: Any, right: Any) -> float:
        """Compared in f32, on the device."""
        if tuple(left.shape) != tuple(right.shape):
            return float("inf")
        a, b = left.float(), right.float()
        if bool((a.isnan() != b.isnan()).any()):
            return float("inf")
        scale = float(b.nan_to_num(0.0, 0.0, 0.0).abs().max())
        return float((a - b).nan_to_num(0.0).abs().max()) / (scale or 1.0)

    def bits(self, array: Any) -> Any:
        """As integers of the elements' width."""
        torch = self._torch
        return array.clone().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[array.element_size()])

    def equal_bits(self, left: Any, right: Any) -> bool:
        """On the device."""
        return bool(self._torch.equal(left, right))

    def copy(self, moved_bytes: int) -> Callable[[], object]:
        """`Tensor.copy_`, which is a copy by the driver."""
        torch = self._torch
        source = torch.zeros(max(1, moved_bytes // 2), dtype=torch.uint8, device="cuda")
        destination = torch.empty_like(source)
        return lambda: destination.copy_(source)
