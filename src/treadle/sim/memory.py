"""Memory of the simulated device: flat allocations, pointers into them, and views of global arrays with bounds and alignment checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.layout.windows import Windows
from treadle.sim.element_types import Array, DType, poison
from treadle.sim.faults import SimulationFault

ALLOCATION_ALIGN = 256  # bytes; every allocation starts at such an address


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address: `offset` elements into the flat allocation `data`. `constant`: nothing writes there while the kernel runs. `outside`:
    what folded views have outside of the array.
    """

    data: Array
    offset: int = 0
    constant: bool = False
    outside: int = 0


def allocate(count: int, dtype: DType) -> Array:
    """A flat allocation of `count` elements, poisoned."""
    return poison((count,), dtype)


def strided(data: Array, offset: int, shape: Sequence[int], strides: Sequence[int], what: str) -> Array:
    """A strided array over a flat allocation (strides in elements). Raises SimulationFault where it would leave the allocation."""
    if any(n < 0 for n in shape):
        raise SimulationFault(f"{what} has a negative size: {list(shape)}")
    if 0 in shape:
        return np.empty(shape, dtype=data.dtype)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first, last = offset + sum(min(r, 0) for r in reach), offset + sum(max(r, 0) for r in reach)
    if first < 0 or last >= data.size:
        raise SimulationFault(f"{what} of shape {list(shape)}, strides {list(strides)}, reaches elements {first}..{last} of {data.size}")
    byte_strides = [s * data.itemsize for s in strides]
    # Through plain integers: NumPy rebuilds the element type from its name, which some 8-bit floats do not have.
    plain = data[offset:].view(f"u{data.itemsize}")
    return np.lib.stride_tricks.as_strided(plain, shape=tuple(shape), strides=byte_strides).view(data.dtype)


class View:
    """A global array seen through the dimensions of a `tile.view`."""

    __slots__ = ("array", "constant", "element_offset", "sizes", "strides")

    def __init__(self, pointer: Pointer, offset: int, sizes: Sequence[int], strides: Sequence[int], align: int) -> None:
        self.constant = pointer.constant
        self.element_offset = pointer.offset + offset
        self.sizes = tuple(int(n) for n in sizes)
        self.strides = tuple(int(s) for s in strides)
        self.array = strided(pointer.data, self.element_offset, self.sizes, self.strides, "tile.view")
        if align > 1 and (self.element_offset * pointer.data.itemsize) % min(align, ALLOCATION_ALIGN):
            raise SimulationFault(f"tile.view promises {align} bytes of alignment at element {self.element_offset} of {pointer.data.dtype}")

    def check_vector(self, offsets: Sequence[int], extents: dict[int, int], vector: int, *, edges: bool = False) -> None:
        """Check what `vector` promises of a tile at `offsets` whose view dimensions have `extents`.

        Along the dimension of stride 1, each group of `vector` elements is aligned and, but for `edges`, wholly inside or wholly outside.
        Raises SimulationFault.
        """
        along = max((d for d in extents if self.strides[d] == 1 and extents[d] % vector == 0), key=lambda d: extents[d], default=None)
        if along is None:
            raise SimulationFault(f"an access of {vector} elements at once finds no dimension of stride 1 in strides {self.strides}")
        start, size = offsets[along], self.sizes[along]
        cut = start < size < start + extents[along] and (size - start) % vector
        if not edges and (cut or (start < 0 and start % vector)):
            raise SimulationFault(f"a group of {vector} elements from {start} crosses the size {size}")
        address = self.element_offset + sum(o * s for o, s in zip(offsets, self.strides, strict=True))
        uneven = [d for d, n in extents.items() if d != along and self.strides[d] % vector and min(n, self.sizes[d] - offsets[d]) > 1]
        if address % vector or uneven:
            raise SimulationFault(f"groups of {vector} elements at element {address}, strides {self.strides}, are not aligned")


class FoldedView(View):
    """A view that folds axes of an array (layout/windows.py): read only, an element at a time."""

    __slots__ = ("_data", "_outside", "_steps", "windows")

    def __init__(self, pointer: Pointer, offset: int, sizes: Sequence[int], strides: Sequence[int], align: int, windows: Windows) -> None:
        super().__init__(pointer, 0, [0], [1], 1)
        self.element_offset = pointer.offset + offset
        self.sizes, self.strides = tuple(int(n) for n in sizes), tuple(int(s) for s in strides)
        self.windows, self._data, self._outside = windows, pointer.data, pointer.outside

    def part(self, box: Sequence[tuple[int, int]]) -> Array:
        """The elements of a box, whose bounds are within the sizes; outside of the array they are zero."""
        grid = np.ogrid[tuple(slice(low, high) for low, high in box)]
        places: list[Any] = [0] * len(self.windows.axes)
        address: Any = self.element_offset
        for dim, index in enumerate(grid):
            if not self.windows.dims[dim]:
                address = address + index * self.strides[dim]
            for axis, steps in self.windows.taken_apart(dim, index):
                places[axis] = places[axis] + steps
        inside: Any = True
        for axis, place in zip(self.windows.axes, places, strict=True):
            address = address + place * axis.pitch
            inside = inside & (place >= axis.low) & (place < axis.high) if axis.high else inside
        shape = tuple(high - low for low, high in box)
        address, inside = np.broadcast_to(address, shape), np.broadcast_to(inside, shape)
        reached = address[inside]
        if reached.size and (reached.min() < 0 or reached.max() >= self._data.size):
            raise SimulationFault(f"a folded tile.view reaches elements {reached.min()}..{reached.max()} of {self._data.size}")
        found = np.full(shape, self._outside, dtype=self._data.dtype)
        found[inside] = self._data[reached]
        return found

    def check_vector(self, offsets: Sequence[int], extents: dict[int, int], vector: int, *, edges: bool = False) -> None:
        """As of every view: a group lies within one run of its dimension, and whole groups begin at multiples."""
        _ = edges
        along = next((d for d in extents if self.strides[d] == 1 and extents[d] % vector == 0), None)
        if along is None:
            raise SimulationFault(f"an access of {vector} elements at once finds no dimension of stride 1 in strides {self.strides}")
        apart = [self.windows.run(along), self.windows.divisor(along), self.sizes[along], offsets[along]]
        others = [
            self.windows.divisor(d) if self.windows.dims[d] and d == along else abs(self.strides[d])
            for d in range(len(self.sizes))
            if d != along and self.sizes[d] > 1
        ]
        pitches = [axis.pitch for axis in self.windows.axes if axis.pitch != 1]
        if any(each % vector for each in (*apart, *others, *pitches)) or self.element_offset % vector:
            raise SimulationFault(f"groups of {vector} elements of a folded view are not aligned, or cross the end of a run")


