"""Global arrays while a run goes on: whether what may meet is ordered. Workgroups of a cluster share them; no run holds any others."""

from collections.abc import Iterator
from itertools import count

from treadle.dialects import pipe, tile
from treadle.dialects.agents import roles_of
from treadle.ir.core import Operation, Region, SSAValue
from treadle.verify.arrivals import Tracked
from treadle.verify.clocks import Agent, Clock, Components, Record, Restore, Vector, is_fenced, is_ordered, needs_fence, not_over, vector_of
from treadle.verify.events import Access, Event
from treadle.verify.findings import Finding, Place
from treadle.verify.global_accesses import GlobalAccess
from treadle.verify.global_arrays import Distance, Kind, Meeting
from treadle.verify.hand_overs import HandOvers
from treadle.verify.memory import Untracked
from treadle.verify.program import Program
from treadle.verify.races import report_fence, report_race
from treadle.verify.reports import Reports
from treadle.verify.stores_apart import ASSUMED


class GlobalMemory(Untracked):
    """The accesses of a run to tracked arrays that later ones have to be held against."""

    is_used = True

    def __init__(self, program: Program, tracked: Tracked, agents: list[Agent], components: Components, reports: Reports) -> None:
        arrays = tracked.arrays
        self.arrivals, self.hand_overs = tracked.arrivals, HandOvers(tracked.arrivals, reports)
        self.arrays, self.agents, self.components, self.reports = arrays, agents, components, reports
        self._records: dict[SSAValue, list[Record]] = {pointer: [] for pointer in program.tracked_pointers}
        self._last: dict[int, tuple[GlobalAccess, Vector]] = {}
        self._kinds: tuple[Kind, ...] = ("strand", "team", "workgroup", *(("cluster",) if program.cluster > 1 else ()))
        self._traces = _traces(program)
        self._only_written = program.only_written
        self._has_async = {access.pointer for access in arrays.read() if isinstance(access.op, tile.CopyOp | tile.CopyOutOp)}
        self._known_partners: dict[GlobalAccess, tuple[tuple[GlobalAccess, Meeting], ...]] = {}

    # --- checks

    def arrive(self, agent: Agent, event: Event, now: int) -> None:
        """An agent may arrive at a counter."""
        self.hand_overs.arrive(agent, event, now)

    def check_grid(self) -> None:
        """Accesses of workgroups that nothing orders: those of different clusters, unless they arrive at a counter. Runs look at those of
        one cluster.
        """
        self.hand_overs.check_counts()
        for one, other in self.arrays.pairs():
            if "cluster" in self._kinds and self.arrays.meeting(one, other, "cluster") is not None:
                self.arrivals.orders(one, other)  # a run that asks for it then knows from its start what arrivals have to hand on
            met = self.arrays.meeting(one, other, "grid")
            if met is None or self.arrivals.orders(one, other):
                continue
            witness = self.arrays.witness(one, other, "grid")
            if witness is None:
                why = self.arrivals.doubt(one, other) or met.doubt
                self._leave_open(other, f"{one.op.name} of another workgroup may touch the same elements: {why}")
            else:
                self.reports.keep(_of_two_workgroups(one, other, witness))
        self.hand_overs.check_orders()

    def _leave_open(self, access: GlobalAccess, reason: str) -> None:
        """Say that something is not known; of an array that is only written it is assumed to be right."""
        if access.pointer in self._only_written:
            self.arrays.assumed[access.op] = ASSUMED
        else:
            self.reports.undecide(access.op, reason)

    def check(self, agent: Agent, event: Event, access: Access) -> None:
        """Report everything the access is not ordered after."""
        static, vector = self.arrays.of(event.op, access.effect), vector_of(agent)
        self.hand_overs.check(agent, event, access)
        for record in self._records[static.pointer]:
            earlier = record.access
            if not self._static(record).conflicts(static) or self.arrivals.count_both(record.event.op, event.op):
                continue
            ordered = is_ordered(record, agent, access)
            if ordered and not (access.is_async and needs_fence(earlier) and not is_fenced(self.components, record, agent.clock)):
                continue
            if record.agent is agent and _repeats(record.event.op) and _repeats(event.op):
                continue
            kind = kind_of(record.agent, agent)
            met = self.arrays.meeting(self._static(record), static, kind)
            if met is not None and not (kind == "cluster" and self.arrivals.orders(self._static(record), static)):
                self._compare(record, agent, event, access, met, kind, _distance(met, record.vector, vector), ordered)

    def _compare(
        self, record: Record, agent: Agent, event: Event, access: Access, met: Meeting, kind: Kind, distance: Distance, ordered: bool
    ) -> None:
        one, other = self._static(record), self.arrays.of(event.op, access.effect)
        if not met.holds(distance):
            return
        shown = tuple(None if span is None else d for span, d in zip(met.spans, distance, strict=True))
        inner = _alone(one, other, vector_of(agent))
        if (met.is_bounded or inner) and not self.arrays.meets_at(one, other, kind, shown, inner):
            return
        witness = self.arrays.witness(one, other, kind, distance)
        if witness is None:
            missing = "a fence" if ordered else "an order"
            why = met.doubt or "they meet in other iterations than those of the run"
            self._leave_open(other, f"it may need {missing} after {record.event.op.name} of another iteration or agent: {why}")
        elif ordered:
            report_fence(self.reports, record, agent, event, access, witness=tuple(witness))
        else:
            report_race(self.reports, record, agent, event, access, witness=tuple(witness))

    # --- records

    def add(self, record: Record) -> None:
        """Keep an access, where others may meet it; those that it makes superfluous go."""
        static = self._static(record)
        record.vector = vector_of(record.agent)
        self.hand_overs.note(record)
        self._last[record.agent.number] = (static, record.vector)
        if not self._partners(static):
            return
        records = self._records[static.pointer]
        self._records[static.pointer] = [old for old in records if not self._is_superfluous(old, record)]
        self._records[static.pointer].append(record)

    def _static(self, record: Record) -> GlobalAccess:
        return self.arrays.of(record.event.op, record.access.effect)

    def _partners(self, static: GlobalAccess) -> tuple[tuple[GlobalAccess, Meeting], ...]:
        """What may meet an access out of order: by other agents; by its own where one of the two is asynchronous."""
        found = self._known_partners.get(static)
        if found is None:
            kinds = self._kinds if static.pointer in self._has_async else self._kinds[1:]
            found = self._known_partners[static] = self.arrays.partners(static, kinds)
        return found

    def _is_superfluous(self, old: Record, new: Record) -> bool:
        """Whether what has to come after `old` has to come after `new`, by the same agent and operation, or is past."""
        if old.agent is not new.agent or old.access is not new.access or not is_ordered(old, new.agent, new.access):
            return False
        if old.vector == new.vector:
            return True
        return all(not met.is_bounded or self._is_past(old, other, met) for other, met in self._partners(self._static(old)))

    def _is_past(self, record: Record, other: GlobalAccess, met: Meeting) -> bool:
        """Whether nobody will execute `other` at a distance at which it meets the record."""
        return all(self._has_passed(agent, record, other, met) for agent in self.agents if self._may_execute(agent, other))

    def _may_execute(self, agent: Agent, access: GlobalAccess) -> bool:
        strand = agent.strand
        return strand.trace < 0 if access.role is None else (strand.roles, strand.trace) in self._traces[access.role]

    def _has_passed(self, agent: Agent, record: Record, other: GlobalAccess, met: Meeting) -> bool:
        if agent.number not in self._last:
            return False
        last, vector = self._last[agent.number]
        for level, span in enumerate(met.spans):
            if span is None or level >= len(last.loops) or last.loops[level] is not other.loops[level]:
                return False
            ahead = vector[level] - record.vector[level]
            if ahead != span[1]:
                return ahead > span[1]
        return False

    def forget_ordered(self, known: Clock) -> None:
        """Drop what is over, as everybody knows."""
        for pointer, records in self._records.items():
            fences = pointer in self._has_async
            self._records[pointer] = not_over(self.components, records, known, fences=fences)

    def saved(self) -> Restore:
        """What brings back all that is kept."""
        kept = {pointer: list(records) for pointer, records in self._records.items()}
        marks = [(record, record.done, record.vector) for records in kept.values() for record in records]
        last, handed_over = dict(self._last), self.hand_overs.saved()

        def restore() -> None:
            handed_over()
            self._records = {pointer: list(records) for pointer, records in kept.items()}
            for record, done, vector in marks:
                record.done, record.vector = done, vector
            self._last = dict(last)

        return restore

    def records(self) -> Iterator[Record]:
        """All that are kept."""
        return (record for records in self._records.values() for record in records)

    # --- repetition

    def age(self, record: Record) -> tuple[object, ...]:
        """By how many iterations each agent that may still meet a record is ahead of it."""
        static = self._static(record)
        partners = self._partners(static)
        found: list[object] = []
        for agent in self.agents:  # whom a record from before a loop meets there depends on the iteration, as long as it is kept
            if any(len(other.loops) > len(static.loops) and self._may_execute(agent, other) for other, _ in partners):
                found.append((agent.number, vector_of(agent)))
        if not any(met.is_bounded for _, met in partners):
            return tuple(found)
        farthest = self.arrays.farthest + 1
        for agent in self.agents:
            if (last := self._last.get(agent.number)) is not None:
                ahead = tuple(min(now - then, farthest) for now, then in zip(last[1], record.vector, strict=False))
                found.append((agent.number, last[0].index, ahead))
        return tuple(found)

    def leave_out(self, agent: Agent, depth: int, iterations: int) -> None:
        """An agent's frame at a depth goes on by so many iterations as if they had been run."""
        level = sum(1 for frame in agent.frames[:depth] if frame.loop >= 0)
        now = vector_of(agent)

        def moved(vector: Vector) -> Vector:
            if len(vector) <= level or vector[:level] != now[:level]:
                return vector
            return (*vector[:level], vector[level] + iterations, *vector[level + 1 :])

        for record in self.records():
            if record.agent is agent:
                record.vector = moved(record.vector)
        if agent.number in self._last:
            last, vector = self._last[agent.number]
            self._last[agent.number] = (last, moved(vector))


