"""Kernels from text, for the tests of the schedules."""

from treadle.dialects import tile
from treadle.ir.text import parse_module


def kernel_of(text: str, name: str = "k") -> tile.KernelOp:
    """The one kernel of a module's text."""
    found = [op for op in parse_module(text, f"{name}.mlir").walk() if isinstance(op, tile.KernelOp)]
    assert len(found) == 1
    return found[0]
