"""Arrivals of workgroups at counters, and turns there: what one releases, those behind it acquire. Vector clocks tell what is left out."""

from collections.abc import Sequence

import numpy as np

from treadle.dialects import tile
from treadle.ir.core import Operation
from treadle.sim.arrivals import count_in, counter, pass_turn
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule.agents import Agent, World
from treadle.sim.schedule.clocks import join
from treadle.sim.schedule.code import Slots, Step
from treadle.sim.schedule.global_memory import GlobalView, Window, window_of
from treadle.sim.schedule.queues import Wait
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
        last = count_in(view.view, offsets, frame[count_at], op.name)
        passed_on = agent.world.counters.setdefault(_touch(op, agent, view, window, offsets, write=True), {})
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


def _touch(op: Operation, agent: Agent, view: GlobalView, window: Window, offsets: Sequence[int], *, write: bool) -> tuple[int, int]:
    """One step at a counter, which is the key of what is passed on there."""
    if view.watched is None:
        raise SimulationFault(f"{op.name} counts in an array that nothing writes")
    places = view.places(window, offsets, None)
    access = agent.access(op, write=write)
    access.is_atomic = True
    agent.enter(view.watched.shadow, places, access, lambda: f"global array {view.name}")
    return id(view.watched), int(places[0])


class TurnWait(Wait):
    """An agent waits for its turn at a counter."""

    def __init__(self, op: tile.AwaitTurnOp, agent: Agent, view: GlobalView, window: Window, offsets: Sequence[int], turn: int) -> None:
        super().__init__(op)
        self._op, self._agent, self._view, self._window, self._offsets, self._turn = op, agent, view, window, offsets, turn

    def _found(self) -> int:
        return counter(self._view.view, self._offsets, self._op.name)

    def ready(self) -> bool:
        return self._found() == self._turn

    def finish(self) -> None:
        key = _touch(self._op, self._agent, self._view, self._window, self._offsets, write=False)
        if self._op.acquires:
            join(self._agent.clock, self._agent.world.counters.setdefault(key, {}))

    def text(self) -> str:
        return f"waits for turn {self._turn} at counter {list(self._offsets)} of {self._view.name}, where it is turn {self._found()}"


def await_turn_step(op: tile.AwaitTurnOp, slots: Slots) -> Step:
    """One thread waits until the counter is its turn."""
    view_at, offsets_at, turn_at, window = slots.of(op.counters), slots.each(op.offsets), slots.of(op.turn), window_of((), (), op.offsets)

    def run(agent: Agent) -> Wait | None:
        if not agent.leader:
            return None
        frame = agent.frame
        return TurnWait(op, agent, frame[view_at], window, [frame[i] for i in offsets_at], int(frame[turn_at]))

    return Step(op, act=run)


def pass_turn_step(op: tile.PassTurnOp, slots: Slots) -> Step:
    """One thread ends its turn. What was passed on before is passed on by who took it over, and by nobody else: this is a store."""
    view_at, offsets_at, turn_at, count_at = slots.of(op.counters), slots.each(op.offsets), slots.of(op.turn), slots.of(op.count)
    window = window_of((), (), op.offsets)

    def run(agent: Agent) -> None:
        if not agent.leader:
            return
        frame = agent.frame
        view: GlobalView = frame[view_at]
        offsets = [frame[i] for i in offsets_at]
        pass_turn(view.view, offsets, int(frame[turn_at]), int(frame[count_at]), op.name)
        key = _touch(op, agent, view, window, offsets, write=True)
        agent.world.counters[key] = dict(agent.clock) if op.releases else {}

    return Step(op, act=run)


def local_flag_step(op: tile.LocalFlagOp, slots: Slots) -> Step:
    """Every warp reads the flag, at once: a branch waits for it."""
    flag_at, out, region = slots.of(op.flag), slots.of(op.result), whole_region(op.flag)

    def run(agent: Agent) -> None:
        buffer: Buffer = agent.frame[flag_at]
        agent.enter_shared(buffer, region, agent.access(op, write=False))
        agent.frame[out] = np.asarray(bool(agent.read_shared(op, buffer, region)[0]))

    return Step(op, act=run)


def check_counters(world: World, arrivals: Sequence[tile.OrderedCounterOp], findings: Findings) -> None:
    """Counters are zero behind a launch, as they were before it; else the next one counts wrong."""
    watched = {id(array): array for array in world.watched.values()}
    for array, place in world.counters:
        left = int(watched[array].data.reshape(-1)[place])
        if left:
            findings.misuse(arrivals[-1], "the last workgroup", f"the launch leaves {left} in counter {place}, where it found 0")
