"""What memory an operation touches: its effects as regions of buffers and arrays, equal ones shared."""

from treadle.dialects import tile
from treadle.dialects.effects import Effect
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.verify.decode import BufferRef, part_of
from treadle.verify.events import Access
from treadle.verify.program import Program
from treadle.verify.regions import Box, Region


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
