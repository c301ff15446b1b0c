"""A loaded program on a GPU, the same for every vendor: checks of arguments, memory, packing of arguments, launches.

What a call has to work out depends on the shapes and the addresses, so both are cached: sizes by shape (`InvocationPlan`), and argument
blocks with their tensor maps by addresses and stream. A repeated call then only takes the addresses of its arrays and launches.
"""

import ctypes
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from treadle import errors
from treadle.artifact import Kernel, Manifest, TensorRecord
from treadle.errors import TreadleError
from treadle.plan.invocation import Invocation, InvocationPlan, PointerArg, ResolvedLaunch, ScalarArg, TensorMapArg
from treadle.runtime import elf
from treadle.runtime.arguments import check_dtype, check_layout, check_place, resolve, views_of
from treadle.runtime.arrays import ArrayView, HostArray, laid_out, numpy_dtype
from treadle.runtime.device_array import DeviceArray
from treadle.runtime.pool import Block, Pool

_FORMATS: Final = {"i32": "<i", "i64": "<q", "f32": "<f"}
_CACHED_PACKS: Final = 256
_BLOCK_ALIGN: Final = 64
"""Tensor maps are read by hardware from 64-byte aligned places."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device allows: grid extents and bytes of shared memory of a workgroup (static and dynamic together)."""

    grid: tuple[int, int, int]
    shared_bytes: int


