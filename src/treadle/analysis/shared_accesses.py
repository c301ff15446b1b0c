"""Accesses to shared memory in flight, and which pairs of them must be ordered: the state of insert-sync's data flow.

The state is a set of accesses that a later conflicting one has to wait for, joined by union. What an access needs before it may start is
a set of `Order`s, from the accesses in flight that conflict with it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import tile
from treadle.dialects.effects import Effect, HasEffects, Slice
from treadle.ir.core import Operation

Order = Literal["barrier", "fence", "queue"]


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """One access: the buffer with its bytes (`first`, `last` exclusive; None before allocate-shared), the static box, and how it is made.

    `in_flight`: issued to a queue and not waited for by its own agent. `fenced`: a write that the async proxy can see.
    """

    alloc: tile.AllocOp
    first: int | None
    last: int
    offsets: tuple[int, ...]
    extents: tuple[int, ...]
    is_write: bool
    is_async: bool
    in_flight: bool = False
    fenced: bool = False

    def conflicts(self, other: "SharedAccess") -> bool:
        """Whether both touch a common byte and one writes it."""
        return (self.is_write or other.is_write) and self.overlaps(other)

    def overlaps(self, other: "SharedAccess") -> bool:
        """Whether both touch a common byte."""
        if self.alloc is other.alloc:
            return boxes_overlap(self.offsets, self.extents, other.offsets, other.extents)
        if self.first is None or other.first is None:
            return False
        return self.first < other.last and other.first < self.last


State = frozenset[SharedAccess]
EMPTY: State = frozenset()


def shared_accesses(op: Operation) -> tuple[SharedAccess, ...]:
    """The accesses of an operation to shared buffers."""
    if not isinstance(op, HasEffects):
        return ()
    return tuple(access for effect in op.effects() if (access := _access(op, effect)) is not None)


def _access(op: Operation, effect: Effect) -> SharedAccess | None:
    alloc = effect.resource.owner
    if not isinstance(alloc, tile.AllocOp):
        return None
    layout = tile.shared_layout_of(alloc.result)
    box = effect.slice or Slice((0,) * layout.rank, layout.shape)
    offsets = tuple(o if isinstance(o, int) else 0 for o in box.offsets)
    extents = tuple(e if isinstance(o, int) else s for o, e, s in zip(box.offsets, box.extents, layout.shape, strict=True))
    first = alloc.byte_offset.value.data if alloc.byte_offset is not None else None
    size = layout.size * element_bytes(tile.memref_type(alloc.result).element_type)
    in_flight = effect.proxy == "async" and isinstance(op, tile.ContractOp)
    return SharedAccess(alloc, first, (first or 0) + size, offsets, extents, effect.access == "write", effect.proxy == "async", in_flight)


def boxes_overlap(offsets: Sequence[int], extents: Sequence[int], other_offsets: Sequence[int], other_extents: Sequence[int]) -> bool:
    """Whether two boxes of one buffer have an element in common."""
    spans = zip(offsets, extents, other_offsets, other_extents, strict=True)
    return all(at < other + wide and other < at + long for at, long, other, wide in spans)


def orders_needed(state: State, accesses: Iterable[SharedAccess]) -> frozenset[Order]:
    """What must happen before `accesses` may start: a wait for the queue, a fence between the proxies, a barrier."""
    needed: set[Order] = set()
    for access in accesses:
        for earlier in state:
            if not earlier.conflicts(access):
                continue
            needed.add("barrier")
            if earlier.in_flight:
                needed.add("queue")
            if earlier.is_write and not earlier.is_async and access.is_async and not earlier.fenced:
                needed.add("fence")
    return frozenset(needed)


def after_queue_wait(state: State) -> State:
    """The queue is drained: its accesses are complete in each agent, other agents do not know it yet."""
    return frozenset(replace(access, in_flight=False) for access in state)


def after_barrier(state: State) -> State:
    """All agents met: only what is in flight remains."""
    return frozenset(access for access in state if access.in_flight)


def has_in_flight(state: State) -> bool:
    """Whether a queue holds unfinished accesses."""
    return any(access.in_flight for access in state)