def kind_of(one: Agent, other: Agent) -> Kind:
    """What two agents of a cluster are to each other."""
    if one is other:
        return "strand"
    if one.strand.rank != other.strand.rank:
        return "cluster"
    return "team" if one.strand.team == other.strand.team else "workgroup"


def _alone(one: GlobalAccess, other: GlobalAccess, now: Vector) -> Vector:
    """The iterations of loops that began after the first access, which it knows nothing of; none where it is in loops of its own, too."""
    outer = len(one.loops)
    is_inside = other.loops[:outer] == one.loops and one.role is other.role
    return now[outer : len(other.loops)] if is_inside else ()


def _distance(met: Meeting, before: Vector, now: Vector) -> Distance:
    return tuple(now[level] - before[level] for level in range(len(met.spans)))


def _traces(program: Program) -> dict[Region, list[tuple[int, int]]]:
    """By which strands each role is run: the number of `pipe.roles`, and the trace."""
    found: dict[Region, list[tuple[int, int]]] = {}
    for op in program.all(pipe.RolesOp):
        traces = count()
        for role in roles_of(op):
            found[role.region] = [(program.index[op], next(traces)) for _ in range(role.groups)]
    return found


def _repeats(op: Operation) -> bool:
    return isinstance(op, tile.CopyOutOp) and op.repeats is not None


def _of_two_workgroups(one: GlobalAccess, other: GlobalAccess, witness: list[str]) -> Finding:
    verb = "overwrites" if other.is_write else "reads"
    does = "writes" if one.is_write else "reads"
    where = f"%{one.pointer.name_hint or 'array'} (global)"
    return Finding(
        "V3",
        f"{other.op.name} {verb} elements of {where} that {one.op.name} of another workgroup {does}; nothing orders the two",
        Place(other.op, other.index, "a workgroup"),
        Place(one.op, one.index, "another workgroup"),
        where,
        "an order between workgroups: none is there within a launch, so each element has to be one workgroup's alone",
        tuple(witness),
    )
