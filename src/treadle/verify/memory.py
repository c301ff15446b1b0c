"""The accesses that later ones have to be held against, what has been written, and what accesses have in common: bytes, elements of one
warp.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.verify.clocks import Agent, Clock, Components, Record, Restore, is_fenced, is_ordered, needs_fence, not_over, reached
from treadle.verify.events import Access, Event
from treadle.verify.program import Program
from treadle.verify.regions import Buffer, Overlaps, Owners, Region, Warps, box_within, boxes_meet, is_covered
from treadle.verify.reports import Reports

if TYPE_CHECKING:
    from treadle.verify.arrivals import Tracked


Home = Buffer | SSAValue


class Geometry:
    """The geometry of a program's buffers and accesses. `tracked`: its global arrays that are held against one another, if it has any."""

    def __init__(self, program: Program) -> None:
        self.tracked: Tracked | None = None
        if program.tracked_pointers:
            from treadle.verify import arrivals

            self.tracked = arrivals.Tracked(program)
        self.overlaps = Overlaps()
        self.owners = Owners()
        buffers = list(program.buffers.values())
        self._neighbours: dict[Home, tuple[Home, ...]] = {
            one: tuple(other for other in buffers if one is other or _share_bytes(one, other)) for one in buffers
        }
        self._team_warps: dict[int, int] = {}
        for strand in program.strands:
            self._team_warps[strand.team] = self._team_warps.get(strand.team, 0) + strand.warps
        self._group_warps = {
            (strand.team, strand.group): sum(s.warps for s in program.strands if (s.team, s.group) == (strand.team, strand.group))
            for strand in program.strands
        }
        self._met: dict[tuple[int, Access, Access, Warps | None], bool] = {}
        self.has_async_machine = program.spec.async_matrix or program.spec.bulk_tensor is not None

    def neighbours(self, home: Home) -> tuple[Home, ...]:
        """A buffer and those that share bytes with it."""
        return self._neighbours.get(home, (home,))

    def parts_meet(self, earlier: Agent, before: Access, agent: Agent, access: Access) -> bool:
        """Whether accesses of two strands with a byte in common may be of different warps that both touch it."""
        one, other = before.part, access.part
        if one is None or other is None or earlier.strand.team != agent.strand.team:
            return True
        between = self._between(earlier, agent)
        key = agent.strand.team, before, access, between
        found = self._met.get(key)
        if found is None:
            warps = self._team_warps[agent.strand.team]
            # Who holds what is not the layout's to say where it is one of another number of warps.
            found = self._met[key] = any(
                part.layout is not None and part.layout.num_warps != warps for part in (one, other)
            ) or self.owners.meet(before.region, one, before.is_write, access.region, other, access.is_write, between)
        return found

    def _between(self, earlier: Agent, agent: Agent) -> Warps | None:
        """The warps that two strands of a team stand for; None where each stands for all. Groups have an even share each, in order."""
        team = agent.strand.team
        if self._group_warps[team, agent.strand.group] == self._team_warps[team]:
            return None
        found: list[range] = []
        for strand in (earlier.strand, agent.strand):
            each = self._group_warps[team, strand.group]
            found.append(range(strand.group * each, (strand.group + 1) * each))
        return found[0], found[1]


def _share_bytes(one: Buffer, other: Buffer) -> bool:
    if one.first is None or other.first is None:
        return False
    return one.first < other.first + other.size and other.first < one.first + one.size


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
            there = [r.box for r, overlays in written.items() if not overlays or not self._is_lost(agent, access, overlays)]
            found = is_covered(access.region.box, there)
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
        self._homes: dict[Home, dict[tuple[int, ...], list[_Place]]] = {}
        self.written = Written(geometry)

    # --- checks

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """Report everything the access is not ordered after."""
        region = access.region
        for place in (self._places.get(region) or self._new_place(region)).near:
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
        place = self._places.get(region) or self._new_place(region)
        is_sure = not record.event.is_perhaps
        for other in place.inside if is_sure else ():
            if other.records:
                _drop_superseded(other.records, record)
        place.records.append(record)
        if access.is_write and isinstance(region.buffer, Buffer):
            self.written.note(record.agent, access, is_sure=is_sure)

    def _new_place(self, region: Region) -> _Place:
        """The place of a region, among those of its buffer and of others that share bytes with it."""
        found = self._places[region] = _Place(region)
        for home in self.geometry.neighbours(region.buffer):
            if home is region.buffer:
                self._join_own(found)
                continue
            for other in [place for places in self._homes.get(home, {}).values() for place in places]:
                if self.overlaps(region, other.region):
                    found.near.append(other)
                    other.near.append(found)
        self._homes.setdefault(region.buffer, {}).setdefault(region.slots, []).append(found)
        return found

    def _join_own(self, found: _Place) -> None:
        """Join the places of the same buffer; those of other slots have nothing in common. Each two are looked at once."""
        region, box = found.region, found.region.box
        for slots, places in self._homes.get(region.buffer, {}).items():
            if slots != region.slots and len(slots) == len(region.slots):
                continue
            for other in places:
                beside = other.region.box
                if len(box) == len(beside) and not boxes_meet(box, beside):
                    continue
                found.near.append(other)
                other.near.append(found)
                if box_within(beside, box):
                    found.inside.append(other)
                if box_within(box, beside):
                    other.inside.append(found)

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


class Untracked:
    """What a run does with global arrays. `is_used`: whether any are tracked (`global_memory.py`)."""

    is_used = False

    def check_grid(self) -> None:
        """Report accesses of workgroups that nothing orders."""

    def arrive(self, agent: Agent, event: Event, now: int) -> None:
        """An agent may arrive at a counter."""

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """Report everything the access is not ordered after."""
        raise InternalError(f"{event.op.name}: an access to an array that is not tracked", event.op)

    def add(self, record: Record) -> None:
        """Keep an access."""
        raise InternalError(f"{record.event.op.name}: an access to an array that is not tracked", record.event.op)

    def forget_ordered(self, known: Clock) -> None:
        """Drop what is over, as everybody knows."""

    def saved(self) -> Restore:
        """What brings back all that is kept."""
        return lambda: None

    def records(self) -> Iterator[Record]:
        """All that are kept."""
        return iter(())

    def age(self, record: Record) -> tuple[object, ...]:
        """By how many iterations each agent that may still meet a record is ahead of it."""
        return ()

    def leave_out(self, agent: Agent, depth: int, iterations: int) -> None:
        """An agent's frame at a depth goes on by so many iterations as if they had been run."""
