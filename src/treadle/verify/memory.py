"""The accesses that later ones have to be held against, and what has been written."""

from collections.abc import Iterator

from treadle.verify.clocks import Agent, Clock, Components, Record, Restore, reached
from treadle.verify.events import Access, Event
from treadle.verify.geometry import Geometry, Home
from treadle.verify.orders import is_fenced, is_ordered, needs_fence, not_over
from treadle.verify.regions import Buffer, Region
from treadle.verify.reports import Reports
from treadle.verify.written import Written


class _Place:
    """A region that was accessed: its records, the regions that share a byte with it, and those of the same buffer that lie within it."""

    __slots__ = ("inside", "near", "records", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.records: list[Record] = []
        self.near = [self]
        self.inside = [self]


class Memory:
    """Records of a run in one workgroup's memory, by buffer. `name`: what to add to messages where there are several."""

    def __init__(self, geometry: Geometry, components: Components, reports: Reports, name: str = "") -> None:
        self.geometry, self.components, self.reports, self.name = geometry, components, reports, name
        self.overlaps = geometry.overlaps
        self._places: dict[Region, _Place] = {}
        self._homes: dict[Home, list[_Place]] = {}
        self.written = Written(geometry)

    # --- checks

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """Report everything the access is not ordered after."""
        region = access.region
        for place in self._place(region).near:
            if place.records:
                self._compare_all(place.records, agent, event, access)
        if not access.is_write and isinstance(region.buffer, Buffer) and not self.written.holds(agent, access):
            place = self.reports.place(agent, event)
            self.reports.report(
                "V8",
                f"{event.op.name} reads {region.describe()}{self.name}, which nothing has written before",
                agent,
                event,
                memory=region.describe(),
                missing="a write of these bytes before the read",
                steps=(place.describe() + ": reads what is not there",),
            )

    def _compare_all(self, records: list[Record], agent: Agent, event: Event, access: Access) -> None:
        """Compare what is not simply over: most is."""
        known, is_write, is_async = agent.clock.get, access.is_write, access.is_async
        for record in records:
            earlier = record.access
            if not (is_write or earlier.is_write):
                continue
            is_over = known(record.component, 0) >= record.value
            if not is_over or (is_async and earlier.is_write and not earlier.is_async):
                self._compare(record, agent, event, access)

    def _compare(self, record: Record, agent: Agent, event: Event, access: Access) -> None:
        ordered = is_ordered(record, agent, access)
        if ordered and not (access.is_async and needs_fence(record.access) and not is_fenced(self.components, record, agent.clock)):
            return
        # Asked last: comparing bytes takes longer than comparing clocks.
        if record.agent is not agent and not self.geometry.parts_meet(record.agent, record.access, agent, access):
            return
        from treadle.verify.races import report_fence, report_race  # right programs have none

        if ordered:
            report_fence(self.reports, record, agent, event, access, of=self.name)
        else:
            report_race(self.reports, record, agent, event, access, of=self.name)

    # --- records

    def add(self, record: Record) -> None:
        """Keep an access; those that it makes superfluous go."""
        access = record.access
        region = access.region
        place = self._place(region)
        is_sure = not record.event.is_perhaps
        for other in place.inside if is_sure else ():
            if other.records:
                _drop_superseded(other.records, record)
        place.records.append(record)
        if access.is_write and isinstance(region.buffer, Buffer):
            self.written.note(record.agent, access, is_sure=is_sure)

    def _place(self, region: Region) -> _Place:
        """The place of a region, among those of its buffer and of others that share bytes with it."""
        return self._places.get(region) or self._new_place(region)

    def _new_place(self, region: Region) -> _Place:
        found = self._places[region] = _Place(region)
        for home in self.geometry.neighbours(region.buffer):
            for other in self._homes.get(home, ()):
                if not self.overlaps(region, other.region):
                    continue
                found.near.append(other)
                other.near.append(found)
                if home is not region.buffer:
                    continue
                if self.overlaps.within(other.region, region):
                    found.inside.append(other)
                if self.overlaps.within(region, other.region):
                    other.inside.append(found)
        self._homes.setdefault(region.buffer, []).append(found)
        return found

    def forget_ordered(self, known: Clock) -> None:
        """Drop what is over, as everybody knows."""
        fences = self.geometry.has_async_machine
        for place in self._places.values():
            if place.records:
                place.records = not_over(self.components, place.records, known, fences=fences)

    def saved(self) -> Restore:
        """What brings back all that is kept."""
        kept = [(place, list(place.records), [record.done for record in place.records]) for place in self._places.values() if place.records]
        written = self.written.saved()

        def restore() -> None:
            for place in self._places.values():
                place.records = []
            for place, records, all_done in kept:
                place.records = list(records)
                for record, done in zip(records, all_done, strict=True):
                    record.done = done
            written()

        return restore

    def records(self) -> Iterator[Record]:
        """All that are kept."""
        return (record for place in self._places.values() for record in place.records)

    def unfinished(self, known: Clock) -> list[Record]:
        """Accesses to shared memory that may go on when the workgroup ends: asynchronous ones, and those of other workgroups."""
        return [
            r
            for r in self.records()
            if isinstance(r.access.region.buffer, Buffer)
            and (r.event.ranks or (r.access.queue and not r.access.in_local_order))
            and not reached(known, r.component, r.value)
        ]


def _drop_superseded(records: list[Record], new: Record) -> None:
    """Drop those of `records`, in order, that `new` makes superfluous; mostly none or one."""
    agent, access = new.agent, new.access
    of_all = access.is_write and access.part is None  # else only those of the same agent can be
    for at in range(len(records) - 1, -1, -1):
        old = records[at]
        if (of_all or old.agent is agent) and _is_superseded(old, new):
            del records[at]


def _is_superseded(old: Record, new: Record) -> bool:
    """Whether everything that has to come after `old` has to come after `new` too, which holds its region and itself comes after `old`."""
    same_agent = old.agent is new.agent
    one, other = old.access, new.access
    if not (same_agent and one is other):
        if other.is_write:
            if other.part is not None and not (same_agent and one.part == other.part):
                return False
        elif one.is_write or not same_agent or one.part != other.part:
            return False
    return is_ordered(old, new.agent, other)
