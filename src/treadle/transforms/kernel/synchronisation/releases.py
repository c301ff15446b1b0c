"""Which slots of rings a walk owes behind which operations, and what must be over before they are handed over."""

from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.synchronisation.in_flight import AccessTable
from treadle.analysis.synchronisation.needs import Start
from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.transforms.kernel.synchronisation.ring_barriers import Owed, Regained, Release


class Releases:
    """The slots owed, by the operation behind which they are; those that are regained, by the wait for them."""

    def __init__(self, owed: Owed) -> None:
        self.behind: dict[Operation, list[Release]] = {}
        self.regained = {one.wait: one for one in owed.regained}
        self._fills: dict[Release | Regained, Start] = {}
        for release in owed.releases:
            self.behind.setdefault(release.after, []).append(release)

    def slot(self, of: Release | Regained, values: SlotValues, table: AccessTable) -> Start:
        """What who gets the slot does: access all of it."""
        if of not in self._fills:
            accesses = tuple(table.number(_all_of(alloc, of, values)) for alloc in of.buffers)
            self._fills[of] = Start(table, accesses, frozenset())
        return self._fills[of]


def _all_of(alloc: tile.AllocOp, of: Release | Regained, values: SlotValues) -> SharedAccess:
    layout = tile.shared_layout_of(alloc.result)
    slots, shape = layout.shape[0], layout.shape[1:]
    slot = values.of(of.barrier.index).within(slots)
    return SharedAccess(alloc, None, 0, (0,) * len(shape), tuple(shape), True, True, (slot,), (slots,))
