"""Which slots of rings a walk owes behind which operations, and what must be over before they are handed back."""

from collections.abc import Sequence

from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_values import SlotValues
from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.transforms.kernel.synchronisation.ring_barriers import Release


class Releases:
    """The slots owed, by the operation behind which they are."""

    def __init__(self, releases: Sequence[Release]) -> None:
        self.behind: dict[Operation, list[Release]] = {}
        self._accesses: dict[Release, tuple[SharedAccess, ...]] = {}
        for release in releases:
            self.behind.setdefault(release.after, []).append(release)

    def accesses(self, release: Release, values: SlotValues) -> tuple[SharedAccess, ...]:
        """What the next fill of the slot will do: write all of it."""
        if release not in self._accesses:
            self._accesses[release] = _next_fill(release, values)
        return self._accesses[release]


def _next_fill(release: Release, values: SlotValues) -> tuple[SharedAccess, ...]:
    found: list[SharedAccess] = []
    for alloc in release.buffers:
        layout = tile.shared_layout_of(alloc.result)
        slots, shape = layout.shape[0], layout.shape[1:]
        slot = values.of(release.barrier.index).within(slots)
        found.append(SharedAccess(alloc, None, 0, (0,) * len(shape), tuple(shape), True, True, (slot,), (slots,)))
    return tuple(found)
