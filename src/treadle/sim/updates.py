"""Atomic updates of global arrays: each element combined with a value, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dialects import tile
from treadle.sim.element_types import Array
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import View

_COMBINE: dict[str, Any] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def within(view: View, indices: Sequence[Array]) -> Array:
    """Which of the places lie within the view."""
    found = np.ones(indices[0].shape, dtype=bool)
    for index, size in zip(indices, view.sizes, strict=True):
        found &= (index >= 0) & (index < size)
    return found


def update(view: View, kind: str, value: Array, indices: Sequence[Array]) -> None:
    """Combine elements of a view with values; what lies outside is left out. Raises SimulationFault where memory is only read."""
    inside = within(view, indices)
    if view.constant and inside.any():
        raise SimulationFault("an atomic update of memory that the kernel only reads")
    places = tuple(index[inside] for index in indices)
    combine = _COMBINE[kind]
    if view.array.dtype.isbuiltin == 1:
        combine.at(view.array, places, value[inside])
        return
    for *place, element in zip(*places, value[inside], strict=True):  # types that NumPy knows from others only
        view.array[tuple(place)] = combine(view.array[tuple(place)], element)


def update_function(op: tile.AtomicOp) -> Callable[..., None]:
    """What an update does when it is executed."""
    kind = op.kind.data

    def run(value: Array, view: View, *indices: Array) -> None:
        update(view, kind, value, indices)

    return run
