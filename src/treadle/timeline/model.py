"""The model: agents that do their steps in order, and what they share, over time. Pure: steps in, spans out.

One way to memory, one way from it, one set of matrix units, each serving in the order of requests; shared memory and vector units count
as the agent's own time. An agent waits where a step says so, and where a register tile it uses is not there yet.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from treadle.timeline.durations import ISSUE, MEETING
from treadle.timeline.steps import Span, SpanKind, Step

MEMORY, STORES, MATRIX = "global reads", "global writes", "matrix units"
MAX_STEPS = 200_000


@dataclass(slots=True)
class Group:
    """Operations of a queue that are waited for together: when they have read their sources, and when they are complete."""

    read: float = 0.0
    done: float = 0.0


@dataclass(slots=True)
class Agent:
    """An agent's program and state."""

    name: str
    warps: int
    steps: Iterator[Step]
    time: float = 0.0
    step: Step | None = None
    groups: dict[str, deque[Group]] = field(default_factory=dict[str, "deque[Group]"])
    open: dict[str, Group] = field(default_factory=dict[str, Group])
    ready: dict[int, float] = field(default_factory=dict[int, float])
    has_met: bool = False

    def advance(self) -> None:
        """Take the next step; `step` is None at the end."""
        self.step, self.has_met = next(self.steps, None), False


@dataclass(slots=True)
class Mbarrier:
    """Phases that are complete, with their times, and what the current one has got."""

    arrivals: int
    phases: list[float] = field(default_factory=list[float])
    arrived: int = 0
    bytes: int = 0
    latest: float = 0.0

    def add(self, time: float, arrivals: int, byte_count: int) -> None:
        """Arrivals, announced bytes (positive) and landed ones (negative)."""
        self.arrived += arrivals
        self.bytes += byte_count
        self.latest = max(self.latest, time)
        if self.arrived >= self.arrivals and self.bytes == 0:
            self.phases.append(self.latest)
            self.arrived, self.latest = 0, 0.0


@dataclass(slots=True)
class Meeting:
    """Agents at a barrier: warps that are there, and when the last of them came; when it has taken place, who may go on when."""

    warps: int = 0
    time: float = 0.0
    waiting: list[str] = field(default_factory=list[str])
    released: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(slots=True)
class Outcome:
    """Spans by start, the end in clocks, whether the model stopped before the program did, and agents that wait forever."""

    spans: list[Span]
    clocks: float
    is_cut: bool = False
    stuck: tuple[str, ...] = ()

    def busy(self, lane: str) -> float:
        """Share of the time in which a lane is in use (its spans do not overlap; waiting is not use)."""
        return sum(s.end - s.start for s in self.spans if s.lane == lane and s.kind != "wait") / self.clocks if self.clocks else 0.0

    def waiting(self, lane: str) -> float:
        """Share of the time in which an agent waits."""
        return sum(s.end - s.start for s in self.spans if s.lane == lane and s.kind == "wait") / self.clocks if self.clocks else 0.0


