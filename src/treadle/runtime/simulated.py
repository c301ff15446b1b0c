"""The device `sim`: the same manifest on this machine's processor, its kernels interpreted from their tile-level text.

The interpreter is above the IR framework and is loaded with the first program, so a GPU's user never pays for it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np

from treadle import errors
from treadle.artifact import Manifest
from treadle.errors import TreadleError
from treadle.plan.invocation import InvocationPlan, PointerArg, ResolvedLaunch, ScalarArg
from treadle.runtime.arrays import HostArray, laid_out, numpy_dtype
from treadle.runtime.gpu_program import check_argument, resolve_arguments

_INTERPRETER: Final = "treadle.sim.loading"
_UNWRITTEN: Final = 0xFF
"""Fills memory that nothing has written: NaN in every floating-point type."""


class SimDevice:
    """The simulator as a device."""

    kind = "sim"
    name = "the simulator (NumPy)"
    target = "sim"

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

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        self.manifest = manifest
        self.plan = InvocationPlan(manifest)
        load = import_module(_INTERPRETER).LoadedKernel
        self._kernels = {k.name: load(files[k.binary].decode(), k.binary) for k in manifest.kernels}
        self._constants = {i: np.frombuffer(files[b.file], np.uint8) for i, b in enumerate(manifest.buffers) if b.file}

    def __call__(self, *arrays: Any) -> tuple[HostArray, ...]:
        """Run; one NumPy array an output. Raises TR721..TR729 for wrong arguments."""
        m = self.manifest
        views, invocation = resolve_arguments(self.plan, arrays)
        memory = [np.full(size, 0 if b.zero else _UNWRITTEN, np.uint8) for b, size in zip(m.buffers, invocation.buffer_bytes, strict=True)]
        for index, contents in self._constants.items():
            memory[index][: contents.size] = contents
        for array, record, strides in zip(views, m.inputs, invocation.input_strides, strict=True):
            check_argument(array, record, strides)
            if array.host is None:
                raise TreadleError(errors.ARGUMENT_DEVICE, name=record.name, given=array.place, expected="cpu")
            index = self.plan.buffer_index[record.buffer]
            memory[index] = laid_out(array.host.astype(numpy_dtype(record.dtype), copy=False), strides, memory[index].size).copy()
        for launch in invocation.launches:
            self._launch(launch, memory)
        results: list[HostArray] = []
        for record, shape, strides in zip(m.outputs, invocation.output_shapes, invocation.output_strides, strict=True):
            dtype = numpy_dtype(record.dtype)
            data = memory[self.plan.buffer_index[record.buffer]]
            if 0 in shape:
                results.append(np.empty(shape, dtype))
                continue
            typed = data[: data.size // dtype.itemsize * dtype.itemsize].view(dtype)
            results.append(np.lib.stride_tricks.as_strided(typed, shape, [s * dtype.itemsize for s in strides]).copy())
        return tuple(results)

    def _launch(self, launch: ResolvedLaunch, memory: list[HostArray]) -> None:
        pointers = [(memory[a.buffer], a.byte_offset) for a in launch.args if isinstance(a, PointerArg)]
        symbols = [a.value for a in launch.args if isinstance(a, ScalarArg)]
        self._kernels[launch.kernel.name].launch(pointers, symbols, launch.grid)


def open_device() -> SimDevice:
    """The simulator; it is always there."""
    return SimDevice()
