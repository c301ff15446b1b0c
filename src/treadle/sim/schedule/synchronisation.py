"""The operations of the `sync` dialect when an agent executes them."""

from collections.abc import Callable
from typing import Any

from treadle.dialects import sync, tile
from treadle.errors import InternalError
from treadle.ir.core import Operation
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule.agents import Agent, Frame
from treadle.sim.schedule.barriers import Mbarrier, Meeting, MeetingWait, PhaseWait
from treadle.sim.schedule.clocks import Clock
from treadle.sim.schedule.code import Slots, Step
from treadle.sim.schedule.queues import QueueWait, Wait
from treadle.sim.schedule.report import Party
from treadle.sim.schedule.shared import value_name


def _barrier(op: sync.BarrierOp, _: Slots) -> Step:
    groups = tile.ints(op.groups) if op.groups is not None else None
    bare = op.bare is not None

    def run(agent: Agent) -> Wait | None:
        if groups is not None and agent.split not in groups:
            return None
        if not bare:
            agent.flush()
        meeting = agent.workgroup.meeting
        return MeetingWait(op, agent, meeting, meeting.arrive(agent.clock))

    return Step(op, act=run)


def _named(op: sync.NamedBarrierOp, _: Slots) -> Step:
    warps, only_arrives = int(op.warps.value.data), op.arrive is not None

    def run(agent: Agent) -> Wait | None:
        named, findings = agent.workgroup.named, agent.world.findings
        number = op.number(agent.team.group)
        if number not in named:
            named[number] = Meeting(f"sync.named_barrier {number}", warps, agent.world.number())
        meeting = named[number]
        known = agent.clock.get(meeting.component, 0)
        if meeting.needed != warps and meeting.arrived:
            findings.misuse(op, agent.name, f"expects {warps} warps where others expect {meeting.needed}")
        meeting.needed = warps
        if known < max(meeting.completed, agent.met.get(meeting, 0)):
            findings.misuse(op, agent.name, "arrives before it can know that the last meeting there is over")
        agent.flush()
        agent.met[meeting] = reached = meeting.arrive(agent.clock)
        return None if only_arrives else MeetingWait(op, agent, meeting, reached)

    return Step(op, act=run)


def _cluster(op: sync.ClusterBarrierOp, _: Slots) -> Step:
    def run(agent: Agent) -> Wait:
        agent.flush()
        meeting = agent.workgroup.cluster
        reached = meeting.arrive(agent.clock)
        if meeting.completed == reached:
            for workgroup in agent.workgroup.peers:
                workgroup.touches.clear()
        return MeetingWait(op, agent, meeting, reached)

    return Step(op, act=run)


def _fence(op: sync.FenceOp, _: Slots) -> Step:
    component = {"async_shared": "fence", "async_global": "global fence"}.get(op.proxy.data)

    def run(agent: Agent) -> None:
        if component is not None:
            agent.fence(component)

    return Step(op, act=run)


def _commit(op: sync.CommitOp, _: Slots) -> Step:
    def run(agent: Agent) -> None:
        agent.queue(agent.world.queue_named(op.queue.data)).committed += 1

    return Step(op, act=run)


def _wait(op: sync.WaitOp, _: Slots) -> Step:
    name, pending, read = op.queue.data, int(op.pending.value.data), op.read is not None

    def run(agent: Agent) -> Wait | None:
        queue = agent.queue(agent.world.queue_named(name))
        last = queue.committed - pending
        return QueueWait(op, queue, last, agent.clock, read=read) if last > 0 else None

    return Step(op, act=run)


def _mbarrier_alloc(op: sync.MbarrierAllocOp, slots: Slots) -> Step:
    out, arrivals, count = slots.of(op.result), int(op.arrivals.value.data), op.slot_count()
    name = value_name(op.result)
    labels = [name if count == 1 else f"{name}[{i}]" for i in range(count)]

    def run(agent: Agent, frame: Frame) -> None:
        agent.executed[op] = agent.executed.get(op, 0) + 1
        found = agent.workgroup.allocated(agent, op, agent.executed[op], labels, arrivals)
        frame[out] = found if count > 1 else found[0]

    return Step(op, pure=run)


