"""Arrivals of workgroups at counters: what one releases, those behind it acquire. Vector clocks say what either leaves out."""

import numpy as np

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.sim.arrivals import count_in
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule.agents import Agent, World
from treadle.sim.schedule.clocks import join
from treadle.sim.schedule.code import Slots, Step
from treadle.sim.schedule.global_memory import GlobalView, window_of
from treadle.sim.schedule.report import Findings
from treadle.sim.schedule.shared import Buffer, whole_region


def count_in_step(op: tile.CountInOp, slots: Slots) -> Step:
    """One thread counts, and leaves in shared memory whether it was the last."""
    view_at, offsets_at, count_at, flag_at = slots.of(op.counters), slots.each(op.offsets), slots.of(op.count), slots.of(op.flag)
    region, window = whole_region(op.flag), window_of((), (), op.offsets)

    def run(agent: Agent) -> None:
        if not agent.leader:
            return
        frame = agent.frame
        view: GlobalView = frame[view_at]
        offsets = [frame[i] for i in offsets_at]
        if view.watched is None:
            raise SimulationFault(f"{op.name} counts in an array that nothing writes")
        places = view.places(window, offsets, None)
        last = count_in(view.view, offsets, frame[count_at], op.name)
        access = agent.access(op, write=True)
        access.is_atomic = True
        agent.enter(view.watched.shadow, places, access, lambda: f"global array {view.name}")
        passed_on = agent.world.counters.setdefault((id(view.watched), int(places[0])), {})
        if op.releases:
            join(passed_on, agent.clock)
        if op.acquires:
            join(agent.clock, passed_on)
        _leave(op, agent, frame[flag_at], np.full((1,), int(last), np.int32))

    def _leave(op: Operation, agent: Agent, buffer: Buffer, value: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        memory, local = agent.workgroup.memory, agent.world.local_queue
        queue = agent.queue(local) if local is not None else None
        agent.enter_shared(buffer, region, agent.access(op, write=True, queue=queue))
        if queue is None:
            memory.write(buffer, region, value)
        else:
            agent.issue(op, queue, lambda: value, lambda v: memory.write(buffer, region, v))

    return Step(op, act=run)


def local_flag_step(op: tile.LocalFlagOp, slots: Slots) -> Step:
    """Every warp reads the flag, at once: a branch waits for it."""
    flag_at, out, region = slots.of(op.flag), slots.of(op.result), whole_region(op.flag)

    def run(agent: Agent) -> None:
        buffer: Buffer = agent.frame[flag_at]
        agent.enter_shared(buffer, region, agent.access(op, write=False))
        agent.frame[out] = np.asarray(bool(agent.read_shared(op, buffer, region)[0]))

    return Step(op, act=run)


def check_counters(world: World, arrivals: list[tile.CountInOp], findings: Findings) -> None:
    """Counters are zero behind a launch, as they were before it; else the next one counts wrong."""
    watched = {id(array): array for array in world.watched.values()}
    for array, place in world.counters:
        left = int(watched[array].data.reshape(-1)[place])
        if left:
            findings.misuse(arrivals[0], "the last workgroup", f"the launch leaves {left} in counter {place}, where it found 0")
