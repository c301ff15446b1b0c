"""A tile kernel as the simulator's device gets it: text in, a launch on raw memory out."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from treadle.dialects import pipe, tile
from treadle.errors import InternalError
from treadle.ir.text import parse_module
from treadle.sim.element_types import DType, storage_dtype
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel

Bytes = npt.NDArray[np.uint8]


class _Runs(Protocol):
    """How a kernel is executed."""

    name: str

    def launch(self, pointers: Sequence[Pointer], symbols: Sequence[int], grid: tuple[int, int, int]) -> None:
        """Run the grid."""
        ...


class _Agents:
    """A schedule whose warps do different things: it is executed with agents, and what they leave unordered is a fault."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        from treadle.sim.schedule import ScheduledKernel  # only schedules that users write need it

        self._scheduled = ScheduledKernel(kernel)
        self.name = self._scheduled.name

    def launch(self, pointers: Sequence[Pointer], symbols: Sequence[int], grid: tuple[int, int, int]) -> None:
        """Run the grid. Raises SimulationFault for a race or a deadlock."""
        from treadle.sim.schedule.report import Findings

        findings = Findings()
        self._scheduled.launch(pointers, symbols, findings, grid=grid)
        report = findings.report(())
        if not report.ok:
            raise SimulationFault(f"kernel {self.name}: {report}")


def _has_agents(kernel: tile.KernelOp) -> bool:
    return any(isinstance(op, pipe.RolesOp) for op in kernel.body.walk())


class LoadedKernel:
    """One kernel, parsed and compiled to steps. `pointer_types` are the NumPy types of its pointer arguments' elements."""

    def __init__(self, text: str, name: str) -> None:
        kernels = [op for op in parse_module(text, name).walk() if isinstance(op, tile.KernelOp)]
        if len(kernels) != 1:
            raise InternalError(f"{name} holds {len(kernels)} kernels, not one")
        self._kernel: _Runs = _Agents(kernels[0]) if _has_agents(kernels[0]) else TileKernel(kernels[0])
        arguments = kernels[0].body.block.args
        pointers = [a.type for a in arguments[: len(arguments) - len(kernels[0].symbol_names())]]
        self.pointer_types: tuple[DType, ...] = tuple(storage_dtype(t.element_type) for t in pointers if isinstance(t, tile.PointerType))

    def launch(self, pointers: Sequence[tuple[Bytes, int]], symbols: Sequence[int], grid: tuple[int, int, int]) -> None:
        """Run the grid; each pointer is memory and a byte offset into it. Raises SimulationFault for a broken promise."""
        typed: list[Pointer] = []
        for (memory, offset), dtype in zip(pointers, self.pointer_types, strict=True):
            if offset % dtype.itemsize:
                raise InternalError(f"{self._kernel.name}: byte offset {offset} into elements of {dtype.itemsize} bytes")
            whole = memory.size // dtype.itemsize * dtype.itemsize
            typed.append(Pointer(memory[:whole].view(dtype), offset // dtype.itemsize))
        self._kernel.launch(typed, symbols, grid)
