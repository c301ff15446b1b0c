"""Which bytes of shared memory hold what was written to a buffer, where buffers share bytes."""

from collections.abc import Callable

from treadle.ir.core import SSAValue
from treadle.verify.clocks import Agent, Restore
from treadle.verify.events import Access
from treadle.verify.geometry import Geometry
from treadle.verify.regions import Buffer, Region, is_covered

Home = Buffer | SSAValue
Overlays = dict[tuple[Agent, Access], None]
"""Own parts of other buffers' regions that were written over a region."""


class Written:
    """Regions that were written, by buffer, with what has been written over them since."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self._regions: dict[Home, dict[Region, Overlays]] = {}
        self._covered: dict[Region, bool] = {}
        """What is covered by several regions where nothing is written over any: that is so until another one is written."""

    def note(self, agent: Agent, access: Access, *, is_sure: bool = True) -> None:
        """A write. One that is not sure to happen only takes away what others wrote to the same bytes through other buffers."""
        region, overlaps = access.region, self.geometry.overlaps
        if not is_sure:
            self._overlay(agent, access)
            return
        written = self._regions.setdefault(region.buffer, {})
        overlays = written.get(region)
        if overlays or overlays is None:
            self._covered.clear()
        if overlays is None:
            for other in [r for r in written if overlaps.within(r, region)]:
                del written[other]
            written[region] = {}
        elif overlays:
            written[region] = {} if access.part is None else {known: None for known in overlays if known[0] is not agent}
        self._overlay(agent, access)

    def _overlay(self, agent: Agent, access: Access) -> None:
        region, overlaps = access.region, self.geometry.overlaps
        for home in self.geometry.neighbours(region.buffer):
            if home is not region.buffer and (others := self._regions.get(home)):
                for other in [r for r in others if overlaps(r, region)]:
                    self._covered.clear()
                    if access.part is None:
                        del others[other]
                    else:
                        others[other][agent, access] = None

    def holds(self, agent: Agent, access: Access) -> bool:
        """Whether all that an access reads was written, and nothing else after it."""
        written = self._regions.get(access.region.buffer)
        if not written:
            return False
        if (overlays := written.get(access.region)) is not None:
            return not overlays or not self._is_lost(agent, access, overlays)
        found = self._covered.get(access.region)
        if found is None:
            found = is_covered(access.region.box, [r.box for r, overlays in written.items() if not self._is_lost(agent, access, overlays)])
            if not any(written.values()):
                self._covered[access.region] = found
        return found

    def _is_lost(self, agent: Agent, access: Access, overlays: Overlays) -> bool:
        return any(writer is agent or self.geometry.parts_meet(writer, over, agent, access) for writer, over in overlays)

    def saved(self) -> Restore:
        """What brings all of it back."""
        kept = {home: {region: dict(overlays) for region, overlays in written.items()} for home, written in self._regions.items()}

        def restore() -> None:
            self._covered.clear()
            self._regions = {home: {region: dict(overlays) for region, overlays in written.items()} for home, written in kept.items()}

        return restore

    def state(self, seen_as: Callable[[Region], object]) -> frozenset[tuple[object, ...]]:
        """All of it, to compare."""
        return frozenset(
            (seen_as(region), *((writer.number, over) for writer, over in overlays))
            for written in self._regions.values()
            for region, overlays in written.items()
        )
