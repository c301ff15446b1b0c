"""Agents and the workgroup they belong to: what one executing thread of control knows and has in flight."""

from collections.abc import Callable, Generator
from typing import Any

from treadle import machine
from treadle.ir.core import Operation
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.machine import TargetSpec
from treadle.sim.element_types import Array
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule.accesses import Access, Accesses, Places, Shadow
from treadle.sim.schedule.barriers import Mbarrier, Meeting
from treadle.sim.schedule.clocks import NEVER, Clock, Component, join
from treadle.sim.schedule.global_memory import GlobalArray
from treadle.sim.schedule.ownership import copied, held
from treadle.sim.schedule.queues import AsyncOperation, PendingTile, Queue, Registers, Wait
from treadle.sim.schedule.report import Findings, Party
from treadle.sim.schedule.shared import Buffer, Region, SharedMemory, SharedPlan

Frame = list[Any]
Coroutine = Generator[Wait | None, None, None]


class World:
    """What all agents of an execution share. `counters`: by watched array and place, what arrivals there have passed on."""

    def __init__(self, spec: TargetSpec, warps: int, watched: dict[int, GlobalArray], findings: Findings, *, interleave: bool) -> None:
        self.spec = spec
        self.warps = warps
        self.watched = watched
        self.findings = findings
        self.accesses = Accesses(findings)
        self.interleave = interleave
        self.local_queue = spec.queue_for("local")
        self.counters: dict[tuple[int, int], Clock] = {}
        self._numbers = 0

    def queue_for(self, role: machine.QueueRole) -> machine.Queue:
        """The machine's queue of a role. Raises SimulationFault where it has none."""
        found = self.spec.queue_for(role)
        if found is None:
            raise SimulationFault(f"{self.spec.name} has no queue of the role {role}")
        return found

    def queue_named(self, name: str) -> machine.Queue:
        """The machine's queue of that name. Raises SimulationFault where it has none."""
        found = self.spec.queue(name)
        if found is None:
            raise SimulationFault(f"{self.spec.name} has no queue '{name}'")
        return found

    def number(self) -> int:
        """A number that no agent or barrier has."""
        self._numbers += 1
        return self._numbers


class Workgroup:
    """One workgroup: its memory, barriers and agents.

    `meeting`: the barrier of the agents that run now. `in_flight`: asynchronous operations in order of issue. `peers`: the workgroups of
    its cluster by rank. `touches`: arrivals and reads of peers since the cluster met, by what says that they are over. `early`: who of
    them reached it.
    """

    def __init__(self, world: World, place: tuple[int, int, int], plan: SharedPlan, cluster: Meeting, rank: int = 0) -> None:
        self.world = world
        self.place, self.rank = place, rank
        self.number = world.number()
        self.peers: list[Workgroup] = [self]
        self.touches: list[tuple[Party, Component, int]] = []
        self.early: list[Party] = []
        self.plan = plan
        self.memory = SharedMemory(plan)
        self.cluster = cluster
        self.agents: list[Agent] = []
        self.meeting = Meeting("sync.barrier", world.warps, world.number())
        self.named: dict[int, Meeting] = {}
        self.mbarriers: dict[tuple[Operation, int], list[Mbarrier]] = {}
        self.in_flight: list[AsyncOperation] = []
        self.copies: list[tuple[Mbarrier, Access]] = []
        self.roles: dict[tuple[Operation, int], list[Agent]] = {}

    @property
    def name(self) -> str:
        """It in a report."""
        return f"workgroup {list(self.place)}"

    def allocated(self, agent: "Agent", op: Operation, occurrence: int, labels: list[str], arrivals: int) -> list[Mbarrier]:
        """The barriers of an allocation, made by whichever agent comes first; the agent then knows of them."""
        key = (op, occurrence)
        if key not in self.mbarriers:
            places = [(op, occurrence, at) for at in range(len(labels))]
            self.mbarriers[key] = [
                Mbarrier(label, self.world.number(), arrivals, place) for label, place in zip(labels, places, strict=True)
            ]
            for party in self.early:
                self.world.findings.misuse(party.op, party.agent, f"{self.name} has not allocated all its barriers yet")
        known = list(self.mbarriers).index(key) + 1
        agent.clock["init", self.number] = max(known, agent.clock.get(("init", self.number), 0))
        return self.mbarriers[key]


