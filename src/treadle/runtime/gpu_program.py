"""A loaded program on a GPU, the same for every vendor: its kernels, checks of arguments, and the forms of calls (call_form.py).

What a call has to work out depends on the shapes and the addresses, and both are cached: a form by shapes and strides, and in it argument
blocks with their tensor maps by addresses and stream. A repeated call takes memory for its results and launches, and one on PyTorch
tensors like the last ones does little else (direct_call.py).
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from treadle import errors
from treadle.artifact import Kernel, Manifest, ScalarValue
from treadle.errors import TreadleError
from treadle.runtime import elf
from treadle.runtime.argument_block import ArgumentBlock, BlockTemplate
from treadle.runtime.arguments import check_dtype, check_index_range, check_layout, check_place, given_outputs, resolve, views_of
from treadle.runtime.arrays import ArrayView, HostArray, laid_out, numpy_dtype, strided
from treadle.runtime.bound_call import BoundCall, Enqueue
from treadle.runtime.call_form import CallDriver, CallForm, PoolCalls
from treadle.runtime.device_array import DeviceArray
from treadle.runtime.invocation import Invocation, InvocationPlan, ResolvedLaunch
from treadle.runtime.pool import Block, Pool
from treadle.runtime.tensor_calls import TensorCalls
from treadle.runtime.torch_tensors import TensorMemory, current_stream, is_tensor

_CACHED_FORMS: Final = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device allows: grid extents and bytes of shared memory of a workgroup (static and dynamic together).

    `threads`: of a whole grid along an axis, where the hardware counts these; 0 where it does not.
    """

    grid: tuple[int, int, int]
    shared_bytes: int
    threads: int = 0


class GpuDriver(CallDriver, Protocol):
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

    def prepare(self, function: Any, block: ArgumentBlock, stream: int, early_start: bool = False) -> Enqueue:
        """What enqueues a launch with a block of arguments."""
        ...

    def copy_to_device(self, address: int, data: HostArray, stream: int) -> None: ...
    def copy_to_host(self, address: int, nbytes: int, stream: int) -> HostArray:
        """A copy of device bytes, after the work on the stream."""
        ...


