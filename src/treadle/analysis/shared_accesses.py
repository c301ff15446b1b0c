"""Accesses to shared memory: which bytes, in which slots, how; and which pairs of them meet.

The slots of an access are congruences over the values at the point it is looked at from; a data flow rewrites them at the edges of loops
(`SharedAccess.moved`), so that accesses of different iterations can be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from treadle.analysis.buffers import box_in_slot, buffer_view
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.slots import Congruence, same
from treadle.dialects import tile
from treadle.dialects.effects import Effect, HasEffects, Slice
from treadle.ir.core import Operation
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """One access: the buffer with its bytes (`first`, `last` exclusive; None before allocate-shared), the static box in a slot, and how.

    `slots`: indices of the leading dimensions, `slot_extents` as many numbers of slots. `is_elected`: made by one thread for all.
    `holder`: the layout of the register tile it goes to or comes from, where every thread alone holds its elements.
    """

    alloc: Operation
    first: int | None
    last: int
    offsets: tuple[int, ...]
    extents: tuple[int, ...]
    is_write: bool
    is_async: bool
    slots: tuple[Congruence, ...] = ()
    slot_extents: tuple[int, ...] = ()
    is_elected: bool = False
    holder: TileLayout | None = None

    def conflicts(self, other: "SharedAccess") -> bool:
        """Whether both may touch a common byte and one writes it."""
        return (self.is_write or other.is_write) and self.overlaps(other)

    def overlaps(self, other: "SharedAccess") -> bool:
        """Whether both may touch a common byte."""
        if self.alloc is other.alloc:
            return self.meets_slot(other) != "never" and boxes_overlap(self._box, other._box)
        if self.first is None or other.first is None:
            return False
        (first, last), (other_first, other_last) = self._bytes, other._bytes
        return first < other_last and other_first < last

    def may_meet_in_time(self, other: "SharedAccess") -> bool:
        """Whether both may touch a common byte in whatever iterations: slots that loops move are left out of account."""
        return replace(self, slots=(), slot_extents=()).overlaps(other)

    def meets_slot(self, other: "SharedAccess") -> str:
        """Whether both name the same slot of one buffer: "never", "always" or "maybe"; a whole buffer is all its slots."""
        if self.slots == other.slots and all(0 < slot.bound <= slot.modulus for slot in self.slots):
            return "always"
        found = [same(a, b, extent) for a, b, extent in zip(self.slots, other.slots, self.slot_extents, strict=False)]
        if "never" in found:
            return "never"
        return "always" if set(found) <= {"always"} and len(self.slots) == len(other.slots) else "maybe"

    def holds_slot_of(self, other: "SharedAccess") -> bool:
        """Whether the other's slot is this one, or lies within it, whatever its number."""
        count = len(self.slots)
        if self.alloc is not other.alloc or count > len(other.slots):
            return False
        return self.meets_slot(replace(other, slots=other.slots[:count], slot_extents=other.slot_extents[:count])) == "always"

    def keeps_to_threads(self, other: "SharedAccess") -> bool:
        """Whether every thread meets only its own elements in both: the same layout at the same place, nothing held twice."""
        if self.holder is None or self.holder != other.holder or self.alloc is not other.alloc:
            return False
        return self.offsets == other.offsets and self.meets_slot(other) == "always"

    def moved(self, change: Callable[[int, Congruence], Congruence]) -> "SharedAccess":
        """With every slot, given with its dimension, rewritten."""
        if not self.slots:
            return self
        changed = tuple(change(n, slot).within(e) for n, (slot, e) in enumerate(zip(self.slots, self.slot_extents, strict=True)))
        return self if changed == self.slots else replace(self, slots=changed)

    @property
    def _box(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.offsets, self.extents, strict=True))

    @property
    def _bytes(self) -> tuple[int, int]:
        """The bytes of the buffer, or of its slots as far as their numbers are known. Slots are whole and follow one another."""
        first, last = self.first or 0, self.last
        for slot, extent in zip(self.slots, self.slot_extents, strict=True):
            if (number := slot.constant) is None:
                break
            size = (last - first) // extent
            first, last = first + number * size, first + (number + 1) * size
        return first, last


def shared_accesses(op: Operation, values: SlotValues | None = None) -> tuple[SharedAccess, ...]:
    """The accesses of an operation to its workgroup's shared buffers, in issue order; `values` where several operations are looked at."""
    if not isinstance(op, HasEffects):
        return ()
    known = values if values is not None else SlotValues()
    return tuple(access for effect in op.effects() if (access := _access(op, effect, known)) is not None)


def accesses_in_any_slot(op: Operation) -> tuple[SharedAccess, ...]:
    """As `shared_accesses`, of whole buffers: nothing is found out about slots."""
    if not isinstance(op, HasEffects):
        return ()
    return tuple(access for effect in op.effects() if (access := _access(op, effect, None)) is not None)


def is_elected(op: Operation) -> bool:
    """Whether one thread executes an operation for all: bulk copies in both directions, arrivals of the workgroup."""
    return isinstance(op, tile.CopyOutOp | tile.OrderedCounterOp) or (isinstance(op, tile.CopyOp) and op.is_bulk)


def _access(op: Operation, effect: Effect, values: SlotValues | None) -> SharedAccess | None:
    view = buffer_view(effect.resource)
    if view is None or (isinstance(op, tile.LocalLoadOp) and op.peer is not None):
        return None  # another workgroup's memory: barriers of the cluster order it
    alloc = view.alloc
    layout = tile.shared_layout_of(alloc.result)
    shape = tile.memref_type(effect.resource).get_shape()
    box = effect.slice or Slice((0,) * len(shape), shape)
    offsets = tuple(o if isinstance(o, int) else 0 for o in box.offsets)
    extents = tuple(e if isinstance(o, int) else s for o, e, s in zip(box.offsets, box.extents, shape, strict=True))
    offsets, extents = box_in_slot(effect.resource, offsets, extents)
    first = alloc.byte_offset.value.data if alloc.byte_offset is not None else None
    return SharedAccess(
        alloc,
        first,
        (first or 0) + layout.size * element_bytes(tile.memref_type(alloc.result).element_type),
        offsets,
        extents,
        effect.access == "write",
        effect.proxy == "async",
        () if values is None else tuple(values.of(i).within(e) for i, e in zip(view.indices, view.slot_extents, strict=True)),
        () if values is None else view.slot_extents,
        is_elected(op),
        _holder(op),
    )


def _holder(op: Operation) -> TileLayout | None:
    """The layout of the tile of a local access, where no element is held by two threads."""
    match op:
        case tile.LocalLoadOp():
            layout = tile.layout_of(op.result)
        case tile.LocalStoreOp():
            layout = tile.layout_of(op.value)
        case _:
            return None
    if layout is None or any(not any(basis) for basis in (*layout.lane, *layout.warp)):
        return None
    return layout


def boxes_overlap(box: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    """Whether two boxes of one buffer, as (offset, extent) of each dimension, have an element in common.

    Where one is of the whole buffer and the other of a slot of it, the trailing dimensions are compared.
    """
    rank = min(len(box), len(other))
    spans = zip(box[len(box) - rank :], other[len(other) - rank :], strict=True)
    return all(at < other_at + wide and other_at < at + long for (at, long), (other_at, wide) in spans)


def slot_count(alloc: tile.AllocOp, dims: int) -> int:
    """How many slots the leading dimensions of a buffer hold."""
    return prod(tile.shared_layout_of(alloc.result).shape[:dims])
