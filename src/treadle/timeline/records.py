"""What kernels recorded about themselves, read back: the words of `stamp` (dialects/stamp.py) as a timeline. Pure: arrays in, spans out.

Within a workgroup times are the compute unit's clock. Workgroups are laid beside each other by the clock they share, which is coarser.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from treadle.dialects.stamp import CLOCK_BITS, HEADER, ISSUE_SPANS
from treadle.errors import NO_TIMELINE, TreadleError
from treadle.machine import known_spec
from treadle.timeline.kernels import Timeline
from treadle.timeline.model import Outcome
from treadle.timeline.steps import Span, SpanKind

_KINDS: dict[str, SpanKind] = {"matrix": "matrix", "copy_out": "store", "copy_in": "copy"}
"""The spans of a queue's groups, by its role."""
_MASK = (1 << CLOCK_BITS) - 1
_LONG_ENOUGH_NS = 20_000
"""From here on the granularity of the shared clock (about a microsecond on some machines) leaves a usable rate of the other."""


@dataclass(frozen=True, slots=True)
class Recording:
    """How a kernel's records are to be read: `events` gives by number what ends and what begins, as "kind: label"."""

    kernel: str
    target: str
    lanes: tuple[str, ...]
    workgroups: int
    capacity: int
    clock_mhz: int
    events: Mapping[int, tuple[str | None, str | None]]


@dataclass(slots=True)
class _Agent:
    """One agent's records: the shared clock in ns and the unit's clock at begin and end, and its events as (number, clocks since begin)."""

    steady: tuple[int, int]
    clock: tuple[int, int]
    unit: int
    is_full: bool
    events: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


def _agent(words: NDArray[np.int64], capacity: int) -> _Agent | None:
    """An agent's records; None where there are none."""
    steady, clock, unit, steady_end, clock_end, count = (int(word) for word in words[:6])
    if not 0 <= count <= capacity - HEADER or clock_end < clock or steady_end < steady:
        return None
    found = _Agent((steady, steady_end), (clock, clock_end), unit, count == capacity - HEADER)
    for word in words[HEADER : HEADER + count]:
        record = int(word) & ((1 << 64) - 1)
        found.events.append((record >> CLOCK_BITS, ((record & _MASK) - (clock & _MASK)) & _MASK))
    return found


def clock_mhz(agents: list[_Agent], nominal: int) -> int:
    """The rate of the units' clock by the shared one, from the agent that ran longest; the nominal one where all ran too shortly."""
    longest = max(agents, key=lambda agent: agent.steady[1] - agent.steady[0])
    nanoseconds = longest.steady[1] - longest.steady[0]
    return nominal if nanoseconds < _LONG_ENOUGH_NS else round((longest.clock[1] - longest.clock[0]) * 1e3 / nanoseconds)


def read_records(words: NDArray[Any], recording: Recording) -> Timeline:
    """The timeline of one launch. Raises TR824 where nothing was recorded, or something that the kernel cannot have written."""
    shape = (recording.workgroups, len(recording.lanes), recording.capacity)
    table = words.astype(np.int64, copy=False).reshape(shape)
    read = {(wg, lane): _agent(table[wg, lane], recording.capacity) for wg in range(shape[0]) for lane in range(shape[1])}
    agents = {place: agent for place, agent in read.items() if agent is not None}
    if not agents:
        raise _refusal(recording, "no workgroup left records")
    mhz = clock_mhz(list(agents.values()), recording.clock_mhz)
    earliest = min(agent.steady[0] for agent in agents.values())
    spans: list[Span] = []
    lanes: list[str] = []
    end = 0.0
    for wg in sorted({wg for wg, _ in agents}):
        mine = {lane: agent for (number, lane), agent in agents.items() if number == wg}
        first = min(mine.values(), key=lambda agent: agent.clock[0])
        start = (first.steady[0] - earliest) * mhz / 1e3
        for lane, agent in mine.items():
            name = recording.lanes[lane] if shape[0] == 1 else f"wg{wg} {recording.lanes[lane]}"
            lanes.append(name)
            at = start + agent.clock[0] - first.clock[0]
            spans += _spans(agent, at, name, recording)
            end = max(end, at + agent.clock[1] - agent.clock[0])
    outcome = Outcome(sorted(spans, key=lambda s: (s.start, s.lane)), end, any(agent.is_full for agent in agents.values()))
    count = len({wg for wg, _ in agents})
    return Timeline(recording.kernel, recording.target, tuple(lanes), count, mhz, outcome, is_measured=True)


def _refusal(recording: Recording, reason: str) -> TreadleError:
    return TreadleError(NO_TIMELINE, kernel=recording.kernel, reason=reason, hint="run it again; if it stays so, report it")


def _spans(agent: _Agent, at: float, lane: str, recording: Recording) -> list[Span]:
    """An agent's spans from clock `at`, and those of the queues it waited for: a group is in flight until a wait knows it to be done."""
    spans: list[Span] = []
    spec = known_spec(recording.target)
    known = [queue for queue in spec.queues if queue.is_committed] if spec is not None else []
    queues: dict[str, deque[float]] = {queue.name: deque() for queue in known}
    reached: dict[str, float] = dict.fromkeys(queues, 0.0)
    under_way: tuple[str, float] | None = None
    for number, clocks in agent.events:
        if number not in recording.events:
            raise _refusal(recording, f"{lane} recorded the event {number}, which the kernel does not have")
        ends, begins = recording.events[number]
        time = at + clocks
        if ends is not None and under_way is not None and under_way[0] == ends:
            kind, label = ends.split(": ", 1)
            spans.append(Span(lane, cast("SpanKind", kind), label, under_way[1], time, lane))
            for queue in known:
                if ends == ISSUE_SPANS[queue.role]:
                    queues[queue.name].append(under_way[1])
                if kind == "wait" and label.startswith(f"{queue.name} <= "):
                    left = int(label.rpartition(" ")[2])
                    while len(queues[queue.name]) > left:
                        begin = max(queues[queue.name].popleft(), reached[queue.name])
                        reached[queue.name] = time
                        spans.append(Span(f"{lane} {queue.name}", _KINDS[queue.role], "in flight", begin, time, lane))
        under_way = None if begins is None else (begins, time)
    return [span for span in spans if span.end > span.start]
