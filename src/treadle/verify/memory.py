"""The accesses that later ones have to be held against, and what has been written."""

from collections.abc import Iterator

from treadle.verify.clocks import Agent, Clock, Components, Record, reached
from treadle.verify.events import Access, Event
from treadle.verify.geometry import Geometry, Home
from treadle.verify.regions import Buffer, Region
from treadle.verify.reports import Reports
from treadle.verify.written import Written

_NONE: dict[Region, list[Record]] = {}


class Memory:
    """Records of a run in one workgroup's memory, by buffer. `name`: what to add to messages where there are several."""

    def __init__(self, geometry: Geometry, components: Components, reports: Reports, name: str = "") -> None:
        self.geometry, self.components, self.reports, self.name = geometry, components, reports, name
        self.overlaps = geometry.overlaps
        self._records: dict[Home, dict[Region, list[Record]]] = {}
        self.written = Written(geometry)

    # --- checks

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """Report everything the access is not ordered after."""
        region, is_write = access.region, access.is_write
        met, _ = self.overlaps.known(region)
        for home in self.geometry.neighbours(region.buffer):
            for other, records in self._records.get(home, _NONE).items():
                if not records:
                    continue
                meets = met.get(other)
                if self.overlaps(region, other) if meets is None else meets:
                    for record in records:
                        if is_write or record.access.is_write:
                            self._compare(record, agent, event, access)
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
        regions = self._records.setdefault(region.buffer, {})
        _, inside = self.overlaps.known(region)
        for other, records in regions.items():
            if not records:
                continue
            is_inside = inside.get(other)
            if self.overlaps.within(other, region) if is_inside is None else is_inside:
                regions[other] = [r for r in records if not _is_superseded(r, record)]
        regions.setdefault(region, []).append(record)
        if access.is_write and isinstance(region.buffer, Buffer):
            self.written.note(record.agent, access)

    def forget_ordered(self, clocks: list[Clock]) -> None:
        """Drop what everybody knows to be over."""
        for regions in self._records.values():
            for region, records in regions.items():
                if records:
                    regions[region] = [r for r in records if not self._is_over(r, clocks)]

    def records(self) -> Iterator[Record]:
        """All that are kept."""
        return (record for regions in self._records.values() for records in regions.values() for record in records)

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
