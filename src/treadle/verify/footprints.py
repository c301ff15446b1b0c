"""What memory an operation touches: its effects as regions of buffers and arrays, equal ones shared."""

from collections.abc import Callable

from treadle.dialects import tile
from treadle.dialects.effects import Effect
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.verify.decode import BufferRef, addresses, part_of
from treadle.verify.events import Access
from treadle.verify.program import Program
from treadle.verify.regions import Box, Region

EVERYWHERE = (-(1 << 62), 1 << 62)


class Footprints:
    """The regions of a program so far. `value_of` gives the value of an index in the run at hand."""

    def __init__(self, program: Program, value_of: Callable[[SSAValue], object]) -> None:
        self.program = program
        self._value_of = value_of
        self._regions: dict[object, Region] = {}

    def access(self, op: Operation, effect: Effect, place: object) -> Access:
        """An effect on shared memory at `place`, or on a global array."""
        queue = "mbarrier" if effect.completion == "mbarrier" else effect.queue
        is_local = isinstance(op, tile.LocalLoadOp | tile.LocalStoreOp)
        if is_local and self.program.local_queue:
            queue = self.program.local_queue
        region = self._shared(effect, place) if isinstance(place, BufferRef) else self._global(effect)
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

    def _global(self, effect: Effect) -> Region:
        view = effect.resource.owner
        if not isinstance(view, tile.ViewOp):
            raise InternalError("an access to a global array without a view")
        slice_offsets = effect.slice.offsets if effect.slice is not None else ()
        offsets = [o if isinstance(o, int) else self._value_of(o) for o in slice_offsets]
        is_single = view.pointer in self.program.single_view
        if effect.slice is None or any(not isinstance(o, int) for o in offsets):
            rank = len(tile.memref_type(effect.resource).get_shape())
            box: Box = (EVERYWHERE,) * (rank if is_single else 1)
        else:
            spans = [(o, o + e) for o, e in zip(offsets, effect.slice.extents, strict=True) if isinstance(o, int)]
            box = tuple(spans) if is_single else (addresses(view, spans),)
        key = (view.pointer, box)
        if key not in self._regions:
            self._regions[key] = Region(view.pointer, box)
        return self._regions[key]