class Team:
    """The warps over which a register tile is spread: `size` of them. `group`: number of the group in its role.

    `is_group`: whether its warps arrive at a transaction barrier as one. `_arrivals`: for each barrier, how often each warp arrived.
    """

    def __init__(self, size: int, group: int, *, is_group: bool) -> None:
        self.size, self.group, self.is_group = size, group, is_group
        self._arrivals: dict[Mbarrier, list[int]] = {}
        self._clocks: dict[tuple[Mbarrier, int], Clock] = {}

    def arrive(self, barrier: Mbarrier, warp: int, clock: Clock) -> Clock | None:
        """One warp's arrival; where it was the last of the team's, what all of them knew."""
        if not self.is_group:
            return clock
        counts = self._arrivals.setdefault(barrier, [0] * self.size)
        before = min(counts)
        counts[warp] += 1
        gathered = self._clocks.setdefault((barrier, counts[warp]), {})
        join(gathered, clock)
        return self._clocks.pop((barrier, min(counts))) if min(counts) > before else None

    def is_early(self, barrier: Mbarrier, warp: int) -> bool:
        """Whether a warp's next arrival would be counted into a phase before its own: those it has made for arrivals of the team that are
        still to come are all that the phase lacks.
        """
        counts = self._arrivals.get(barrier)
        return counts is not None and self.is_group and counts[warp] - min(counts) >= barrier.missing