class ArgumentBlock:
    """The bytes of a launch's arguments at their offsets, aligned, and pointers to each for APIs that take those."""

    __slots__ = ("_storage", "address", "launch", "pointers", "size")

    def __init__(self, launch: ResolvedLaunch) -> None:
        self.launch = launch
        self.size = launch.kernel.kernarg_bytes
        self._storage = ctypes.create_string_buffer(self.size + _BLOCK_ALIGN)
        self.address = -(-ctypes.addressof(self._storage) // _BLOCK_ALIGN) * _BLOCK_ALIGN
        self.pointers = (ctypes.c_void_p * max(1, len(launch.args)))(*(self.address + a.offset for a in launch.args))

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes at an offset."""
        ctypes.memmove(self.address + offset, data, len(data))

    def contents(self) -> bytes:
        """The whole block."""
        return ctypes.string_at(self.address, self.size)


class GpuDriver(Protocol):
    """What a vendor's module provides; all calls raise TR603 when the driver refuses."""

    @property
    def kind(self) -> Any: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def pool(self) -> Pool: ...
    def activate(self) -> None:
        """Make this device current for the calling thread."""
        ...

    def load_kernel(self, kernel: Kernel, binary: bytes) -> Any:
        """The function of a kernel, ready for its shared memory."""
        ...

    def prepare(self, function: Any, block: ArgumentBlock, stream: int) -> Any:
        """What `launch` needs, made once for a block and a stream."""
        ...

    def launch(self, prepared: Any) -> None: ...
    def encode_tensor_map(self, arg: TensorMapArg, address: int) -> bytes: ...
    def copy_to_device(self, address: int, data: HostArray, stream: int) -> None: ...
    def copy_to_host(self, address: int, nbytes: int, stream: int) -> HostArray: ...
    def fill_zero(self, address: int, nbytes: int, stream: int) -> None: ...
    def wait_stream(self, stream: int) -> None: ...


class GpuProgram:
    """A manifest's kernels on one device; call it on arrays."""

    def __init__(self, driver: GpuDriver, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        if manifest.target != driver.target:
            reason = f"{driver.name} runs programs for {driver.target}"
            raise TreadleError(errors.NO_DEVICE_FOR_TARGET, target=manifest.target, reason=reason)
        self.manifest = manifest
        self.plan = InvocationPlan(manifest)
        self._driver = driver
        driver.activate()
        for kernel in manifest.kernels:
            if kernel.shared_bytes > driver.limits.shared_bytes:
                raise TreadleError(
                    errors.SHARED_TOO_LARGE,
                    kernel=kernel.name,
                    needed=kernel.shared_bytes,
                    device=driver.name,
                    limit=driver.limits.shared_bytes,
                )
            if (fault := elf.defect(files[kernel.binary])) is not None:
                raise TreadleError(errors.BAD_BINARY, device=driver.name, binary=kernel.binary, reason=fault)
        self._functions = {k.name: driver.load_kernel(k, files[k.binary]) for k in manifest.kernels}
        self._input_buffers = tuple(self.plan.buffer_index[t.buffer] for t in manifest.inputs)
        self._output_buffers = tuple(self.plan.buffer_index[t.buffer] for t in manifest.outputs)
        self._constants = {i: self._constant(files[b.file]) for i, b in enumerate(manifest.buffers) if b.file}
        bound = {*self._input_buffers, *self._constants}
        self._made_buffers = tuple((i, b.zero) for i, b in enumerate(manifest.buffers) if i not in bound)
        self._packs: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def device_name(self) -> str:
        """The device in words."""
        return self._driver.name

    @property
    def place(self) -> tuple[str, int]:
        """Kind and number of the device: arrays that are there are used where they are."""
        return self._driver.kind, self._driver.ordinal

    def __call__(self, *arrays: Any, stream: int | None = None) -> tuple[DeviceArray, ...]:
        """Enqueue the program; returns at once with one array an output.

        `stream` is the driver's handle; by default PyTorch's current stream if a PyTorch tensor is among the arguments, else stream 0.
        Raises TR721..TR729 for wrong arguments, TR604 and TR606 for what the device cannot take, TR603.
        """
        return self.run(views_of(self.manifest, arrays), stream)

    def run(self, views: Sequence[ArrayView], stream: int | None = None) -> tuple[DeviceArray, ...]:
        """The same for arguments whose views are taken already."""
        driver, manifest = self._driver, self.manifest
        driver.activate()
        invocation = resolve(self.plan, views, driver.kind)
        stream = _stream_of(views) if stream is None else stream
        addresses = [0] * len(manifest.buffers)
        owners: dict[int, Any] = {}
        for i, (array, record, index) in enumerate(zip(views, manifest.inputs, self._input_buffers, strict=True)):
            check_dtype(array, i, record)
            addresses[index], owners[index] = self._bind(array, record, index, invocation, i, stream)
        for index, block in self._constants.items():
            addresses[index], owners[index] = block.address, block
        for index, zeroed in self._made_buffers:
            block = self._memory(invocation.buffer_bytes[index], stream)
            addresses[index], owners[index] = block.address, block
            if zeroed:
                driver.fill_zero(block.address, invocation.buffer_bytes[index], stream)
        for prepared in self._prepared(invocation, addresses, stream):
            driver.launch(prepared)
        return tuple(
            DeviceArray(driver, addresses[index], shape, strides, record.dtype, stream, owners[index])
            for record, index, shape, strides in zip(
                manifest.outputs, self._output_buffers, invocation.output_shapes, invocation.output_strides, strict=True
            )
        )

    def _bind(
        self, array: ArrayView, record: TensorRecord, index: int, invocation: Invocation, position: int, stream: int
    ) -> tuple[int, Any]:
        """Address and owner of an input: its own memory if it lies on this device, else a copy there."""
        driver = self._driver
        if array.host is not None:
            data = array.host.astype(numpy_dtype(record.dtype), copy=False) if array.dtype != record.dtype else array.host
            block = self._memory(invocation.buffer_bytes[index], stream)
            if data.size:
                driver.copy_to_device(block.address, laid_out(data, invocation.input_strides[position], 0), stream)
            return block.address, block
        check_place(array, position, record, self.place)
        check_layout(array, position, record, invocation.input_strides[position], self.plan.input_align[position])
        return array.address, array.owner

    def _memory(self, nbytes: int, stream: int) -> Block:
        block = self._driver.pool.get(nbytes, stream)
        if block is None:
            raise TreadleError(errors.OUT_OF_MEMORY, device=self._driver.name, bytes=nbytes)
        return block

    def _constant(self, data: bytes) -> Block:
        block = self._memory(len(data), 0)
        if data:
            self._driver.copy_to_device(block.address, np.frombuffer(data, np.uint8), 0)
            self._driver.wait_stream(0)  # calls may use any stream
        return block

    def _prepared(self, invocation: Invocation, addresses: list[int], stream: int) -> tuple[Any, ...]:
        key = (id(invocation), stream, *addresses)
        known = self._packs.get(key)
        if known is None or known[0] is not invocation:  # an id may have been given again
            made = tuple(self._prepare(launch, addresses, stream) for launch in invocation.launches)
            if len(self._packs) >= _CACHED_PACKS:
                del self._packs[next(iter(self._packs))]
            known = self._packs[key] = (invocation, made)
        return known[1]

    def _prepare(self, launch: ResolvedLaunch, addresses: list[int], stream: int) -> Any:
        driver = self._driver
        if any(extent > most for extent, most in zip(launch.grid, driver.limits.grid, strict=True)):
            grid, limit = (" x ".join(map(str, sizes)) for sizes in (launch.grid, driver.limits.grid))
            raise TreadleError(errors.GRID_TOO_LARGE, kernel=launch.kernel.name, grid=grid, device=driver.name, limit=limit)
        block = ArgumentBlock(launch)
        for arg in launch.args:
            match arg:
                case PointerArg():
                    block.write(arg.offset, struct.pack("<Q", addresses[arg.buffer] + arg.byte_offset))
                case ScalarArg():
                    block.write(arg.offset, struct.pack(_FORMATS[arg.kind], arg.value))
                case TensorMapArg() if 0 in arg.global_dim:
                    pass  # the encoder refuses empty arrays, and no kernel reads one
                case TensorMapArg():
                    block.write(arg.offset, driver.encode_tensor_map(arg, addresses[arg.buffer] + arg.byte_offset))
        return driver.prepare(self._functions[launch.kernel.name], block, stream)


def _stream_of(views: Sequence[ArrayView]) -> int:
    torch = sys.modules.get("torch")
    if torch is not None:
        for array in views:
            if array.host is None and isinstance(array.owner, torch.Tensor):
                # What torch.cuda.current_stream(..).cuda_stream says, without making a Stream object (5 us).
                return int(torch._C._cuda_getCurrentRawStream(array.device))
    return 0