def _mbarrier_slot(op: sync.MbarrierSlotOp, slots: Slots) -> Step:
    source, index, out = slots.of(op.source), slots.of(op.index), slots.of(op.result)

    def run(_: Agent, frame: Frame) -> None:
        found: list[Mbarrier] | Mbarrier = frame[source]
        barriers = found if isinstance(found, list) else [found]
        if not 0 <= frame[index] < len(barriers):
            raise SimulationFault(f"{op.name} [{frame[index]}] of {len(barriers)} barriers")
        frame[out] = barriers[frame[index]]

    return Step(op, pure=run)


def _one(found: Mbarrier | list[Mbarrier]) -> Mbarrier:
    if isinstance(found, list):
        raise InternalError("an allocation of several transaction barriers is used without sync.mbarrier_slot")
    return found


def _expect(op: sync.MbarrierExpectOp, slots: Slots) -> Step:
    barrier, byte_count = slots.of(op.barrier), int(op.byte_count.value.data)

    def run(agent: Agent) -> None:
        if agent.leader:
            _arrived(op, agent, _one(agent.frame[barrier]), agent.clock, byte_count)

    return Step(op, act=run)


def _arrive(op: sync.ArriveOp, slots: Slots) -> Step:
    barrier = slots.of(op.barrier)

    def run(agent: Agent) -> None:
        agent.flush()
        for workgroup, found in agent.reached(op, _one(agent.frame[barrier]), op.peer_ranks(agent.workgroup.rank)):
            if agent.team.is_early(found, agent.warp):
                agent.world.findings.misuse(op, agent.name, f"{found.name}: an arrival counts for the phase before the one it belongs to")
            clock = agent.team.arrive(found, agent.warp, agent.clock)
            if clock is not None:
                if workgroup is not agent.workgroup:
                    workgroup.touches.append((Party(op, agent.name, "write"), found.component, found.completed + 1))
                _arrived(op, agent, found, clock, 0)

    return Step(op, act=run)


def _arrived(op: Operation, agent: Agent, barrier: Mbarrier, clock: Clock, byte_count: int) -> None:
    problem = barrier.arrive(clock, byte_count)
    if problem:
        agent.world.findings.misuse(op, agent.name, f"{barrier.name}: {problem}")


def _wait_phase(op: sync.WaitPhaseOp, slots: Slots) -> Step:
    barrier, parity = slots.of(op.barrier), slots.of(op.parity)

    def run(agent: Agent) -> Wait:
        found, wanted = _one(agent.frame[barrier]), int(agent.frame[parity])
        if wanted not in (0, 1):
            agent.world.findings.misuse(op, agent.name, f"waits for parity {wanted} of {found.name}; there are 0 and 1")
        return PhaseWait(op, agent, found, wanted & 1)

    return Step(op, act=run)


def _nothing(op: sync.SchedFenceOp | sync.SetPriorityOp, _: Slots) -> Step:
    return Step(op, pure=lambda agent, frame: None)


_STEPS: dict[type[Operation], Callable[[Any, Slots], Step]] = {
    sync.BarrierOp: _barrier,
    sync.NamedBarrierOp: _named,
    sync.ClusterBarrierOp: _cluster,
    sync.FenceOp: _fence,
    sync.CommitOp: _commit,
    sync.WaitOp: _wait,
    sync.MbarrierAllocOp: _mbarrier_alloc,
    sync.MbarrierSlotOp: _mbarrier_slot,
    sync.MbarrierExpectOp: _expect,
    sync.ArriveOp: _arrive,
    sync.WaitPhaseOp: _wait_phase,
    sync.SchedFenceOp: _nothing,
    sync.SetPriorityOp: _nothing,
}


def sync_step(op: Operation, slots: Slots) -> Step | None:
    """What an operation of `sync` does; None for others."""
    make = _STEPS.get(type(op))
    return make(op, slots) if make is not None else None
