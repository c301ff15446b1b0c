"""What single operations say about themselves: their kind of event, numbers, queues, how threads share an access;
and what memory it touches.
"""

from treadle.dialects import sync, tile
from treadle.dialects.effects import Effect
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.verify.events import Access, Event, Kind
from treadle.verify.program import Program
from treadle.verify.regions import Box, Buffer, Part, Region, element_bytes


class BufferRef:
    """A shared buffer, or the slot of it that `slots` pick; `corner`: first element of the part of it, along the other dimensions."""

    __slots__ = ("buffer", "corner", "slots")

    def __init__(self, buffer: Buffer, slots: tuple[int, ...], corner: tuple[int, ...]) -> None:
        self.buffer, self.slots, self.corner = buffer, slots, corner


class MbarrierRef:
    """Mbarriers `first` to `first + size`."""

    __slots__ = ("first", "size")

    def __init__(self, first: int, size: int) -> None:
        self.first, self.size = first, size


class Turned:
    """What a counter of rings picks: for each of its counts a reference, or a parity."""

    __slots__ = ("counter", "values")

    def __init__(self, counter: int, values: tuple[object, ...]) -> None:
        self.counter, self.values = counter, values


class References:
    """The references of a program so far: equal ones are the same object, so that they are compared and hashed by identity."""

    def __init__(self) -> None:
        self._turned: dict[tuple[int, tuple[object, ...]], Turned] = {}
        self._buffers: dict[tuple[Buffer, tuple[int, ...], tuple[int, ...]], BufferRef] = {}
        self._mbarriers: dict[tuple[int, int], MbarrierRef] = {}

    def buffer(self, buffer: Buffer, slots: tuple[int, ...], corner: tuple[int, ...]) -> BufferRef:
        """The only `BufferRef` with these values."""
        key = (buffer, slots, corner)
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = BufferRef(buffer, slots, corner)
        return found

    def mbarrier(self, first: int, size: int) -> MbarrierRef:
        """The only `MbarrierRef` with these values."""
        found = self._mbarriers.get((first, size))
        if found is None:
            found = self._mbarriers[first, size] = MbarrierRef(first, size)
        return found

    def turned(self, counter: int, values: tuple[object, ...]) -> Turned:
        """The only `Turned` with these values."""
        found = self._turned.get((counter, values))
        if found is None:
            found = self._turned[counter, values] = Turned(counter, values)
        return found


KINDS: dict[str, Kind] = {
    "sync.commit": "commit",
    "sync.wait": "wait",
    "sync.barrier": "barrier",
    "sync.cluster_barrier": "cluster",
    "sync.named_barrier": "named",
    "sync.fence": "fence",
    "sync.arrive": "arrive",
    "sync.mbarrier_alloc": "alloc",
    "sync.mbarrier_expect": "expect",
    "sync.wait_phase": "wait_phase",
}


def number_of(op: Operation) -> int:
    """The number an operation carries: pending groups, warps, bytes."""
    if op.name not in KINDS:  # sooner asked than the class
        return 0
    match op:
        case sync.WaitOp():
            return op.pending.value.data
        case sync.NamedBarrierOp():
            return op.warps.value.data
        case sync.MbarrierExpectOp():
            return op.byte_count.value.data
        case _:
            return 0


def queue_of(op: Operation, group: int) -> str:
    """The queue that an operation names; of a named barrier its number for the executing group, of a fence its proxy; else ""."""
    if op.name not in KINDS:
        return ""
    match op:
        case sync.WaitOp() | sync.CommitOp():
            return op.queue.data
        case sync.NamedBarrierOp():
            return str(op.number(group))
        case sync.FenceOp():
            return op.proxy.data
        case _:
            return ""


def with_flags(event: Event, rank: int) -> Event:
    """The event with what its operation says by flags and lists, where workgroup `rank` of a cluster executes it."""
    if event.op.name not in KINDS and event.op.name not in ("tile.copy", "tile.local_load"):
        return event
    match event.op:
        case sync.WaitOp():
            event.is_read_wait = event.op.read is not None
        case sync.BarrierOp():
            event.is_bare = event.op.bare is not None
            event.groups = None if event.op.groups is None else tile.ints(event.op.groups)
        case sync.NamedBarrierOp():
            event.is_arrive = event.op.arrive is not None
        case tile.CopyOp():
            event.number, event.ranks = copied_bytes(event.op), event.op.multicast_ranks(rank)
        case sync.ArriveOp() | tile.LocalLoadOp():
            event.ranks = event.op.peer_ranks(rank) if isinstance(event.op, sync.ArriveOp) else event.op.peer_ranks()
        case _:
            pass
    return event


def copied_bytes(op: tile.CopyOp) -> int:
    """Bytes that a copy brings."""
    kind = tile.memref_type(op.destination)
    return tile.shared_layout_of(op.destination).size * element_bytes(kind.element_type)


def part_of(op: Operation, effect: Effect, region: Region) -> Part | None:
    """How the threads of a team share an access to shared memory."""
    match op:
        case tile.LocalLoadOp():
            layout = tile.layout_of(op.result)
        case tile.LocalStoreOp():
            layout = tile.layout_of(op.value)
        case tile.CopyOp() if effect.slice is not None and effect.slice.own_part:
            return Part(None, (), (op.path.data, op.destination.type, op.view.type, tile.ints(op.dims), op.view))
        case _:
            return None
    return Part(layout, tuple(low for low, _ in region.box)) if layout is not None else None


class Footprints:
    """The regions of a program so far. Accesses to global arrays are those of their operations: `global_arrays.py` knows where they are."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._regions: dict[object, Region] = {}
        self._arrays: dict[SSAValue, Region] = {}
        self._global: dict[tuple[Operation, Effect], Access] = {}

    def access(self, op: Operation, effect: Effect, place: object) -> Access:
        """An effect on shared memory at `place`, or on a global array."""
        queue = "mbarrier" if effect.completion == "mbarrier" else self.program.queue_name(effect)
        if not isinstance(place, BufferRef):
            return self._of_array(op, effect, queue)
        region, is_local = self._shared(effect, place), effect.queue == "local"
        return Access(region, effect.access == "write", effect.proxy == "async", queue, part_of(op, effect, region), is_local)

    def _shared(self, effect: Effect, place: BufferRef) -> Region:
        buffer, slots, corner = place.buffer, place.slots, place.corner
        if effect.slice is None:
            offsets, extents = corner, tuple(tile.memref_type(effect.resource).get_shape())
        else:
            inner = [o if isinstance(o, int) else 0 for o in effect.slice.offsets]
            offsets, extents = tuple(c + o for c, o in zip(corner, inner, strict=True)), effect.slice.extents
        box: Box = (*((s, s + 1) for s in slots), *((o, o + e) for o, e in zip(offsets, extents, strict=True)))
        key = (buffer, box, slots)
        if key not in self._regions:
            self._regions[key] = Region(buffer, box, slots)
        return self._regions[key]

    def _of_array(self, op: Operation, effect: Effect, queue: str) -> Access:
        found = self._global.get((op, effect))
        if found is None:
            view = effect.resource.owner
            if not isinstance(view, tile.ViewOp):
                raise InternalError("an access to a global array without a view")
            region = self._arrays.setdefault(view.pointer, Region(view.pointer, ()))
            found = Access(region, effect.access == "write", effect.proxy == "async", queue, None, False, effect)
            self._global[op, effect] = found
        return found
