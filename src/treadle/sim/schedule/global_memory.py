"""Global arrays while schedules run: those that a kernel writes are watched for races."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.sim.element_types import Array
from treadle.sim.memory import Pointer, View, Window
from treadle.sim.schedule.accesses import Shadow


class GlobalArray:
    """An allocation that is written: its shadow, and an array whose elements are their own indices."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self.shadow = Shadow(data.size, "global fence")
        self.indices = np.arange(data.size, dtype=np.int64)
        self._repeated = np.zeros(data.size, dtype=bool)

    def agrees(self, places: Array, values: Array) -> bool:
        """Whether elements that a write with repetitions has written, and another one writes, keep their values."""
        again = self._repeated[places]
        self._repeated[places] = True
        return self.data.reshape(-1)[places[again]].tobytes() == values[again].tobytes()


class GlobalView:
    """A `tile.view` of a kernel's argument; `watched` where the kernel writes the allocation, with the view of its indices."""

    __slots__ = ("_indices", "name", "view", "watched")

    def __init__(self, view: View, watched: GlobalArray | None, indices: View | None, name: str) -> None:
        self.view, self.watched, self._indices, self.name = view, watched, indices, name

    def agrees(self, window: Window, offsets: Sequence[int], value: Array) -> bool:
        """Whether a tile with repetitions has the values that others wrote where they overlap."""
        if self.watched is None or self._indices is None:
            return True
        inside = window.read(self._indices, offsets, -1).reshape(-1)
        return self.watched.agrees(inside[inside >= 0], value.reshape(-1)[inside >= 0])

    def places(self, window: Window, offsets: Sequence[int], mask: Array | None) -> Array:
        """Indices into the allocation of a tile's elements (those in `mask`) that lie inside the view."""
        if self._indices is None:
            return np.empty(0, dtype=np.int64)
        found = window.read(self._indices, offsets, -1)
        found = found.reshape(-1) if mask is None else found[mask]
        return found[found >= 0]

    def gathered_places(self, indices: Sequence[Array], mask: Array | None) -> Array:
        """Indices into the allocation of the elements at computed places (those in `mask`), each the nearest inside the view."""
        if self._indices is None:
            return np.empty(0, dtype=np.int64)
        inside = tuple(np.clip(index, 0, size - 1) for index, size in zip(indices, self.view.sizes, strict=True))
        found = self._indices.array[inside]
        return found.reshape(-1) if mask is None else found[mask]


def watch(pointers: Sequence[Pointer], written: Sequence[bool]) -> tuple[list[Pointer], dict[int, GlobalArray]]:
    """Pointers with `constant` set where nothing writes, and the watched allocations by identity of their data."""
    targets = [p.data for p, is_written in zip(pointers, written, strict=True) if is_written]
    watched: dict[int, GlobalArray] = {}
    found: list[Pointer] = []
    for p in pointers:
        is_shared = any(np.may_share_memory(p.data, t) for t in targets)
        if is_shared and id(p.data) not in watched:
            watched[id(p.data)] = GlobalArray(p.data)
        found.append(Pointer(p.data, p.offset, constant=not is_shared))
    return found, watched


def window_of(dims: Sequence[int], shape: Sequence[int], offsets: Sequence[Any]) -> Window:
    """The window of an access of a tile of `shape` at as many offsets, an element at a time."""
    return Window(dims, shape, len(offsets), 1)
