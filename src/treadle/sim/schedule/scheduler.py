"""Who runs next, and when asynchronous operations take effect.

`late`: every agent runs until it must wait, in a fixed order; an operation takes effect only when nobody can run otherwise. `random`: at
every memory or synchronisation operation a draw decides which agent goes on, or which operation in flight reads its sources or lands.
Both are functions of the seed.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from treadle.sim.schedule.agents import Agent, Workgroup
from treadle.sim.schedule.queues import AsyncOperation
from treadle.sim.schedule.report import Blocked, Deadlock, Findings

Mode = Literal["late", "random"]
_LANDING = 0.3
"""Share of the draws of `random` that let an operation in flight take effect."""


class Scheduler:
    """Runs the agents of the workgroups of a cluster to their end or to a deadlock."""

    def __init__(self, mode: Mode, rng: np.random.Generator, *, shuffle: bool) -> None:
        self._mode: Mode = mode
        self._rng = rng
        self._shuffle = shuffle

    def run(self, workgroups: Sequence[Workgroup], findings: Findings) -> bool:
        """Run; False where they deadlock, which is added to the findings."""
        return self._run_random(workgroups, findings) if self._mode == "random" else self._run_late(workgroups, findings)

    def _run_late(self, workgroups: Sequence[Workgroup], findings: Findings) -> bool:
        while True:
            agents = _live(workgroups)
            if not agents:
                return True
            if self._shuffle:
                order: list[int] = self._rng.permutation(len(agents)).tolist()
                agents = [agents[i] for i in order]
            ran = False
            for agent in agents:
                if agent.wait is None or agent.wait.ready():
                    _advance(agent)
                    ran = True
            if ran:
                continue
            waiting = next((a for a in agents if a.wait is not None and a.wait.landable()), None)
            if waiting is None or waiting.wait is None:
                return _deadlock(workgroups, findings)
            waiting.wait.take()

    def _run_random(self, workgroups: Sequence[Workgroup], findings: Findings) -> bool:
        while True:
            agents = _live(workgroups)
            if not agents:
                return True
            ready = [a for a in agents if a.wait is None or a.wait.ready()]
            moving = [o for w in workgroups for o in _landable(w)]
            if moving and (not ready or self._rng.random() < _LANDING):
                operation = moving[int(self._rng.integers(len(moving)))]
                if operation.has_read or self._rng.random() < 0.5:
                    operation.land()
                else:
                    operation.read()
            elif ready:
                _advance(ready[int(self._rng.integers(len(ready)))])
            else:
                return _deadlock(workgroups, findings)


def _live(workgroups: Sequence[Workgroup]) -> list[Agent]:
    return [a for w in workgroups for a in w.agents if not a.ended]


def _advance(agent: Agent) -> None:
    if agent.coroutine is None:
        agent.ended = True
        return
    try:
        agent.wait = next(agent.coroutine)
    except StopIteration:
        agent.wait, agent.ended = None, True


def _landable(workgroup: Workgroup) -> list[AsyncOperation]:
    """Operations in flight that may take effect now: of queues that keep their order, the oldest."""
    workgroup.in_flight = [o for o in workgroup.in_flight if not o.done]
    found: list[AsyncOperation] = []
    busy: set[int] = set()
    for operation in workgroup.in_flight:
        queue = operation.queue
        if queue is None or not queue.facts.is_ordered:
            found.append(operation)
        elif id(queue) not in busy:
            busy.add(id(queue))
            found.append(operation)
    return found


def _deadlock(workgroups: Sequence[Workgroup], findings: Findings) -> bool:
    blocked = [
        Blocked(a.name, a.wait.op if a.wait is not None else None, a.wait.text() if a.wait is not None else "has ended")
        for w in workgroups
        for a in w.agents
    ]
    findings.deadlock = Deadlock(tuple(blocked))
    return False