class GpuProgram:
    """A manifest's kernels on one device; call it on arrays."""

    def __init__(self, driver: GpuDriver, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        if manifest.target != driver.target:
            reason = f"{driver.name} runs programs for {driver.target}"
            raise TreadleError(errors.NO_DEVICE_FOR_TARGET, target=manifest.target, reason=reason)
        self.manifest = manifest
        self.plan = InvocationPlan(manifest)
        self.driver = driver
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
        self.input_buffers = tuple(self.plan.buffer_index[t.buffer] for t in manifest.inputs)
        self.output_buffers = tuple(self.plan.buffer_index[t.buffer] for t in manifest.outputs)
        read = {arg.buffer for launch in manifest.launches for arg in launch.args if not isinstance(arg, ScalarValue)}
        self._is_size = [not t.shape and t.buffer not in read for t in manifest.inputs]  # what only the host reads
        self.constants = {i: self._constant(files[b.file]) for i, b in enumerate(manifest.buffers) if b.file}
        self._forms: dict[tuple[int, bool, bool, bool], CallForm] = {}
        self._lock = threading.RLock()

    @property
    def device_name(self) -> str:
        """The device in words."""
        return self.driver.name

    @property
    def place(self) -> tuple[str, int]:
        """Kind and number of the device: arrays that are there are used where they are."""
        return self.driver.kind, self.driver.ordinal

    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None, stream: int | None = None) -> tuple[Any, ...]:
        """Enqueue the program; returns at once with one array an output: PyTorch tensors if one is among the arguments.

        `stream` is the driver's handle; by default PyTorch's current stream where PyTorch is loaded, else stream 0. `out`: arrays to fill.
        Raises TR721..TR731 for wrong arguments, TR604 and TR606 for what the device cannot take, TR603.
        """
        return self.run(views_of(self.manifest, arrays), out, stream)

    def run(self, views: Sequence[ArrayView], out: Sequence[Any] | None = None, stream: int | None = None) -> tuple[Any, ...]:
        """The same for arguments whose views are taken already. Arrays of the host are copied to the device, in order of the stream."""
        driver = self.driver
        driver.activate()
        usual = current_stream(driver.kind, driver.ordinal)
        stream = usual if stream is None else stream
        form, outs = self._form(views, out, tensors=stream == usual)
        owners: list[Any] = [array.owner for array in views]
        pointers = [array.address for array in views]
        copied = [i for i, array in enumerate(views) if array.host is not None and not self._is_size[i]]
        if copied and driver.is_capturing(stream):
            raise TreadleError(errors.CAPTURED_CALL, function=self.manifest.function, reason="an argument lies in host memory")
        for i in copied:
            array = views[i]
            if array.host is not None:
                owners[i] = self._copied(array.host, i, form.invocation, stream)
                pointers[i] = owners[i].address
        results = form.run([*pointers, *(array.address for array in outs)], owners, out, stream)
        for i, array in enumerate(views):
            if array.host is not None and self.manifest.inputs[i].in_place:
                self._copy_back(array.host, pointers[i], i, form.invocation, stream)
        return results

    def form(self, views: Sequence[ArrayView], out: Sequence[Any] | None = None) -> CallForm | None:
        """The form of a call on such arguments, for calls on the current stream; None if an argument other than a size lies in host memory.

        Makes all checks of arguments and of given results.
        """
        if any(array.host is not None and not is_size for array, is_size in zip(views, self._is_size, strict=True)):
            return None
        self.driver.activate()
        return self._form(views, out, tensors=True)[0]

    def bind(self, views: Sequence[ArrayView], out: Sequence[Any] | None = None) -> BoundCall:
        """The call on these arrays, to be repeated on the same memory. Raises TR726 for arrays of the host: no copy is made of them."""
        for i, (array, record) in enumerate(zip(views, self.manifest.inputs, strict=True)):
            if array.host is not None:
                expected = f"{self.driver.kind}:{self.driver.ordinal}"
                raise TreadleError(errors.ARGUMENT_DEVICE, index=i, name=record.name, given=array.place, expected=expected)
        form, outs = self._form(views, out, tensors=True)
        return form.bind([array.address for array in (*views, *outs)], [array.owner for array in views], out)

    def _form(self, views: Sequence[ArrayView], out: Sequence[Any] | None, tensors: bool) -> tuple[CallForm, list[ArrayView]]:
        """The form, and the views of the given results."""
        driver, manifest = self.driver, self.manifest
        with self._lock:
            invocation = resolve(self.plan, views, driver.kind)
            check_index_range(manifest.function, invocation)
            for i, (array, record) in enumerate(zip(views, manifest.inputs, strict=True)):
                check_dtype(array, i, record)
                if array.host is None:
                    check_place(array, i, record, self.place)
                    check_layout(array, i, record, invocation.input_strides[i], self.plan.input_align[i])
            tensors = tensors and any(array.host is None and is_tensor(array.owner) for array in views)
            waits = any(isinstance(array, DeviceArray) for array in (*(array.owner for array in views), *(out or ())))
            key = (id(invocation), tensors, out is not None, waits)
            form = self._forms.get(key)
            if form is None or form.invocation is not invocation:  # an id may have been given again
                form = self._new_form(invocation, tensors, out is not None, waits)
                if len(self._forms) >= _CACHED_FORMS:
                    del self._forms[next(iter(self._forms))]
                self._forms[key] = form
            return form, [] if out is None else given_outputs(manifest, out, form.output_forms)

    def _new_form(self, invocation: Invocation, tensors: bool, given: bool, waits: bool) -> CallForm:
        if tensors:
            memory = TensorMemory(self.driver.ordinal)
            if all(memory.has(record.dtype) for record in self.manifest.outputs):
                return TensorCalls(self, invocation, given, waits, memory)
        return PoolCalls(self, invocation, given, waits)

    def _copied(self, host: HostArray, position: int, invocation: Invocation, stream: int) -> Block:
        """An argument's copy on the device."""
        record, index = self.manifest.inputs[position], self.input_buffers[position]
        data = host.astype(numpy_dtype(record.dtype), copy=False)
        block = self.memory(invocation.buffer_bytes[index], stream)
        if data.size:
            self.driver.copy_to_device(block.address, laid_out(data, invocation.input_strides[position], 0), stream)
        return block

    def _copy_back(self, host: HostArray, address: int, position: int, invocation: Invocation, stream: int) -> None:
        """Bring what a call made of an argument of the host back to it; waits for the call."""
        if host.size:
            data = self.driver.copy_to_host(address, invocation.buffer_bytes[self.input_buffers[position]], stream)
            dtype = numpy_dtype(self.manifest.inputs[position].dtype)
            host[...] = strided(data, host.shape, invocation.input_strides[position], dtype).view(host.dtype)

    def memory(self, nbytes: int, stream: int) -> Block:
        """A block of the device's pool; raises TR606."""
        block = self.driver.pool.get(nbytes, stream)
        if block is None:
            raise TreadleError(errors.OUT_OF_MEMORY, device=self.driver.name, bytes=nbytes)
        return block

    def _constant(self, data: bytes) -> Block:
        block = self.memory(len(data), 0)
        if data:
            self.driver.copy_to_device(block.address, np.frombuffer(data, np.uint8), 0)
            self.driver.wait_stream(0)  # calls may use any stream
        return block

    def template(self, launch: ResolvedLaunch) -> BlockTemplate:
        """The arguments of a launch but for the addresses; raises TR604 for a grid that the device does not take."""
        driver, limits = self.driver, self.driver.limits
        most = limits.grid
        if limits.threads:
            x, y, z = (min(m, limits.threads // b) for m, b in zip(most, launch.kernel.block, strict=True))
            most = (x, y, z)
        if any(extent > limit for extent, limit in zip(launch.grid, most, strict=True)):
            grid, limit = (" x ".join(map(str, sizes)) for sizes in (launch.grid, most))
            raise TreadleError(errors.GRID_TOO_LARGE, kernel=launch.kernel.name, grid=grid, device=driver.name, limit=limit)
        return BlockTemplate(driver, launch)

    def enqueuer(self, template: BlockTemplate, addresses: Sequence[int], stream: int) -> Enqueue:
        """What enqueues a launch on buffers at these addresses."""
        function = self._functions[template.launch.kernel.name]
        return self.driver.prepare(function, template.filled(addresses), stream, early_start=template.launch.early)
