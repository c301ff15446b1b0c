"""A tile kernel as the simulator's device gets it: text in, a launch on raw memory out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.text import parse_module
from treadle.sim.element_types import DType, storage_dtype
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel

Bytes = npt.NDArray[np.uint8]


class LoadedKernel:
    """One kernel, parsed and compiled to steps. `pointer_types` are the NumPy types of its pointer arguments' elements."""

    def __init__(self, text: str, name: str) -> None:
        kernels = [op for op in parse_module(text, name).walk() if isinstance(op, tile.KernelOp)]
        if len(kernels) != 1:
            raise InternalError(f"{name} holds {len(kernels)} kernels, not one")
        self._kernel = TileKernel(kernels[0])
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
