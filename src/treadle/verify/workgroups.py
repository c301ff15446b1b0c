"""What waits order: queues, and where all meet; and the workgroups of a cluster: their memories, who is at work in them, when peers may
reach them (docs/schedule.md, "Clusters"). Barriers that count are in `counting_barriers.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.errors import InternalError
from treadle.verify.clocks import Agent, Clock, Components, Restore, join, known_to_all, reached
from treadle.verify.events import Event
from treadle.verify.memory import Memory, Untracked
from treadle.verify.program import Program
from treadle.verify.reports import Reports

if TYPE_CHECKING:
    from treadle.verify.phases import Meeting, Phases


FENCES = ("async_shared", "async_global")


class Queues:
    """The queues of a run. Checks uses of the tiles in `Agent.registers`."""

    def __init__(self, program: Program, components: Components, reports: Reports) -> None:
        self._program, self._components, self._reports = program, components, reports

    def actions(self) -> dict[str, Callable[[Agent, Event], bool]]:
        """By the kind of an event what it does; nobody has to wait for it."""
        return {"commit": self._commit, "wait": self._wait, "fence": self._fence, "move": self._move}

    def _commit(self, agent: Agent, event: Event) -> bool:
        agent.closed[event.queue] = agent.closed.get(event.queue, 0) + 1
        return True

    def _wait(self, agent: Agent, event: Event) -> bool:
        now = agent.tick()
        agent.last_sync = event
        retired = agent.closed.get(event.queue, 0) - event.number
        if retired > 0:
            if self._program.queues[event.queue].tells_reads:
                agent.put(self._components.queue(agent.number, event.queue, is_read=True), retired)
            if not event.is_read_wait:
                agent.put(self._components.queue(agent.number, event.queue), retired)
                agent.retired.setdefault(event.queue, []).append((retired, now))
        return True

    def _fence(self, agent: Agent, event: Event) -> bool:
        if event.queue in FENCES:
            agent.put(self._components.fence(agent.number, is_global=event.queue == "async_global"), agent.tick())
        return True

    # --- register tiles

    def chain(self, agent: Agent, event: Event, register: int) -> None:
        """The next operation of a queue takes over a tile that the one before may still be writing; it is then nobody else's."""
        flight = agent.registers.get(register)
        if flight is None:
            return
        is_ready = reached(agent.clock, flight.component, flight.value)
        if flight.taken is None and not is_ready and flight.event.queue == event.queue:
            flight.taken = event
        else:
            self.use(agent, event, register)

    def use(self, agent: Agent, event: Event, register: int) -> None:
        """An operation uses a tile in some other way; so does the end of a block, of what its operations hold."""
        flight = agent.registers.get(register)
        if flight is None or (flight.taken is None and reached(agent.clock, flight.component, flight.value)):
            return
        from treadle.verify.early_uses import report_early_end, report_early_use  # right programs have none

        if register >= len(self._program.registers):
            report_early_end(self._reports, agent, event, flight)
        else:
            report_early_use(self._reports, agent, event, flight)

    def _move(self, agent: Agent, event: Event) -> bool:
        """A loop or branch hands tiles on."""
        registers = agent.registers
        if not registers:
            return True
        values = [registers.get(source) for _, source in event.moves]
        for (to, _), value in zip(event.moves, values, strict=True):
            if value is None:
                registers.pop(to, None)
            else:
                registers[to] = value
        return True


