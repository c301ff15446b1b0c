"""`tile.print`: values of a workgroup, shown while it runs, or looked at in Python's debugger."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.dialects import tile
from treadle.dialects.dispatch_attributes import texts
from treadle.sim.element_types import Array

_SHOWN = 64
"""Elements from which on NumPy shows the ends of a tile only."""


def show(op: tile.PrintOp, workgroup: tuple[int, int, int], values: Sequence[Any]) -> None:
    """Print the values, each under its name; with `stops` hand them to Python's debugger instead."""
    named = dict(zip(texts(op.names), values, strict=True))
    if op.stops is not None:
        _stop(op.label.data, workgroup, named)
        return
    lines = [f"{workgroup} {op.label.data}".rstrip()]
    lines += [f"  {name} = {_text(value, len(name))}" for name, value in named.items()]
    sys.stdout.write("\n".join(lines) + "\n")


def _text(value: Any, indent: int) -> str:
    if not hasattr(value, "shape"):
        return str(value)
    array: Array = value
    return np.array2string(array, precision=6, threshold=_SHOWN, prefix=" " * (indent + 5))


def _stop(label: str, workgroup: tuple[int, int, int], values: dict[str, Any]) -> None:
    """In the debugger: `workgroup` and `values` are what the kernel has here; `c` goes on."""
    _ = label, workgroup, values
    sys.breakpointhook()