class Agent:
    """One warp, number `warp` of its team. The first one is the `leader`, which executes what one thread executes.

    `split`: the part of the workgroup it belongs to where barriers are conditional.
    """

    def __init__(self, workgroup: Workgroup, name: str, frame: Frame, team: Team, warp: int, split: int) -> None:
        self.workgroup = workgroup
        self.world = workgroup.world
        self.number = self.world.number()
        self.name = f"{workgroup.name} {name}"
        self.frame = frame
        self.team, self.warp, self.split = team, warp, split
        self.leader = warp == 0
        self.met: dict[Meeting, int] = {}
        self.clock: Clock = {}
        self.time = 0
        self.queues: dict[str, Queue] = {}
        self.held: dict[Operation, Registers] = {}
        self.executed: dict[Operation, int] = {}
        self.coroutine: Coroutine | None = None
        self.wait: Wait | None = None
        self.ended = False

    # --- what it holds

    def part(self, layout: TileLayout | None, *, storing: bool = False) -> Array | None:
        """Mask of the elements it holds of a tile (`storing`: those that it stores), None for all.

        A tile without a layout, or with one for another number of warps, is held by every warp and stored by the first.
        """
        if self.team.size == 1 or layout is None or layout.num_warps != self.team.size:
            return None
        return held(layout, self.warp, storing)

    def stores(self, layout: TileLayout | None) -> bool:
        """Whether it stores any part of a tile."""
        known = layout is not None and layout.num_warps == self.team.size
        return known or self.leader

    def copies(self, layout: SharedLayout, element_bytes: int) -> Array | None:
        """Mask of the elements that it copies where threads copy their parts."""
        return copied(layout, element_bytes, self.warp, self.team.size, self.world.spec.subgroup_size)

    # --- what it has in flight

    def queue(self, facts: machine.Queue) -> Queue:
        """Its queue of the machine's."""
        if facts.name not in self.queues:
            self.queues[facts.name] = Queue(facts, self.number)
        return self.queues[facts.name]

    def issue(self, op: Operation, queue: Queue | None, read: Callable[[], Any], write: Callable[[Any], None]) -> AsyncOperation:
        """Issue an asynchronous operation."""
        operation = AsyncOperation(op, read, write)
        if queue is not None:
            queue.issue(operation)
        self.workgroup.in_flight.append(operation)
        return operation

    def flush(self) -> None:
        """Complete its accesses to shared memory."""
        if self.world.local_queue is not None:
            queue = self.queue(self.world.local_queue)
            for operation in queue.unfinished(queue.committed):
                operation.land()
            queue.retire(queue.committed, self.clock)

    def resolve(self, value: Any, op: Operation) -> Any:
        """The value of a register tile that `op` uses."""
        if not isinstance(value, PendingTile):
            return value
        operation = value.operation
        if operation is None:
            return value.value
        if value.taken is not None:
            text = f"the result of {operation.op.name}, which another operation has taken over"
            self.world.findings.race("result", Party(value.taken, self.name, "write"), Party(op, self.name, "read"), text)
        if value.queue.is_local:
            value.queue.land_through(operation)
            return value.value
        if value.is_retired:
            return value.value
        self.world.findings.race(
            "result", Party(operation.op, self.name, "write"), Party(op, self.name, "read"), f"the result of {operation.op.name}"
        )
        return value.value if operation.done else None

    # --- what it touches

    def tick(self) -> int:
        """One more step in its program order."""
        self.time += 1
        self.clock["order", self.number] = self.time
        return self.time

    def access(
        self,
        op: Operation,
        *,
        write: bool,
        queue: Queue | None = None,
        read_queue: bool = False,
        is_async: bool = False,
        component: Component | None = None,
    ) -> Access:
        """A new access: complete in program order, with the next group of `queue`, or when `component` says so (time to be set)."""
        now = self.tick()
        if component is not None:
            return Access(op, self.number, self.name, component, NEVER, now, write, is_async)
        if queue is None:
            return Access(op, self.number, self.name, ("order", self.number), now, now, write, is_async)
        part = queue.read_component if read_queue else queue.component
        local = queue.is_local
        found = Access(op, self.number, self.name, part, queue.next_group, now if local else NEVER, write, is_async, in_order=local)
        if not local:
            queue.settles(found)
        return found

    def enter(self, shadow: Shadow, places: Places, access: Access, where: Callable[[], str]) -> Array | None:
        """Check and record an access; flags of writes that it cannot see for want of a fence."""
        return self.world.accesses.enter(shadow, places, access, self.clock, where)

    def reached(self, op: Operation, barrier: Mbarrier, ranks: tuple[int, ...]) -> list[tuple[Workgroup, Mbarrier]]:
        """The workgroups that an operation names (none: its own), each with what is `barrier` there."""
        found: list[tuple[Workgroup, Mbarrier]] = []
        allocation, occurrence, slot = barrier.place
        for rank in ranks or (self.workgroup.rank,):
            peer = self.workgroup.peers[rank]
            there = peer.mbarriers.get((allocation, occurrence))
            if peer is not self.workgroup:
                peer.early.append(Party(op, self.name, "write"))
                if there is None or self.clock.get(("init", peer.number), 0) < len(peer.mbarriers):
                    self.world.findings.misuse(op, self.name, f"reaches {peer.name}, whose barriers may not be there yet")
            if there is not None:
                found.append((peer, there[slot]))
        return found

    def enter_shared(self, buffer: Buffer, region: Region, access: Access, workgroup: Workgroup | None = None) -> Array | None:
        """`enter` for shared memory, its own or another workgroup's."""
        memory = (workgroup or self.workgroup).memory
        return self.enter(memory.shadow, memory.places(buffer, region), access, lambda: shared_text(buffer, region))

    def read_shared(self, op: Operation, buffer: Buffer, region: Region, hidden: Array | None = None) -> Array:
        """The contents now; reads of places without data are reported."""
        return self._contents(op, buffer, region, self.workgroup, hidden)

    def read_peer(self, op: Operation, buffer: Buffer, region: Region, rank: int) -> Array:
        """What a buffer of another workgroup of the cluster holds now, which may not end before it knows of that."""
        peer = self.workgroup.peers[rank]
        access = self.access(op, write=False)
        if peer is not self.workgroup:
            has_begun = any(self.clock.get(("order", agent.number), 0) for agent in peer.agents)
            if not has_begun or self.clock.get(("init", peer.number), 0) < len(peer.mbarriers):
                self.world.findings.misuse(op, self.name, f"reaches {peer.name}, whose memory and barriers may not be there yet")
            peer.touches.append((access.party, access.component, access.time))
        self.enter_shared(buffer, region, access, peer)
        return self._contents(op, buffer, region, peer)

    def _contents(self, op: Operation, buffer: Buffer, region: Region, of: Workgroup, hidden: Array | None = None) -> Array:
        memory = of.memory
        empty = memory.empty(buffer, region)
        if empty is not None:
            count = int(region.per_element(empty, memory.grain).sum())
            if count:
                self.world.findings.poison_read(Party(op, self.name, "read"), count, shared_text(buffer, region))
        return memory.read(buffer, region, (empty, hidden))

    def fence(self, component: str) -> None:
        """Its generic writes so far to the memory that the component is of may be seen by the async proxy."""
        self.clock[component, self.number] = self.tick()


def shared_text(buffer: Buffer, region: Region) -> str:
    """A region in a report."""
    return f"buffer {buffer} (bytes {buffer.base} to {buffer.base + region.buffer_bytes - 1} of shared memory)"
