"""Shared memory of one workgroup: bytes, which of them hold data, and who accessed them last."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from treadle.dialects import tile
from treadle.ir.core import Operation, SSAValue
from treadle.layout.shared_layout import SharedLayout
from treadle.sim.element_types import Array, DType, poison, storage_dtype
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule.accesses import Places, Shadow
from treadle.sim.schedule.ownership import offset_table

_ALIGN = 1024  # bytes; buffers that have no address yet do not meet others


@dataclass(frozen=True, slots=True)
class Buffer:
    """A shared buffer or a slot of one: its first byte, and how to name it."""

    base: int
    name: str
    slots: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name + "".join(f"[{i}]" for i in self.slots)


def value_name(value: SSAValue) -> str:
    """How a value is written in the text, as far as it is known."""
    return f"%{value.name_hint}" if value.name_hint else str(value.type).split(",", 1)[0] + ">" * ("<" in str(value.type))


class Region:
    """Elements of a buffer type: those of `box` (offsets, extents), of them the ones in `mask` (of the box's shape; None: all)."""

    def __init__(self, value: SSAValue, offsets: tuple[int, ...], extents: tuple[int, ...], mask: Array | None = None) -> None:
        layout = tile.shared_layout_of(value)
        self.dtype: DType = storage_dtype(tile.memref_type(value).element_type)
        self.shape, self.mask = extents, mask
        box = offset_table(layout)[tuple(slice(o, o + e) for o, e in zip(offsets, extents, strict=True))]
        self.elements: Array = (box.reshape(-1) if mask is None else box[mask]).astype(np.int64)
        self.buffer_bytes = layout.size * self.dtype.itemsize
        self._whole = self.elements.size == layout.size
        self._places: dict[int, Array] = {}

    def places(self, base: int, grain: int) -> Places:
        """Indices of the grains of a buffer at `base`."""
        if self._whole:
            return slice(base // grain, (base + self.buffer_bytes) // grain)
        if grain not in self._places:
            each = self.dtype.itemsize // grain
            self._places[grain] = (self.elements[:, None] * each + np.arange(each)).reshape(-1)
        return self._places[grain] + base // grain

    def per_element(self, flags: Array, grain: int) -> Array:
        """Flags of `places` as one flag an element, in order of `elements`: whether any of its grains has it."""
        each: Array = flags.reshape(-1, self.dtype.itemsize // grain).max(axis=1)
        return each[self.elements] if self._whole else each

    def spread(self, values: Array) -> Array:
        """Values of the elements as a tile of the box's shape, poison elsewhere."""
        if self.mask is None:
            return values.reshape(self.shape)
        result = poison(self.shape, self.dtype)
        result[self.mask] = values
        return result

    def gather(self, value: Array) -> Array:
        """The opposite of `spread`."""
        return value.reshape(-1) if self.mask is None else value[self.mask]


class SharedPlan:
    """Where a kernel's buffers lie. `grain`: bytes that are never accessed apart."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        allocs = [op for op in kernel.walk() if isinstance(op, tile.AllocOp)]
        self.buffers: dict[Operation, Buffer] = {}
        self.grain = 16
        self.size = 0
        sizes = {op: tile.shared_layout_of(op.result).size * _item_bytes(op) for op in allocs}
        for op in allocs:
            if op.byte_offset is not None:
                self._place(op, int(op.byte_offset.value.data), sizes[op])
        for op in allocs:
            if op.byte_offset is None:
                self._place(op, -(-self.size // _ALIGN) * _ALIGN, sizes[op])

    def _place(self, op: tile.AllocOp, base: int, size: int) -> None:
        if base % _item_bytes(op):
            raise SimulationFault(f"a buffer at byte {base} holds elements of {_item_bytes(op)} bytes")
        self.buffers[op] = Buffer(base, value_name(op.result))
        self.grain = gcd(self.grain, _item_bytes(op), base)
        self.size = max(self.size, base + size)

    def initial(self) -> Array:
        """Bytes without data: poison of each buffer's type, where buffers share bytes the first one's."""
        contents = np.full(self.size, 0xFF, dtype=np.uint8)
        for op, buffer in reversed(self.buffers.items()):
            if isinstance(op, tile.AllocOp):
                count = tile.shared_layout_of(op.result).size
                data = poison((count,), storage_dtype(tile.memref_type(op.result).element_type)).view(np.uint8)
                contents[buffer.base : buffer.base + data.size] = data
        return contents


def _item_bytes(op: tile.AllocOp) -> int:
    return storage_dtype(tile.memref_type(op.result).element_type).itemsize


class SharedMemory:
    """The bytes of one workgroup."""

    def __init__(self, plan: SharedPlan) -> None:
        self.grain = plan.grain
        self._bytes = plan.initial()
        self._full = np.zeros(-(-plan.size // plan.grain), dtype=np.bool_)
        self.shadow = Shadow(self._full.size)

    def places(self, buffer: Buffer, region: Region) -> Places:
        """Indices of a region's grains in `shadow`."""
        return region.places(buffer.base, self.grain)

    def _typed(self, buffer: Buffer, region: Region) -> Array:
        return self._bytes[buffer.base : buffer.base + region.buffer_bytes].view(region.dtype)

    def empty(self, buffer: Buffer, region: Region) -> Array | None:
        """Flags of a region's places that hold no data; None where all do."""
        full = self._full[self.places(buffer, region)]
        return None if full.all() else ~full

    def read(self, buffer: Buffer, region: Region, hidden: Iterable[Array | None]) -> Array:
        """A region's elements as a tile; poison where one of `hidden` flags its places."""
        values = self._typed(buffer, region)[region.elements]
        for flags in hidden:
            if flags is not None:
                lost = region.per_element(flags, self.grain)
                values[lost] = poison((int(lost.sum()),), region.dtype)
        return region.spread(values)

    def write(self, buffer: Buffer, region: Region, value: Array) -> None:
        """Store a tile's elements."""
        self._typed(buffer, region)[region.elements] = region.gather(value)
        self._full[self.places(buffer, region)] = True

    def empty_out(self, buffer: Buffer, region: Region) -> None:
        """A region that is being written: it holds no data until then."""
        self._typed(buffer, region)[region.elements] = poison((region.elements.size,), region.dtype)
        self._full[self.places(buffer, region)] = False


@lru_cache(maxsize=256)
def slot_offset(layout: SharedLayout, indices: tuple[int, ...]) -> int:
    """Elements before the slot at `indices`. Raises SimulationFault where there is none."""
    if any(not 0 <= i < n for i, n in zip(indices, layout.shape, strict=False)):
        raise SimulationFault(f"pipe.slot {list(indices)} of {list(layout.shape[: len(indices)])} slots")
    return layout.offset_of((*indices, *(0,) * (layout.rank - len(indices))))


def whole_region(value: SSAValue) -> Region:
    """All of a buffer."""
    shape = tuple(tile.memref_type(value).get_shape())
    return Region(value, (0,) * len(shape), shape)


class PerMask:
    """Regions of one access, one for each mask an agent may have."""

    def __init__(self, value: SSAValue, offsets: tuple[int, ...], extents: tuple[int, ...]) -> None:
        self._value, self._offsets, self._extents = value, offsets, extents
        self._known: dict[int, tuple[Array | None, Region]] = {}

    def of(self, mask: Array | None) -> Region:
        """The region of the elements in `mask`."""
        if id(mask) not in self._known:
            self._known[id(mask)] = (
                mask,
                Region(self._value, self._offsets, self._extents, mask),
            )  # keeps the mask alive, so that its identity stays its own
        return self._known[id(mask)][1]