class Model:
    """Runs agents to their end, to `until` clocks, or to `MAX_STEPS`. `mbarriers`: arrivals of each, by key."""

    def __init__(self, agents: list[Agent], mbarriers: Mapping[str, int], until: float = float("inf")) -> None:
        self.agents = agents
        self.until = until
        self._mbarriers = {key: Mbarrier(arrivals) for key, arrivals in mbarriers.items()}
        self._meetings: dict[str, Meeting] = {}
        self._free: dict[str, float] = dict.fromkeys((MEMORY, STORES, MATRIX), 0.0)
        self._spans: list[Span] = []

    def run(self) -> Outcome:
        """The spans. The agent that is furthest behind goes first, so that shared resources are asked in order."""
        for agent in self.agents:
            agent.advance()
        done = 0
        blocked: set[str] = set()
        while True:
            running = [a for a in self.agents if a.step is not None and a.time < self.until and a.name not in blocked]
            if not running or done >= MAX_STEPS:
                break
            agent = min(running, key=lambda a: a.time)
            if agent.step is not None and self._do(agent, agent.step):
                agent.advance()
                blocked.clear()
                done += 1
            else:
                blocked.add(agent.name)
        left = [a for a in self.agents if a.step is not None]
        is_cut = done >= MAX_STEPS or any(a.time >= self.until for a in left)
        stuck = () if is_cut else tuple(a.name for a in left)
        spans = sorted(self._spans, key=lambda s: (s.start, s.lane))
        clocks = max([a.time for a in self.agents] + [s.end for s in spans], default=0.0)
        return Outcome(spans, clocks, is_cut, stuck)

    def _span(self, lane: str, kind: SpanKind, label: str, start: float, end: float, agent: str) -> None:
        if end > start:
            self._spans.append(Span(lane, kind, label, start, end, agent))

    def _wait(self, agent: Agent, until: float, label: str) -> None:
        self._span(agent.name, "wait", label, agent.time, until, agent.name)
        agent.time = max(agent.time, until)

    def _spend(self, agent: Agent, kind: SpanKind, label: str, clocks: float) -> None:
        self._span(agent.name, kind, label, agent.time, agent.time + clocks, agent.name)
        agent.time += clocks

    def _occupy(self, agent: Agent, lane: str, kind: SpanKind, step: Step) -> float:
        start = max(agent.time, self._free[lane])
        self._free[lane] = end = start + step.clocks
        self._span(lane, kind, step.label, start, end, agent.name)
        return end

    def _queue(self, agent: Agent, step: Step, read: float, done: float) -> None:
        group = agent.open.setdefault(step.queue, Group())
        group.read, group.done = max(group.read, read), max(group.done, done)
        if step.is_group:
            agent.groups.setdefault(step.queue, deque()).append(agent.open.pop(step.queue))

    def _define(self, agent: Agent, step: Step, time: float) -> None:
        for value in step.defines:
            agent.ready[value] = time

    def _do(self, agent: Agent, step: Step) -> bool:
        """Do a step; False where the agent must wait for others first."""
        needed = max((agent.ready.get(value, 0.0) for value in step.uses), default=0.0)
        if needed > agent.time:
            self._wait(agent, needed, f"data of {step.label}")
        match step.kind:
            case "work":
                self._spend(agent, "local" if step.is_local else "work", step.label, step.clocks)
                self._define(agent, step, agent.time + step.latency)
            case "load":
                self._spend(agent, "work", f"ask: {step.label}", ISSUE)
                self._define(agent, step, self._occupy(agent, MEMORY, "copy", step) + step.latency)
            case "store":
                self._spend(agent, "work", step.label, ISSUE)
                self._occupy(agent, STORES, "store", step)
            case "copy" | "store_async":
                self._transfer(agent, step)
            case "matrix":
                self._matrix(agent, step)
            case "commit":
                agent.groups.setdefault(step.queue, deque()).append(agent.open.pop(step.queue, Group()))
            case "wait":
                self._wait_queue(agent, step)
            case "expect":
                self._spend(agent, "work", step.label, ISSUE)
                self._mbarriers[step.barrier].add(agent.time, 1, step.count)
            case "arrive":
                self._spend(agent, "work", step.label, ISSUE)
                self._mbarriers[step.barrier].add(agent.time, step.count, 0)
            case "wait_phase":
                return self._wait_phase(agent, step)
            case "barrier":
                return self._meet(agent, step)
        return True

    def _transfer(self, agent: Agent, step: Step) -> None:
        self._spend(agent, "work", f"issue: {step.label}", ISSUE)
        is_store = step.kind == "store_async"
        moved = self._occupy(agent, STORES if is_store else MEMORY, "store" if is_store else "copy", step)
        if step.barrier:
            self._mbarriers[step.barrier].add(moved + step.latency, 0, -step.count)
        elif step.queue:
            self._queue(agent, step, moved, moved + step.latency)
        else:
            self._wait(agent, moved + step.latency, step.label)

    def _matrix(self, agent: Agent, step: Step) -> None:
        done = self._occupy(agent, MATRIX, "matrix", step)
        if step.queue:
            self._spend(agent, "work", f"issue: {step.label}", ISSUE)
            self._queue(agent, step, done, done)
        else:
            self._spend(agent, "matrix", step.label, done - agent.time)
            self._define(agent, step, done)

    def _wait_queue(self, agent: Agent, step: Step) -> None:
        groups = agent.groups.setdefault(step.queue, deque())
        until = agent.time
        while len(groups) > step.pending:
            group = groups.popleft()
            until = max(until, group.read if step.is_read else group.done)
        self._wait(agent, until, step.label)

    def _wait_phase(self, agent: Agent, step: Step) -> bool:
        phases = self._mbarriers[step.barrier].phases
        if (len(phases) - 1) % 2 != step.parity:
            return False
        self._wait(agent, phases[-1] if phases else 0.0, step.label)
        return True

    def _meet(self, agent: Agent, step: Step) -> bool:
        meeting = self._meetings.setdefault(step.barrier, Meeting())
        if agent.name in meeting.released:
            self._wait(agent, meeting.released.pop(agent.name), step.label)
            return True
        if agent.has_met:
            return False
        agent.has_met = True
        meeting.warps += agent.warps
        meeting.time = max(meeting.time, agent.time)
        if not step.is_arrival:
            meeting.waiting.append(agent.name)
        if meeting.warps >= step.count:
            released = dict.fromkeys(meeting.waiting, meeting.time + MEETING)
            self._meetings[step.barrier] = Meeting(released=meeting.released | released)
            if not step.is_arrival:
                del self._meetings[step.barrier].released[agent.name]
                self._wait(agent, meeting.time + MEETING, step.label)
            return True
        return step.is_arrival