class Workgroup:
    """One workgroup of a run. `active`: its strands at work, those of its roles or those outside (`main`).

    `started`: the strand and its time when it last allocated mbarriers (of a program without them: when it has done anything).
    `touches`: the last arrival of each team of a peer at each mbarrier, and the phase it belongs to, since the last meeting of the cluster.
    `early`: the first operation of each on this workgroup.
    """

    def __init__(self, rank: int, memory: Memory, main: list[Agent], roles: list[Agent], *, allocates: bool) -> None:
        self.rank, self.memory, self.main, self.roles, self.active = rank, memory, main, roles, main
        self.started: tuple[int, int] = (-1, 0) if allocates else (main[0].number, 1)
        self.touches: dict[tuple[int, int], tuple[int, Agent, Event, int]] = {}
        self.early: dict[int, tuple[Agent, Event]] = {}

    @property
    def is_in_roles(self) -> bool:
        """Whether its roles run."""
        return self.active is not self.main

    def saved(self) -> Restore:
        """What brings back who is at work, and what is known of its peers; its memory too."""
        active, started, touches, early, memory = self.active, self.started, dict(self.touches), dict(self.early), self.memory.saved()

        def restore() -> None:
            self.active, self.started, self.touches, self.early = active, started, dict(touches), dict(early)
            memory()

        return restore

    def known(self) -> Clock:
        """What its warps know together."""
        found: Clock = {}
        for agent in self.main:
            join(found, agent.clock)
        return found


class Cluster:
    """The workgroups of a run, by rank, and the global arrays that they share."""

    def __init__(self, workgroups: list[Workgroup], arrays: Untracked, components: Components, reports: Reports) -> None:
        self.workgroups, self.arrays, self.components, self.reports = workgroups, arrays, components, reports

    @property
    def active(self) -> list[Agent]:
        """All strands at work."""
        if len(self.workgroups) == 1:
            return self.workgroups[0].active
        return [agent for workgroup in self.workgroups for agent in workgroup.active]

    def workgroup(self, agent: Agent) -> Workgroup:
        """The workgroup of a strand."""
        return self.workgroups[agent.strand.rank]

    def forget(self, agent: Agent, clocks: list[Clock]) -> None:
        """Drop records of accesses that all who may reach the memory of the strand's workgroup know to be over."""
        rank = agent.strand.rank
        if len(self.workgroups) > 1:
            clocks = clocks + [other.clock for other in self.active if other.strand.rank != rank]
        known = known_to_all(clocks)
        self.workgroups[rank].memory.forget_ordered(known)
        self.arrays.forget_ordered(known)

    def forget_everywhere(self) -> None:
        """Drop records of accesses that all strands at work know to be over."""
        known = known_to_all([agent.clock for agent in self.active])
        for workgroup in self.workgroups:
            workgroup.memory.forget_ordered(known)
        self.arrays.forget_ordered(known)

    def allocate(self, agent: Agent, event: Event) -> bool:
        """A strand's mbarriers are there."""
        workgroup = self.workgroups[agent.strand.rank]
        now = agent.tick()
        if agent is workgroup.main[0]:
            workgroup.started = (agent.number, now)
            for peer, touch in workgroup.early.values():
                self._report_start(peer, touch, workgroup)
        return True

    def reach(self, agent: Agent, event: Event, rank: int) -> None:
        """A strand reaches into a peer, which it has to know to be ready."""
        target = self.workgroups[rank]
        number, time = target.started
        target.early.setdefault(agent.number, (agent, event))
        if number < 0 or not reached(agent.clock, number, time):
            self._report_start(agent, event, target)

    def _report_start(self, agent: Agent, event: Event, target: Workgroup) -> None:
        place = self.reports.place(agent, event)
        self.reports.report(
            "V5",
            f"{event.op.name} reaches workgroup {target.rank}, whose memory and mbarriers may not be there yet",
            agent,
            event,
            memory=f"memory and mbarriers of workgroup {target.rank}",
            missing="a sync.cluster_barrier after the mbarriers are allocated, before the first operation on a peer",
            steps=(place.describe() + ": executed", f"workgroup {target.rank}: allocates its mbarriers"),
        )

    def check_end(self, workgroup: Workgroup) -> None:
        """Report what may still touch a workgroup's memory when it ends."""
        known, of = workgroup.known(), workgroup.memory.name
        whole = "the workgroup" if of else "the kernel"
        for record in workgroup.memory.unfinished(known):
            where = record.access.region.describe() + of
            self.reports.report(
                "V2",
                f"{whole} may end while {record.event.op.name} still works on {where}",
                record.agent,
                record.event,
                memory=where,
                missing=f"a wait for the operation before {whole} ends",
                iteration=record.iteration,
                steps=(self.reports.place(record.agent, record.event, record.iteration).describe() + ": issued", f"{whole} ends"),
            )
        for (_, barrier), (phase, agent, event, iteration) in workgroup.touches.items():
            if not reached(known, self.components.passed + barrier, phase):
                self.reports.report(
                    "V2",
                    f"workgroup {workgroup.rank} may end before {event.op.name} of a peer reaches its mbarriers",
                    agent,
                    event,
                    memory=f"mbarriers of workgroup {workgroup.rank}",
                    missing="a sync.cluster_barrier before the kernel ends, or a wait for the phase that the arrival completes",
                    iteration=iteration,
                    steps=(
                        f"workgroup {workgroup.rank}: ends",
                        self.reports.place(agent, event, iteration).describe() + ": reaches memory that is gone",
                    ),
                )


