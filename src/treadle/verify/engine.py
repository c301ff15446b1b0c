"""Happens-before of one trace: every strand is run, in any order that its waits allow, and every access is held against those before it.

What a wait is sure of does not depend on the interleaving: barriers count arrivals, and a wait for a phase is taken to be sure of no more
than the oldest phase that would let it pass. So one run finds the races of all interleavings. The checks of mbarriers and named barriers
(`workgroups.py`) see to it that no interleaving counts an arrival into another phase or meeting.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from treadle.dialects import pipe, sync
from treadle.verify.clocks import Agent, Clock, Components, Flight, Frame, Record, Restore, join
from treadle.verify.events import Access, Counted, Event, LoopNode, Node, RolesNode, Trace, TurnedEvent
from treadle.verify.memory import Geometry, Memory, Untracked
from treadle.verify.program import Program
from treadle.verify.reports import Reports, Stop
from treadle.verify.strands import FirstRounds, Strands
from treadle.verify.workgroups import Barriers, Cluster, Queues, Workgroup

if TYPE_CHECKING:
    from treadle.verify.findings import Finding
    from treadle.verify.repetition import Repetitions
    from treadle.verify.run_states import RunStates

MAX_AHEAD = 256
"""Rounds after which strands that still need not wait for the leader are taken to be independent of it."""


class Engine:
    """Runs of a program over the traces of one tracer, whose `nodes` they share. `cost`: nodes looked at in the last one."""

    def __init__(self, program: Program, nodes: list[Node], geometry: Geometry, max_findings: int) -> None:
        self.program, self.nodes = program, nodes
        self.reports = Reports({}, max_findings)
        self.components = Components(program)
        starts = program.rings.starts() if program.rings is not None else ()
        self._count = program.rings.count if program.rings is not None else 1
        agents = [Agent(strand, starts) for strand in program.strands]
        self.workgroups: list[Workgroup] = []
        for rank in range(program.cluster):
            main = [agent for agent in agents if agent.strand.rank == rank and agent.strand.trace < 0]
            roles = [agent for agent in agents if agent.strand.rank == rank and agent.strand.trace >= 0]
            memory = Memory(geometry, self.components, self.reports, f" of workgroup {rank}" if program.cluster > 1 else "")
            self.workgroups.append(Workgroup(rank, memory, main, roles, allocates=bool(len(program.mbarriers))))
        self.arrays = Untracked()
        if geometry.tracked is not None:
            from treadle.verify.global_memory import GlobalMemory

            self.arrays = GlobalMemory(program, geometry.tracked, agents, self.components, self.reports)
        self.cluster = Cluster(self.workgroups, self.arrays, self.components, self.reports)
        self.barriers = _barriers(program)(program, self.cluster, self.components, self.reports)
        self._apart = _strands(program, nodes)
        self.cost = 0
        self._is_led = True
        self._queues = Queues(program, self.components, self.reports)
        self._agents = agents
        self._made_states: RunStates | None = None
        self._slots = program.rings.most_slots if program.rings is not None else 0
        self._repetitions = FirstRounds(nodes, self._slots, self._at_work, self._made_repetitions)
        self._at_start = self.saved()
        # Each does one event; False where the strand has to wait and try it again.
        self._actions: dict[str, Callable[[Agent, Event], bool]] = {
            "access": self._access,
            "alloc": self.cluster.allocate,
            **self._queues.actions(),
            **self.barriers.actions(),
        }

    def run(self, trace: Trace) -> "list[Finding]":
        """All findings of a run over a trace, in the order found. After one with findings there is no other."""
        self.reports.trip_counts, self.cost = trace.trip_counts, 0
        try:
            self._begin(trace)
            if self._go_on() and not self.reports.found:
                self._repetitions.end()
        except Stop:
            pass
        return list(self.reports.found.values())

    def _go_on(self) -> bool:
        """Run all strands to the end, or to where the rest is known from another run; False where nobody can go on."""
        while True:
            if not self._round():
                ended = [self._end_of_roles(workgroup) for workgroup in self.workgroups]
                if any(ended):
                    continue
                if not all(agent.is_done for agent in self.cluster.active):
                    from treadle.verify.stuck import report_stuck  # nobody is in right programs

                    report_stuck(self.barriers)
                    return False
                for workgroup in self.workgroups:
                    self.cluster.check_end(workgroup)
                return True
            if (leader := self._repetitions.turned()) is not None:
                self._is_led = self._is_led and self._catch_up(leader)
                if self._repetitions.look():
                    return True
                self._count_on()

    @property
    def executions(self) -> dict[int, dict[tuple[tuple[int, int, int], ...], None]]:
        """For each node of a loop what repeated each time that somebody ran it: (pump, stretch, iterations of a round)."""
        found: dict[int, dict[tuple[tuple[int, int, int], ...], None]] = {}
        for _, _, loop, pumps in self._repetitions.log:
            found.setdefault(loop, {})[tuple(sorted(set(pumps)))] = None
        return found

    def _begin(self, trace: Trace) -> None:
        """Begin a run, where one has come by before if there is such a moment."""
        if self._repetitions.come_by(trace):
            return
        self._at_start()
        self._repetitions.begin(trace)
        for workgroup in self.workgroups:
            for agent in workgroup.main:
                agent.begin(trace.roots[workgroup.rank])
            for agent in workgroup.roles:
                agent.row, agent.frames = (), []
        self.arrays.check_grid()

    def follow(self, row: tuple[int, ...]) -> bool:
        """Run all strands at work over a row of events from here on; False where that shows a fault."""
        for agent in self.cluster.active:
            agent.begin(row)
        try:
            while self._round():
                pass
        except Stop:
            return False
        return all(agent.is_done for agent in self.cluster.active) and self._is_clean()

    def may_end(self) -> bool:
        """Whether the kernel may end here without a fault."""
        try:
            for workgroup in self.workgroups:
                self.cluster.check_end(workgroup)
        except Stop:
            return False
        return self._is_clean()

    def _is_clean(self) -> bool:
        return not self.reports.found and not self.reports.undecided

    def state(self) -> tuple[object, ...]:
        """The state of the run, in numbers that do not grow with time."""
        states = self._states()
        states.forget(self.cluster.active)
        return states.of(self.cluster.active)

    def _states(self) -> "RunStates":
        if self._made_states is None:
            from treadle.verify.run_states import RunStates  # kernels whose loops are short have no use for states

            self._made_states = RunStates(self.program, self.cluster, self.barriers, self.components)
        return self._made_states

    def _made_repetitions(self) -> "Repetitions":
        from treadle.verify.repetition import Repetitions

        return Repetitions(self.nodes, self._states(), self._agents, self.saved, self._slots, self._at_work)

    def saved(self) -> Restore:
        """What brings the whole run back, but for where its strands stand."""
        parts = [part.saved() for part in (*self._agents, *self.workgroups, self.arrays, self.barriers)]
        is_led = self._is_led

        def restore() -> None:
            self._is_led = is_led
            self._apart.changed()
            for part in parts:
                part()

        return restore

    def _at_work(self) -> Sequence[Agent]:
        """The strands that go on next."""
        return self._apart.at_work(self.cluster.active)

    def _round(self, *, but: Agent | None = None) -> bool:
        """Let every strand (`but` one) that need not wait go on; whether there was one."""
        while True:
            moved = False
            for agent in tuple(self._at_work()):
                if agent is but or agent.is_done or self._apart.is_counting(agent):
                    continue
                if but is not None and self._apart.is_level(agent, but):
                    continue
                if not agent.blocked or self.barriers.retry(agent):
                    moved = True
                    self._advance(agent)
            if moved or but is not None or self._count_on():
                return moved or but is None
            if not self._apart.give_way(self.cluster.active):
                return False

    def _count_on(self) -> bool:
        """Let strands that do nothing but count go on by an iteration; False where there are none.

        They do when another one begins an iteration, or where nobody else can go on: so they count along with those who make the steps, and
        how far they are from these stays the same. Nobody sees when they do.
        """
        found = [agent for agent in self._at_work() if self._apart.is_counting(agent)]
        for agent in found:
            self._advance(agent)
        return bool(found)

    def _catch_up(self, leader: Agent) -> bool:
        """Let all others go on until they wait for the leader, which begins an iteration; False where some of them do not.

        States are taken then: how far the others are is what the synchronisation says, not what the order of turns made of loops of
        different lengths, so that a state comes back as soon as slots and parities do. It is one interleaving as good as any other.
        """
        return any(not self._round(but=leader) for _ in range(MAX_AHEAD))

    # --- control

    def _advance(self, agent: Agent) -> None:
        """Run a strand to its next block or the end of an iteration of a repeated stretch."""
        nodes, frames, actions, is_elected = self.nodes, agent.frames, self._actions, agent.strand.is_elected
        while frames:
            frame = frames[-1]
            if frame.position >= len(frame.items):
                if frame.loop < 0 or not self._next_iteration(frame):
                    self._leave(agent, frames.pop())
                    continue
                return
            self.cost += 1
            node = nodes[frame.items[frame.position]]
            if isinstance(node, TurnedEvent):
                node = node.at(agent.counts)
            if isinstance(node, Event):
                if (is_elected or not node.is_elected) and not actions[node.kind](agent, node):
                    return
                frame.position += 1
                continue
            if isinstance(node, LoopNode):
                number = frame.items[frame.position]
                frame.position += 1
                first = node.segments[0]
                frames.append(Frame(first.iterations[0], number, 0, first.length, first.first))
                if self._apart.is_counting(agent):
                    self._apart.changed()
                    if not self._apart.counts_for_nothing(agent):
                        return
                    frames.pop()
                elif len(frames) == 2:
                    self._apart.changed()
            elif isinstance(node, Counted):
                agent.counts[node.counter] = (agent.counts[node.counter] + node.by) % self._count
                frame.position += 1
            elif not self._meet_for_roles(agent, node):
                return
        agent.is_done = True
        self._apart.changed()

    def _leave(self, agent: Agent, frame: Frame) -> None:
        if frame.loop >= 0:
            self._repetitions.log.append((agent.number, len(agent.frames), frame.loop, tuple(frame.pumps)))
            self._apart.changed()

    def _next_iteration(self, frame: Frame) -> bool:
        node = self.nodes[frame.loop]
        if not isinstance(node, LoopNode):
            return False
        segment = node.segments[frame.segment]
        frame.iteration += 1
        frame.number += 1
        frame.left -= 1
        if not frame.left:
            frame.segment += 1
            self._apart.changed()
            if frame.segment == len(node.segments):
                return False
            segment = node.segments[frame.segment]
            frame.iteration, frame.left, frame.number = 0, segment.length, segment.first
        elif frame.iteration == len(segment.iterations):
            frame.iteration = 0
        frame.items = segment.iterations[frame.iteration]
        frame.position = 0
        return True

    def _meet_for_roles(self, agent: Agent, node: RolesNode) -> bool:
        """Roles start when all warps have come to them."""
        agent.blocked = "roles"
        self.components.flush(agent)
        workgroup = self.cluster.workgroup(agent)
        if any(other.blocked != "roles" for other in workgroup.main):
            return False
        known = workgroup.known()
        workgroup.active = [other for other in workgroup.roles if other.strand.roles == node.op_index]
        for other in workgroup.active:
            other.clock = dict(known)
            other.begin(node.traces[other.strand.trace])
        self._apart.changed()
        return False

    def _end_of_roles(self, workgroup: Workgroup) -> bool:
        if not workgroup.is_in_roles or not all(agent.is_done for agent in workgroup.active):
            return False
        known: Clock = {}
        for agent in workgroup.active:
            self.components.flush(agent)
            join(known, agent.clock)
        workgroup.active = workgroup.main
        for agent in workgroup.active:
            join(agent.clock, known)
            agent.blocked = ""
            agent.frames[-1].position += 1
        self._apart.changed()
        return True

    # --- events

    def _access(self, agent: Agent, event: Event) -> bool:
        now = agent.tick()
        for register in event.uses:
            self._queues.use(agent, event, register)
        for register in event.chained:
            self._queues.chain(agent, event, register)
        queue = event.queue
        if queue and not self.program.queues[queue].is_committed:
            agent.closed[queue] = agent.closed.get(queue, 0) + 1
        own = agent.strand.rank
        if event.ranks:
            self._access_peers(agent, event, now)
        else:
            memory, arrays = self.workgroups[own].memory, self.arrays
            if arrays.is_used:
                arrays.arrive(agent, event, now)
            accesses = event.accesses
            for access in accesses:
                (memory if access.effect is None else arrays).check(agent, event, access)
            for access in accesses:
                (memory if access.effect is None else arrays).add(self._record(agent, event, access, now, own))
        for register in event.defines:
            agent.registers[register] = Flight(self.components.queue(agent.number, queue), agent.closed.get(queue, 0) + 1, event)
        if event.barrier >= 0:
            for rank in event.ranks or (own,):
                self.barriers.deliver(agent, event, rank)
        return True

    def _access_peers(self, agent: Agent, event: Event, now: int) -> None:
        """The accesses of an event that names the workgroups whose memory it touches."""
        for rank in event.ranks:
            if rank != agent.strand.rank:
                self.cluster.reach(agent, event, rank)
        for access in event.accesses:
            for memory, _ in self._touched(access, event.ranks):
                memory.check(agent, event, access)
        for access in event.accesses:
            for memory, rank in self._touched(access, event.ranks):
                memory.add(self._record(agent, event, access, now, rank))

    def _touched(self, access: Access, ranks: tuple[int, ...]) -> list[tuple[Memory | Untracked, int]]:
        """The memories that an access touches, with the workgroups by whose barriers it is known to be over."""
        if access.effect is not None:
            return [(self.arrays, rank) for rank in ranks]
        return [(self.workgroups[rank].memory, rank) for rank in (ranks if access.is_write else ranks[:1])]

    def _record(self, agent: Agent, event: Event, access: Access, now: int, rank: int) -> Record:
        queue, frames = access.queue, agent.frames
        iteration = frames[-1].number if frames else -1
        if not queue:
            return Record(agent, event, access, agent.number, now, iteration, now)
        if queue == "mbarrier":
            component, value = self.barriers.token(event.barrier, rank)
            return Record(agent, event, access, component, value, iteration)
        facts = self.program.queues[queue]
        value = agent.closed.get(queue, 0) + facts.is_committed
        component = self.components.queue(agent.number, queue, is_read=facts.tells_reads and not access.is_write)
        return Record(agent, event, access, component, value, iteration)


def _barriers(program: Program) -> type[Barriers]:
    if not (len(program.mbarriers) or program.all(sync.NamedBarrierOp)):
        return Barriers
    from treadle.verify.counting_barriers import CountingBarriers

    return CountingBarriers


def _strands(program: Program, nodes: list[Node]) -> Strands:
    if not program.all(pipe.RolesOp):
        return Strands(nodes)
    from treadle.verify.strands_apart import StrandsApart

    return StrandsApart(program, nodes)
