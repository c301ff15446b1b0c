"""Leaving out whole rounds of loops once the state of a run repeats.

Traces say how often a stretch of a loop is done. When two moments of a run have the same state (where everybody stands, who knows what
about every access in flight, phases, meetings), whatever happened between them happens again as long as all stretches go on, so as many
such rounds as all of them have left are left out at once. Rounds of the remainder are still run.
"""

from typing import TYPE_CHECKING

from treadle.verify.clocks import Agent, Clock
from treadle.verify.events import LoopNode
from treadle.verify.memory import is_fenced, needs_fence

if TYPE_CHECKING:
    from treadle.verify.engine import Engine

State = tuple[object, ...]
MAX_STATES = 512


class Repetitions:
    """The states of a run so far."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        self.seen: dict[State, tuple[tuple[int, ...], ...]] = {}
        self.oldest = engine.program.depth() + 2

    def look(self) -> None:
        """Called between rounds: leave out what repeats."""
        agents = self.engine.active
        if not any(frame.left > 1 for agent in agents for frame in agent.frames):
            return
        state = self._state(agents)
        left = tuple([tuple([frame.left for frame in agent.frames]) for agent in agents])
        before = self.seen.get(state)
        if before is not None and self._leave_out(agents, before, left):
            self.seen.clear()
            return
        if len(self.seen) >= MAX_STATES:
            self.seen.clear()
        self.seen[state] = left

    def _leave_out(self, agents: list[Agent], before: tuple[tuple[int, ...], ...], now: tuple[tuple[int, ...], ...]) -> bool:
        rounds = 1 << 62
        jumps: list[tuple[Agent, int, int]] = []
        for agent, old, new in zip(agents, before, now, strict=True):
            moved = [(depth, a - b) for depth, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
            if not moved:
                continue
            if len(moved) > 1 or moved[0][1] < 0:
                return False
            depth, step = moved[0]
            rounds = min(rounds, (new[depth] - 1) // step)
            jumps.append((agent, depth, step))
        if not jumps or not rounds:
            return False
        for agent, depth, step in jumps:
            frame = agent.frames[depth]
            frame.left -= rounds * step
            node = self.engine.nodes[frame.loop]
            if isinstance(node, LoopNode):
                frame.number += rounds * step * len(node.segments[frame.segment].iterations)
        return True

    # --- states

    def _state(self, agents: list[Agent]) -> State:
        engine = self.engine
        clocks: list[Clock] = [agent.clock for agent in agents]
        base = engine.components.mbarrier
        found: list[object] = []
        for phases in engine.barriers.phases:
            clocks += [phases.clock, *phases.completions.values()]
            clocks += [clock for value in phases.parts.values() for clock in value]
        clocks += [meeting.clock for meeting in engine.barriers.named.values()]
        for at, phases in enumerate(engine.barriers.phases):
            completed, component = phases.completed, base + at
            known = tuple([self._lag(completed - (c[component] if len(c) > component else 0)) for c in clocks])
            parts = tuple(sorted((key, len(value)) for key, value in phases.parts.items() if value))
            waiters = tuple(
                sorted(
                    (w.number, count - completed, tuple([_knows(c, w.number, time) for c in clocks]))
                    for count, waiting in phases.waiters.items()
                    for w, time, _ in waiting
                )
            )
            found.append((completed & 1, phases.arrived, phases.announced, phases.delivered, known, waiters, parts))
        for name, meeting in engine.barriers.named.items():
            component = engine.components.meeting(name)
            late = tuple([min(meeting.over - (c[component] if len(c) > component else 0), 2) for c in clocks])
            found.append((meeting.warps, tuple([a.number for a in meeting.came]), late))
        for agent in agents:
            place = tuple([(f.loop, f.segment, f.iteration, f.position) for f in agent.frames])
            target = 0
            if agent.blocked == "phase" and agent.waiting is not None:
                target = agent.target - engine.barriers.phases[agent.waiting.barrier].completed
            tiles = tuple(
                sorted(
                    (register, event.op_index, min(agent.closed.get(event.queue, 0) - value, self.oldest))
                    for register, (component, value, event) in agent.registers.items()
                    if agent.at(component) < value
                )
            )
            found.append((place, agent.blocked, target, tiles, agent.is_done))
        found.append(self._records(clocks))
        found.append(frozenset(region for written in engine.memory.written.values() for region in written))
        return tuple(found)

    def _records(self, clocks: list[Clock]) -> tuple[object, ...]:
        engine, oldest, base = self.engine, self.oldest, self.engine.components.mbarrier
        rows: list[tuple[object, ...]] = []
        for records in engine.memory.records.values():
            for record in records:
                component, value = record.component, record.value
                queue = record.access.queue
                if not queue:
                    age = 0
                elif queue == "mbarrier":
                    age = engine.barriers.phases[component - base].completed - value
                    age = age if age < oldest else oldest + age % 2
                else:
                    age = min(record.agent.closed.get(queue, 0) - value, oldest)
                known = tuple([len(clock) > component and clock[component] >= value for clock in clocks])
                if needs_fence(record.access):
                    known += tuple([is_fenced(engine, record, clock) for clock in clocks])
                rows.append((*record.sort_key(), age, known))
        rows.sort()
        return tuple(rows)

    @staticmethod
    def _lag(lag: int) -> int:
        return lag if lag < 4 else 4 + lag % 2


def _knows(clock: Clock, component: int, value: int) -> bool:
    return len(clock) > component and clock[component] >= value