class Barriers:
    """The barriers of a run in which nothing is counted: all strands that are at work come to each."""

    def __init__(self, program: Program, cluster: Cluster, components: Components, reports: Reports) -> None:
        self.program, self.cluster, self.components, self.reports = program, cluster, components, reports
        self.phases: list[Phases] = []
        self.named: dict[tuple[int, str], Meeting] = {}

    def actions(self) -> dict[str, Callable[[Agent, Event], bool]]:
        """By the kind of an event what it does; False where the strand has to wait and try it again."""
        return {"barrier": self.meet_groups, "cluster": self.meet}

    def saved(self) -> Restore:
        """What brings all of them back."""
        return _nothing

    def meet_groups(self, agent: Agent, event: Event) -> bool:
        """Meet, where only some groups of a role do."""
        return (event.groups is not None and agent.strand.group not in event.groups) or self.meet(agent, event)

    def meet(self, agent: Agent, event: Event) -> bool:
        """Arrive and wait for all; True once the meeting is over."""
        agent.last_sync = event
        if not event.is_bare:
            self.components.flush(agent)
        agent.tick()
        agent.blocked, agent.waiting = event.kind, event
        active = self.cluster.active if event.kind == "cluster" else self.cluster.workgroup(agent).active
        if any(other.blocked != event.kind for other in active):
            return False
        known: Clock = {}
        for other in active:
            join(known, other.clock)
        for other in active:
            other.clock = dict(known)
            other.blocked = "" if other is agent else "met"
        for workgroup in self.cluster.workgroups if event.kind == "cluster" else ():
            workgroup.touches.clear()
        self.cluster.forget(agent, [known])
        return True

    def retry(self, agent: Agent) -> bool:
        """Whether a waiting strand may go on; the operation it waited at is then behind it."""
        if agent.blocked == "met":
            agent.blocked = ""
            agent.frames[-1].position += 1
            return True
        return False

    def phases_left(self, agent: Agent) -> int:
        """How many phases a strand that waits for one is ahead of the mbarrier; 0 for others."""
        return 0

    def forget_known(self, agents: list[Agent]) -> None:
        """Drop what completed phases tell where all agents at work know it, so that nobody learns of it by a wait."""

    def token(self, barrier: int, rank: int) -> tuple[int, int]:
        """The component and value that say that the current phase of a workgroup's mbarrier is complete."""
        raise InternalError("a kernel without transaction barriers")

    def deliver(self, agent: Agent, event: Event, rank: int) -> None:
        """Bytes of a copy come in. What the issuer knows of phases being complete is then known, and nothing else of it."""
        raise InternalError("a kernel without transaction barriers")


def _nothing() -> None:
    pass