class Window:
    """Which part of a view a tile covers: tile dimension j lies along view dimension `dims[j]`, the others are taken at their offset.

    `repeats`: tile dimensions along which the last place inside the view is read for all places behind its end.
    """

    __slots__ = ("_axes", "_extents", "_order", "_repeats", "_unorder", "edges", "shape", "vector")

    def __init__(
        self, dims: Sequence[int], shape: Sequence[int], rank: int, vector: int, *, edges: bool = False, repeats: Sequence[int] = ()
    ) -> None:
        self.shape = tuple(shape)
        self._repeats = [(axis, dims[axis]) for axis in repeats]
        self.vector = vector
        self.edges = edges
        self._extents = dict(zip(dims, shape, strict=True))
        self._axes = [(axis, self._extents.get(axis, 0)) for axis in range(rank)]  # extent 0: not a dimension of the tile
        axes = sorted(dims)
        self._order = tuple(axes.index(d) for d in dims)
        self._unorder = tuple(int(i) for i in np.argsort(self._order))

    def _whole(self, view: View, offsets: Sequence[int]) -> Array | None:
        """The tile as a part of the view's array, in view order; None where the tile reaches outside."""
        sizes = view.sizes
        index: list[int | slice] = []
        for axis, extent in self._axes:
            offset = offsets[axis]
            if offset < 0 or offset + (extent or 1) > sizes[axis]:
                return None
            index.append(slice(offset, offset + extent) if extent else offset)
        return view.array[tuple(index)]

    def _part(self, view: View, offsets: Sequence[int]) -> tuple[Array, tuple[slice, ...]] | None:
        """The part inside the view, in view order, and where it lies within the tile; None where all is outside."""
        index: list[int | slice] = []
        place: list[slice] = []
        for axis, extent in self._axes:
            offset, size = offsets[axis], view.sizes[axis]
            low, high = max(offset, 0), min(offset + (extent or 1), size)
            if low >= high:
                return None
            index.append(slice(low, high) if extent else low)
            if extent:
                place.append(slice(low - offset, high - offset))
        return view.array[tuple(index)], tuple(place)

    def read(self, view: View, offsets: Sequence[int], other: Any) -> Array:
        """The tile as it is now; `other` outside the view."""
        if isinstance(view, FoldedView):
            return self._folded(view, offsets, other)
        whole = self._whole(view, offsets)
        if whole is not None:
            if self.vector > 1:
                view.check_vector(offsets, self._extents, self.vector, edges=self.edges)
            return whole.transpose(self._order) if view.constant else np.array(whole.transpose(self._order))
        out = np.full(self.shape, other, dtype=view.array.dtype)
        if (found := self._part(view, offsets)) is not None:
            if self.vector > 1:
                view.check_vector(offsets, self._extents, self.vector, edges=self.edges)
            part, place = found
            out.transpose(self._unorder)[place] = part
        for axis, dim in self._repeats:
            if not 0 <= offsets[dim] < view.sizes[dim]:
                raise SimulationFault(f"a tile that repeats the last place of a view of {view.sizes[dim]} begins at {offsets[dim]}")
            out = out.take(np.minimum(np.arange(self.shape[axis]), view.sizes[dim] - 1 - offsets[dim]), axis=axis)
        return out

    def _folded(self, view: FoldedView, offsets: Sequence[int], other: Any) -> Array:
        """The tile of a folded view; `other` outside of its sizes."""
        if self.vector > 1:
            view.check_vector(offsets, self._extents, self.vector, edges=self.edges)
        out = np.full(self.shape, other, dtype=view.array.dtype)
        ends = [
            (offset, min(offset + (extent or 1), size)) for (_, extent), offset, size in zip(self._axes, offsets, view.sizes, strict=True)
        ]
        if any(low < 0 for low, _ in ends):
            raise SimulationFault(f"a folded view is read from {list(offsets)} on")
        if all(low < high for low, high in ends):
            place = tuple(slice(0, high - low) for (_, extent), (low, high) in zip(self._axes, ends, strict=True) if extent)
            part = view.part(ends)
            shape = [high - low for (_, extent), (low, high) in zip(self._axes, ends, strict=True) if extent]
            out.transpose(self._unorder)[place] = part.reshape(shape)
        return out

    def write(self, view: View, offsets: Sequence[int], value: Array) -> None:
        """Store the tile's part inside the view."""
        if (found := self._part(view, offsets)) is not None:
            if self.vector > 1:
                view.check_vector(offsets, self._extents, self.vector, edges=self.edges)
            part, place = found
            part[...] = value.transpose(self._unorder)[place]
