"""The accesses that later ones have to be held against, and what has been written."""

from collections.abc import Iterator

from treadle.verify.clocks import Agent, Clock, Components, Record, reached
from treadle.verify.events import Access, Event
from treadle.verify.geometry import Geometry, Home
from treadle.verify.regions import Buffer, Region
from treadle.verify.reports import Reports
from treadle.verify.written import Written


class _Place:
    """A region that was accessed: the records of it, and the regions of the same buffer that share a byte with it, or lie within it."""

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
        for home in self.geometry.neighbours(region.buffer):
            for place in self._homes.get(home, ()) if home is not region.buffer else ():
                if place.records and self.overlaps(region, place.region):
                    self._compare_all(place.records, agent, event, access)
        if isinstance(region.buffer, Buffer) and not access.is_write and not self.written.holds(agent, access):
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
        clock, size, is_write, is_async = agent.clock, len(agent.clock), access.is_write, access.is_async
        for record in records:
            earlier = record.access
            if not (is_write or earlier.is_write):
                continue
            is_over = record.component < size and clock[record.component] >= record.value
            if not is_over or (is_async and earlier.is_write and not earlier.is_async):
                self._compare(record, agent, event, access)

    def _compare(self, record: Record, agent: Agent, event: Event, access: Access) -> None:
        ordered = is_ordered(record, agent, access)
        if ordered and not (access.is_async and needs_fence(record.access) and not is_fenced(self.components, record, agent.clock)):
            return
        # Asked last: comparing bytes takes longer than comparing clocks.
        if record.agent is not agent and not self.geometry.parts_meet(record.agent, record.access, agent, access):
            return
        if ordered:
            self._report_fence(record, agent, event, access)
        else:
            self._report_race(record, agent, event, access)

    def _report_race(self, record: Record, agent: Agent, event: Event, access: Access) -> None:
        first, second = self.reports.place(record.agent, record.event, record.iteration), self.reports.place(agent, event)
        earlier = record.access
        in_flight = bool(earlier.queue) and not reached(record.agent.clock, record.component, record.value)
        rule = "V3" if not in_flight or earlier.in_local_order else "V2" if access.is_write else "V1"
        where = access.region.describe() + self.name
        verb = "overwrites" if access.is_write else "reads"
        does = "write" if earlier.is_write else "read"
        by = "" if record.agent is agent else " of another agent"
        message = f"{event.op.name} {verb} {where} while {record.event.op.name}{by} may still {does} it"
        if in_flight and earlier.in_local_order:
            missing = f'a barrier that is not bare (it flushes "{earlier.queue}") after the first, before the second'
        elif in_flight and earlier.queue != "mbarrier":
            missing = f'a wait of "{earlier.queue}" by {record.agent.strand.name} that retires the first'
            missing += ", before the second" if record.agent is agent else ", then a barrier or arrival that the second follows"
        elif earlier.queue == "mbarrier":
            missing = f"a wait of {agent.strand.name} for the phase that the first completes, before the second"
        else:
            missing = f"a barrier or arrival of {record.agent.strand.name} after the first, which {agent.strand.name} waits for"
        steps = [first.describe() + f": starts to {does} {earlier.region.describe()}"]
        if agent.last_sync is not None:
            steps.append(f"{self.reports.place(agent, agent.last_sync).describe()}: passed, which says nothing about step 1")
        steps.append(second.describe() + f": {verb} {where} while step 1 is under way")
        self.reports.report(rule, message, agent, event, first=first, memory=where, missing=missing, steps=tuple(steps))

    def _report_fence(self, record: Record, agent: Agent, event: Event, access: Access) -> None:
        first, second = self.reports.place(record.agent, record.event, record.iteration), self.reports.place(agent, event)
        where = access.region.describe() + self.name
        self.reports.report(
            "V4",
            f"{event.op.name} accesses {where} through the async proxy, which may not see what {record.event.op.name} wrote",
            agent,
            event,
            first=first,
            memory=where,
            missing=f'sync.fence "async_shared" by {record.agent.strand.name} after the first, ordered before the second',
            steps=(
                first.describe() + ": writes through the generic proxy",
                second.describe() + ": goes past the generic proxy and finds the old bytes",
            ),
        )

    # --- records

    def add(self, record: Record) -> None:
        """Keep an access; those that it makes superfluous go."""
        access = record.access
        region = access.region
        place = self._place(region)
        is_sure = not record.event.is_perhaps
        for other in place.inside if is_sure else ():
            if other.records:
                other.records = [r for r in other.records if not _is_superseded(r, record)]
        place.records.append(record)
        if access.is_write and isinstance(region.buffer, Buffer):
            self.written.note(record.agent, access, is_sure=is_sure)

    def _place(self, region: Region) -> _Place:
        """The place of a region, among those of its buffer."""
        found = self._places.get(region)
        if found is None:
            found = self._places[region] = _Place(region)
            others = self._homes.setdefault(region.buffer, [])
            for other in others:
                if self.overlaps(region, other.region):
                    found.near.append(other)
                    other.near.append(found)
                if self.overlaps.within(other.region, region):
                    found.inside.append(other)
                if self.overlaps.within(region, other.region):
                    other.inside.append(found)
            others.append(found)
        return found

    def forget_ordered(self, clocks: list[Clock]) -> None:
        """Drop what everybody knows to be over."""
        for place in self._places.values():
            if place.records:
                place.records = [r for r in place.records if not self._is_over(r, clocks)]

    def records(self) -> Iterator[Record]:
        """All that are kept."""
        return (record for place in self._places.values() for record in place.records)

    def _is_over(self, record: Record, clocks: list[Clock]) -> bool:
        component, value = record.component, record.value
        for clock in clocks:
            if component >= len(clock) or clock[component] < value:
                return False
        if self.geometry.has_async_machine and needs_fence(record.access):
            return all(is_fenced(self.components, record, clock) for clock in clocks)
        return True

    def unfinished(self, known: Clock) -> list[Record]:
        """Asynchronous accesses to shared memory that are not known to be over."""
        return [
            r
            for r in self.records()
            if isinstance(r.access.region.buffer, Buffer)
            and r.access.queue
            and not r.access.in_local_order
            and not reached(known, r.component, r.value)
        ]


def is_ordered(record: Record, agent: Agent, access: Access) -> bool:
    """Whether a record happened before an access that the agent makes now."""
    if record.agent is agent and (not record.access.queue or (record.access.in_local_order and access.in_local_order)):
        return True
    return reached(agent.clock, record.component, record.value)


def needs_fence(access: Access) -> bool:
    """Whether the async proxy sees what an access did only after a fence."""
    return access.is_write and not access.is_async


def fence_token(components: Components, record: Record) -> tuple[int, int] | None:
    """What says that the writer fenced a generic write after it was done; None where it does not know yet that it is done."""
    if record.done < 0:
        retired = record.agent.retired.get(record.access.queue, ())
        record.done = next((time for count, time in retired if count >= record.value), -1)
        if record.done < 0:
            return None
    return components.fence(record.agent.number), record.done


def is_fenced(components: Components, record: Record, clock: Clock) -> bool:
    """Whether the writer fenced a generic write after it was done, and whoever has the clock knows."""
    token = fence_token(components, record)
    return token is not None and reached(clock, *token)


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
