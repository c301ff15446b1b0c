"""Barriers that count: named ones the warps that come, transaction barriers the arrivals and bytes of a phase."""

from collections.abc import Callable

from treadle.dialects.limits import MAX_BYTES
from treadle.verify.clocks import Agent, Clock, Components, Restore, join
from treadle.verify.events import Event
from treadle.verify.phases import Meeting, Phases
from treadle.verify.program import Program
from treadle.verify.reports import Reports
from treadle.verify.workgroups import Barriers, Cluster


class CountingBarriers(Barriers):
    """All barriers of a run."""

    def __init__(self, program: Program, cluster: Cluster, components: Components, reports: Reports) -> None:
        super().__init__(program, cluster, components, reports)
        self.count = len(program.mbarriers)
        self.phases = [Phases(needed) for _ in range(program.cluster) for needed in program.mbarriers.arrivals]
        self._teams: dict[int, list[tuple[int, int]]] = {}
        for strand in program.strands:
            self._teams.setdefault(strand.team, []).append((strand.team, strand.number))

    def actions(self) -> dict[str, Callable[[Agent, Event], bool]]:
        """By the kind of an event what it does; False where the strand has to wait and try it again."""
        own = {"named": self.meet_named, "arrive": self.arrive, "expect": self.expect, "wait_phase": self.wait_phase}
        return {**super().actions(), **own}

    def saved(self) -> Restore:
        """What brings all of them back."""
        phases = [each.saved() for each in self.phases]
        named = {key: meeting.copy() for key, meeting in self.named.items()}

        def restore() -> None:
            for each in phases:
                each()
            self.named = {key: meeting.copy() for key, meeting in named.items()}

        return restore

    def name(self, barrier: int) -> str:
        """What messages call an mbarrier."""
        name = self.program.mbarriers.names[barrier % self.count]
        return f"{name} of workgroup {barrier // self.count}" if self.program.cluster > 1 else name

    def barrier_of(self, agent: Agent, event: Event) -> int:
        """The number of the mbarrier of an event in the strand's own workgroup."""
        return agent.strand.rank * self.count + event.barrier

    def phases_left(self, agent: Agent) -> int:
        """How many phases a strand that waits for one is ahead of the mbarrier; 0 for others."""
        if agent.blocked != "phase" or agent.waiting is None:
            return 0
        return agent.target - self.phases[self.barrier_of(agent, agent.waiting)].completed

    def retry(self, agent: Agent) -> bool:
        """Whether a waiting strand may go on; the operation it waited at is then behind it."""
        if agent.blocked != "phase":
            return super().retry(agent)
        event = agent.waiting
        if event is not None and self.phases[self.barrier_of(agent, event)].completed >= agent.target:
            agent.blocked = ""
            self._pass(agent, event)
            agent.frames[-1].position += 1
            return True
        return False

    # --- named barriers

    def meet_named(self, agent: Agent, event: Event) -> bool:
        """Arrive, and wait unless the operation only announces."""
        name, rank = event.queue, agent.strand.rank
        agent.last_sync = event
        self.components.flush(agent)
        agent.tick()
        meeting = self.named.setdefault((rank, name), Meeting())
        component = self.components.meeting(rank, name)
        meeting.needed = meeting.needed or event.number
        if meeting.needed != event.number:
            self.reports.report(
                "V5",
                f"{agent.strand.name} comes to a meeting of {meeting.needed} warps at named barrier {name} as to one of {event.number}",
                agent,
                event,
                memory=f"named barrier {name}",
                missing="the same number of warps at all operations that meet",
            )
        if agent in meeting.came or agent.at(component) < meeting.over:
            place = self.reports.place(agent, event)
            self.reports.report(
                "V5",
                f"{agent.strand.name} may come to named barrier {name} again before its last meeting is over",
                agent,
                event,
                memory=f"named barrier {name}",
                missing="an order between the end of the last meeting and this arrival",
                steps=(place.describe() + ": arrives, and may be counted into the meeting before",),
            )
        meeting.came.append(agent)
        if not event.is_arrive:
            meeting.waiting.append(agent)
        meeting.warps += agent.strand.warps
        join(meeting.clock, agent.clock)
        agent.blocked, agent.waiting = ("", None) if event.is_arrive else ("named", event)
        if meeting.warps < meeting.needed:
            return event.is_arrive
        if meeting.warps > meeting.needed:
            self.reports.report(
                "V5",
                f"{meeting.warps} warps come to a meeting of {meeting.needed} at named barrier {name}",
                agent,
                event,
                memory=f"named barrier {name}",
                missing="as many warps as the barrier counts",
            )
        self.named[rank, name] = Meeting(meeting.over + 1)
        for other in meeting.waiting:
            other.clock = dict(meeting.clock)  # theirs are part of it
            other.put(component, meeting.over + 1)
            other.blocked = "" if other is agent else "met"
        if event.is_arrive:
            return True
        active = self.cluster.workgroup(agent).active
        if len(meeting.came) == len(active):  # the others learn nothing
            self.cluster.forget(agent, [other.clock for other in active])
        return True

    # --- mbarriers

    def token(self, barrier: int, rank: int) -> tuple[int, int]:
        """The component and value that say that the current phase of a workgroup's mbarrier is complete."""
        number = rank * self.count + barrier
        return self.components.mbarrier + number, self.phases[number].completed + 1

    def arrive(self, agent: Agent, event: Event) -> bool:
        """One arrival: of each warp outside roles, of a group once all its warps have come inside."""
        agent.tick()
        own = agent.strand.rank
        for rank in event.ranks or (own,):
            if rank != own:
                self.cluster.reach(agent, event, rank)
            self._arrive_at(agent, event, rank * self.count + event.barrier)
        return True

    def _arrive_at(self, agent: Agent, event: Event, barrier: int) -> None:
        phases, strand = self.phases[barrier], agent.strand
        self._check_arrival(agent, event, barrier)
        if strand.counts_alone:
            self._count(agent, event, barrier, strand.warps, agent.clock)
            return
        phases.parts.setdefault((strand.team, strand.number), []).append(dict(agent.clock))
        come = [phases.parts.get(key) for key in self._teams[strand.team]]
        if all(come):
            known, *others = [clocks.pop(0) for clocks in come if clocks]
            for other in others:
                join(known, other)
            self._count(agent, event, barrier, 1, known)

    def expect(self, agent: Agent, event: Event) -> bool:
        """One arrival that announces bytes."""
        agent.tick()
        barrier = self.barrier_of(agent, event)
        self._check_arrival(agent, event, barrier)
        self.phases[barrier].announced += event.number
        if self.phases[barrier].announced > MAX_BYTES:
            self.reports.report(
                "V5",
                f"{self.name(barrier)} is told of {self.phases[barrier].announced} bytes in a phase, which counts {MAX_BYTES}",
                agent,
                event,
                memory=self.name(barrier),
                missing="another barrier, or another phase, for some of the copies",
            )
        self._count(agent, event, barrier, 1, agent.clock)
        return True

    def deliver(self, agent: Agent, event: Event, rank: int) -> None:
        """Bytes of a copy come in. What the issuer knows of phases being complete is then known, and nothing else of it."""
        barrier = rank * self.count + event.barrier
        self._check_arrival(agent, event, barrier)
        phases, passed = self.phases[barrier], self.components.passed
        phases.delivered += event.number
        if passed != self.components.mbarrier:
            behind = passed + len(self.phases)
            join(phases.clock, {component: value for component, value in agent.clock.items() if passed <= component < behind})
        self._complete(agent, event, barrier)

    def _check_arrival(self, agent: Agent, event: Event, barrier: int) -> None:
        phases = self.phases[barrier]
        if agent.at(self.components.passed + barrier) < phases.completed:
            name = self.name(barrier)
            self.reports.report(
                "V5",
                f"{event.op.name} of {name} may be counted into the phase before the one it belongs to",
                agent,
                event,
                memory=name,
                missing=f"an order between the completion of phase {phases.completed - 1} of {name} and this arrival",
                steps=(self.reports.place(agent, event).describe() + f": arrives while phase {phases.completed - 1} is not complete yet",),
            )

    def _count(self, agent: Agent, event: Event, barrier: int, arrivals: int, clock: Clock) -> None:
        phases = self.phases[barrier]
        phases.arrived += arrivals
        join(phases.clock, clock)
        if event.kind == "arrive" and barrier // self.count != agent.strand.rank:
            touches = self.cluster.workgroups[barrier // self.count].touches
            touches[agent.strand.team, barrier] = (phases.completed + 1, agent, event, agent.iteration())
        if phases.arrived > phases.needed:
            name = self.name(barrier)
            self.reports.report(
                "V5",
                f"{name} gets {phases.arrived} arrivals in a phase that takes {phases.needed}",
                agent,
                event,
                memory=name,
                missing="an arrival count that is the number of agents that arrive",
            )
            phases.arrived = phases.needed
        self._complete(agent, event, barrier)

    def _complete(self, agent: Agent, event: Event, barrier: int) -> None:
        phases = self.phases[barrier]
        if phases.arrived < phases.needed or phases.delivered < phases.announced:
            return
        if phases.delivered > phases.announced:
            name = self.name(barrier)
            self.reports.report(
                "V5",
                f"{name} is told of {phases.announced} bytes, its copies bring {phases.delivered}",
                agent,
                event,
                memory=name,
                missing=f"an expect of {phases.delivered} bytes",
                steps=(f"the phase completes after {phases.announced} bytes", "a reader goes on before the others are there"),
            )
        phases.completed += 1
        components, clock = self.components, phases.clock
        clock[components.mbarrier + barrier] = clock[components.passed + barrier] = phases.completed
        phases.completions[phases.completed] = clock
        phases.completions.pop(phases.completed - 2, None)
        for waiter, time, waited in phases.waiters.pop(phases.completed - 1, ()):
            if clock.get(waiter.number, 0) < time:
                self._report_overtaken(waiter, waited, self.name(barrier))
        phases.arrived = phases.announced = phases.delivered = 0
        phases.clock = {}

    def forget_known(self, agents: list[Agent]) -> None:
        """Drop what completed phases tell where all agents at work know it, so that nobody learns of it by a wait."""
        for component, phases in enumerate(self.phases, self.components.mbarrier):
            if phases.completions:
                least = min([agent.at(component) for agent in agents])
                for count in [count for count in phases.completions if count <= least]:
                    del phases.completions[count]

    def wait_phase(self, agent: Agent, event: Event) -> bool:
        """Wait for the oldest phase that could let the strand pass."""
        barrier = self.barrier_of(agent, event)
        phases = self.phases[barrier]
        if event.number not in (0, 1):
            self._report_parity(agent, event, self.name(barrier))
        known = agent.at(self.components.passed + barrier)
        agent.target = known if (known + 1) % 2 == event.number % 2 else known + 1
        if phases.completed < agent.target:
            agent.blocked, agent.waiting = "phase", event
            return False
        self._pass(agent, event)
        return True

    def _report_parity(self, agent: Agent, event: Event, name: str) -> None:
        self.reports.report(
            "V5",
            f"{agent.strand.name} waits for parity {event.number} of {name}; there are 0 and 1",
            agent,
            event,
            memory=name,
            missing="a parity of 0 or 1 (`and` with 1 keeps the low bit)",
        )

    def _pass(self, agent: Agent, event: Event) -> None:
        barrier, components = self.barrier_of(agent, event), self.components
        phases = self.phases[barrier]
        agent.last_sync = event
        now = agent.tick()
        if (clock := phases.completions.get(agent.target)) is not None:
            join(agent.clock, clock)
        agent.put(components.mbarrier + barrier, agent.target)
        agent.put(components.passed + barrier, agent.target)
        if phases.completed > agent.target:
            self._report_overtaken(agent, event, self.name(barrier))
        else:
            phases.waiters.setdefault(agent.target, []).append((agent, now, event))

    def _report_overtaken(self, agent: Agent, event: Event, name: str) -> None:
        place = self.reports.place(agent, event)
        self.reports.report(
            "V5",
            f"{agent.strand.name} waits for a phase of {name} that the next phase may overtake",
            agent,
            event,
            memory=name,
            missing=f"an order between this wait and the next completion of {name}",
            steps=(f"two more phases' worth of arrivals reach {name}", place.describe() + ": sees the wrong parity and waits on"),
        )
