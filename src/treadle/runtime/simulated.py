"""The device `sim`: the same manifest on this machine's processor, its kernels interpreted from their tile-level text.

The interpreter is above the IR framework and is loaded with the first program, so a GPU's user never pays for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from treadle import errors
from treadle.artifact import Manifest
from treadle.errors import InternalError, TreadleError
from treadle.plan.argument_layout import WIDEST_BYTES
from treadle.runtime.arguments import check_dtype, check_index_range, check_layout, check_place, given_outputs, resolve, views_of
from treadle.runtime.arrays import ArrayForm, ArrayView, HostArray, laid_out, numpy_dtype, row_major, strided
from treadle.runtime.host_memory import require
from treadle.runtime.invocation import Invocation, InvocationPlan, PointerArg, ResolvedLaunch, ScalarArg

_INTERPRETER: Final = "treadle.sim.loading"
_FAULT: Final = "SimulationFault"
"""What the interpreter raises where a kernel breaks a promise: the compiler's fault, but for kernels that a user wrote."""
_UNWRITTEN: Final = 0xFF
"""Fills memory that nothing has written: NaN in every floating-point type."""


class SimDevice:
    """The simulator as a device."""

    kind = "sim"
    name = "the simulator (NumPy)"
    target = "sim"
    machine = "sim"

    def load(self, manifest: Manifest, files: Mapping[str, bytes]) -> "SimulatedProgram":
        """Parse a program's kernels."""
        if manifest.target != self.target:
            raise TreadleError(errors.NO_DEVICE_FOR_TARGET, target=manifest.target, reason="the simulator runs programs for sim")
        return SimulatedProgram(manifest, files)

    def synchronize(self) -> None:
        """Nothing is ever in flight."""


class SimulatedProgram:
    """A manifest's kernels in the interpreter; call it on arrays, get NumPy arrays."""

    device_name = SimDevice.name
    place = ("cpu", 0)

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        self.manifest = manifest
        self.plan = InvocationPlan(manifest)
        load = import_module(_INTERPRETER).LoadedKernel
        self._kernels = {k.name: load(files[k.binary].decode(), k.binary) for k in manifest.kernels}
        self._constants = {i: np.frombuffer(files[b.file], np.uint8) for i, b in enumerate(manifest.buffers) if b.file}

    def __call__(self, *arrays: Any) -> tuple[HostArray, ...]:
        """Run; one NumPy array an output. Raises TR721..TR729 for wrong arguments, TR609 for too large ones."""
        return self.run(views_of(self.manifest, arrays))

    def form(self, views: Sequence[ArrayView], out: Sequence[Any] | None = None) -> None:
        """Nothing: what a call works out is no part of its cost here."""

    def bind(self, views: Sequence[ArrayView], out: Sequence[Any] | None = None) -> Callable[[], tuple[Any, ...]]:
        """The call on these arrays, to be repeated on the same memory."""
        before = [None if not t.in_place or v.host is None else v.host.copy() for v, t in zip(views, self.manifest.inputs, strict=True)]
        first = self.run(views, out)
        for array, contents in zip(views, before, strict=True):
            if array.host is not None and contents is not None:
                array.host[...] = contents  # binding a call is not making it

        def call() -> tuple[Any, ...]:
            return self.run(views, first)

        return call

    def run(self, views: Sequence[ArrayView], out: Sequence[Any] | None = None) -> tuple[HostArray, ...]:
        """The same for arguments whose views are taken already. `out`: arrays to fill, which must lie here."""
        if out is None:
            return self._results(views)
        results = self._results(views)
        forms = [
            ArrayForm(made.shape, row_major(made.shape), record.dtype, "cpu", 0)
            for made, record in zip(results, self.manifest.outputs, strict=True)
        ]
        for given, made in zip(given_outputs(self.manifest, out, forms), results, strict=True):
            if given.host is None:
                raise InternalError("an array of the host without host memory")
            given.host[...] = made.view(given.host.dtype)
        return tuple(out)

    def _results(self, views: Sequence[ArrayView]) -> tuple[HostArray, ...]:
        m = self.manifest
        invocation = resolve(self.plan, views, self.place[0])
        check_index_range(m.function, invocation)
        require(sum(invocation.buffer_bytes) + _results_bytes(m, invocation), f"the buffers of '{m.function}'")
        memory = [np.full(size, 0 if b.zero else _UNWRITTEN, np.uint8) for b, size in zip(m.buffers, invocation.buffer_bytes, strict=True)]
        for index, contents in self._constants.items():
            memory[index][: contents.size] = contents
        starts = [0] * len(memory)
        for number, (array, record, strides) in enumerate(zip(views, m.inputs, invocation.input_strides, strict=True)):
            check_dtype(array, number, record)
            check_place(array, number, record, self.place)
            if not m.is_by_hand:
                check_layout(array, number, record, strides, self.plan.input_align[number])
            index = self.plan.buffer_index[record.buffer]
            # A simulated allocation starts at a multiple of 256: the array starts in it where its address says, but for kernels that take
            # one layout only: those get a copy.
            starts[index] = start = 0 if 0 in array.shape or m.is_by_hand else array.address % WIDEST_BYTES
            dense: HostArray = np.empty(0) if array.host is None else array.host.astype(numpy_dtype(record.dtype), copy=False)
            contents = laid_out(dense, strides, memory[index].size)
            memory[index] = np.full(start + contents.size, _UNWRITTEN, np.uint8)
            memory[index][start:] = contents
        for launch in invocation.launches:
            self._launch(launch, memory, starts)
        left = next((b for b, contents in zip(m.buffers, memory, strict=True) if b.kept and contents.any()), None)
        if left is not None:
            kernel = m.launches[-1].kernel if m.launches else m.function
            raise TreadleError(errors.KERNEL_FAULT, kernel=kernel, reason="the launches leave counters that are not zero")
        for array, record, strides in zip(views, m.inputs, invocation.input_strides, strict=True):
            if record.in_place and array.host is not None and array.host.size:
                index = self.plan.buffer_index[record.buffer]
                changed = strided(memory[index][starts[index] :], array.shape, strides, numpy_dtype(record.dtype))
                array.host[...] = changed.view(array.host.dtype)
        results: list[HostArray] = []
        for record, shape, strides in zip(m.outputs, invocation.output_shapes, invocation.output_strides, strict=True):
            dtype = numpy_dtype(record.dtype)
            data = memory[self.plan.buffer_index[record.buffer]]
            if 0 in shape:
                results.append(np.empty(shape, dtype))
                continue
            results.append(strided(data, shape, strides, dtype).copy())
        return tuple(results)

    def _launch(self, launch: ResolvedLaunch, memory: list[HostArray], starts: list[int]) -> None:
        pointers = [(memory[a.buffer], starts[a.buffer] + a.byte_offset) for a in launch.args if isinstance(a, PointerArg)]
        symbols = [a.value for a in launch.args if isinstance(a, ScalarArg)]
        try:
            self._kernels[launch.kernel.name].launch(pointers, symbols, launch.grid)
        except Exception as error:
            if type(error).__name__ != _FAULT or "written_at" not in launch.kernel.facts:
                raise
            raise TreadleError(errors.KERNEL_FAULT, kernel=launch.kernel.name, reason=error) from error


def _results_bytes(manifest: Manifest, invocation: Invocation) -> int:
    shapes = zip(manifest.outputs, invocation.output_shapes, strict=True)
    return sum(math.prod(shape) * numpy_dtype(record.dtype).itemsize for record, shape in shapes)


def open_device() -> SimDevice:
    """The simulator; it is always there."""
    return SimDevice()
