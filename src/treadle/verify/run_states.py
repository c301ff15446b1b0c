"""The state of a run, in numbers that do not grow with time: who knows what about every access in flight, phases, meetings."""

from typing import TYPE_CHECKING

from treadle.verify.clocks import Agent, Clock, Components, Record, fence_token, needs_fence
from treadle.verify.program import Program
from treadle.verify.regions import Region
from treadle.verify.workgroups import Barriers, Cluster

if TYPE_CHECKING:
    from treadle.verify.ring_frames import RingFrames

State = tuple[object, ...]
OLDEST_PHASE = 3  # older phases are known to whoever knows any that may still be learnt of


class _Knowledge:
    """What a number of clocks know of tokens. The first `agents` of them are those of agents."""

    def __init__(self, clocks: list[Clock], agents: int) -> None:
        self._agents, self._clocks = agents, clocks
        self._columns: dict[int, list[int]] = {}
        self._least: dict[int, int] = {}
        self._known: dict[tuple[int, int], tuple[bool, ...]] = {}
        self._known_of_agents: dict[tuple[int, int], tuple[bool, ...]] = {}

    def _column(self, component: int) -> list[int]:
        found = self._columns.get(component)
        if found is None:
            found = self._columns[component] = [clock.get(component, 0) for clock in self._clocks]
        return found

    def of_agents(self, component: int, value: int) -> tuple[bool, ...]:
        """Which clocks know a token that only agents are asked about; empty where all of these know it, who then can learn no more."""
        found = self._known_of_agents.get((component, value))
        if found is None:
            least = self._least.get(component)
            if least is None:
                least = self._least[component] = min(self._column(component)[: self._agents])
            found = self._known_of_agents[component, value] = () if value <= least else self.of(component, value)
        return found

    def of(self, component: int, value: int) -> tuple[bool, ...]:
        """Which clocks know a token."""
        found = self._known.get((component, value))
        if found is None:
            found = self._known[component, value] = tuple([known >= value for known in self._column(component)])
        return found

    def lags(self, component: int, now: int) -> tuple[int, ...]:
        """How far the clocks are behind `now` in a component, two or more alike: who is two behind is overtaken wherever it waits.

        Other clocks than those of agents are only ever joined to these, so what every agent knows counts as known.
        """
        column = self._column(component)
        least = min(column[: self._agents])
        return tuple([lag if (lag := now - (known if known > least else least)) < 2 else 2 for known in column])


class RunStates:
    """The states of a run, rings as they are seen from their counters (`ring_frames.py`)."""

    def __init__(self, program: Program, cluster: Cluster, barriers: Barriers, components: Components) -> None:
        self.cluster, self.barriers, self.components = cluster, barriers, components
        self.oldest = program.most_pending + 2
        self._order = [(at, 0) for at in range(len(barriers.phases))]
        self._frames = _frames_of(program)

    def forget(self, agents: list[Agent]) -> None:
        """Drop what is over, as all of these know."""
        self.barriers.forget_known(agents)
        self.cluster.forget_everywhere()

    def of(self, agents: list[Agent]) -> State:
        """The state, but for which nodes come next."""
        barriers, components, workgroups, frames = self.barriers, self.components, self.cluster.workgroups, self._frames
        found: list[object] = []
        order = self._order
        if frames is not None:
            found.append(frames.begin(agents))
            order = frames.order()
        clocks: list[Clock] = [agent.clock for agent in agents]  # whoever waits for roles to end knows less than all of these
        for at, _ in order:
            phases = barriers.phases[at]
            if phases.clock:  # who has come to nothing knows of nothing, which is said below
                clocks.append(phases.clock)
            clocks += phases.completions.values()
            clocks += [clock for value in phases.parts.values() for clock in value]
        clocks += [meeting.clock for meeting in barriers.named.values() if meeting.clock]
        knowledge = _Knowledge(clocks, len(agents))
        found += [agent.state(barriers.phases_left(agent), self.oldest) for agent in agents]
        for at, flip in order:
            phases = barriers.phases[at]
            parts = tuple(sorted([(key, len(value)) for key, value in phases.parts.items() if value]))
            waits = [
                (waiter.number, count - phases.completed, knowledge.of(waiter.number, time))
                for count, waiting in phases.waiters.items()
                for waiter, time, _ in waiting
            ]
            counts = phases.arrived, phases.announced, phases.delivered, bool(phases.clock), len(phases.completions)
            found.append((phases.completed & 1 ^ flip, *counts, parts))
            found += [tuple(sorted(waits)), knowledge.lags(components.mbarrier + at, phases.completed)]
            if components.passed != components.mbarrier:
                found.append(knowledge.lags(components.passed + at, phases.completed))
        for (rank, name), meeting in barriers.named.items():
            found.append((rank, name, meeting.warps, meeting.needed, bool(meeting.clock), tuple([a.number for a in meeting.came])))
            found.append(knowledge.of_agents(components.meeting(rank, name), meeting.over))
        found.append(tuple(sorted(self._records(knowledge))))
        if len(workgroups) > 1:
            found.append(self._touches(knowledge))
        found += [workgroup.memory.written.state(frames.region if frames is not None else _as_it_is) for workgroup in workgroups]
        return tuple(found)

    def _touches(self, knowledge: _Knowledge) -> tuple[object, ...]:
        """Arrivals of peers that not all know of: no workgroup may end before them."""
        found: list[tuple[int, int, tuple[bool, ...]]] = []
        for workgroup in self.cluster.workgroups:
            for (team, barrier), (phase, *_) in workgroup.touches.items():
                if known := knowledge.of_agents(self.components.passed + barrier, phase):
                    found.append((team, self._frames.barrier(barrier) if self._frames is not None else barrier, known))
        return tuple(sorted(found))

    def _records(self, knowledge: _Knowledge) -> list[tuple[object, ...]]:
        """Every access in flight or to be ordered after: whose it is, its age, who knows of it and of its fence."""
        of, arrays = self._record, self.cluster.arrays
        found = [of(record, knowledge, workgroup.rank) for workgroup in self.cluster.workgroups for record in workgroup.memory.records()]
        return found + [(*of(record, knowledge, -1), arrays.age(record)) for record in arrays.records()]

    def _record(self, record: Record, knowledge: _Knowledge, rank: int) -> tuple[object, ...]:
        oldest, base = self.oldest, self.components.mbarrier
        component, value, access, agent = record.component, record.value, record.access, record.agent
        queue, name, barrier = access.queue, id(access), 0
        if self._frames is not None:
            name, barrier = self._frames.access(access), self._frames.barrier(component - base) if queue == "mbarrier" else 0
        if not queue:
            age = 0
        elif queue == "mbarrier":
            age = self.barriers.phases[component - base].completed - value
            age = age if age < OLDEST_PHASE else OLDEST_PHASE + age % 2
        else:
            age = min(agent.closed.get(queue, 0) - value, oldest)
        fenced: tuple[int, ...] = (-1,)  # not even done; all of these have to compare
        if needs_fence(access) and (token := fence_token(self.components, record)) is not None:
            fenced = knowledge.of_agents(*token)
        known = knowledge.of_agents(component, value)
        return rank, agent.number, record.event.op_index, name, barrier, age, known, fenced


def _as_it_is(region: Region) -> object:
    return region


def _frames_of(program: Program) -> "RingFrames | None":
    if program.rings is None:
        return None
    from treadle.verify.ring_frames import RingFrames  # most kernels have no rings

    return RingFrames(program, program.rings)
