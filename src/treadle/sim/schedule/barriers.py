"""Barriers: the workgroup's, named ones, the cluster's, and transaction barriers with phases."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from treadle.dialects.limits import MAX_BYTES
from treadle.ir.core import Operation
from treadle.sim.schedule.clocks import Clock, Component, join
from treadle.sim.schedule.queues import AsyncOperation, Wait

if TYPE_CHECKING:
    from treadle.sim.schedule.agents import Agent


class Meeting:
    """A barrier that takes `needed` arrivals: the k-th arrivals of all are one meeting, wherever they stand."""

    def __init__(self, name: str, needed: int, number: int) -> None:
        self.name, self.needed = name, needed
        self.component: Component = ("meeting", number)
        self.arrived = 0
        self.completed = 0
        self._gathering: Clock = {}
        self._clocks: dict[int, Clock] = {}

    def arrive(self, clock: Clock) -> int:
        """One arrival; the number of the meeting it belongs to, from 1."""
        number = self.completed + 1
        join(self._gathering, clock)
        self.arrived += 1
        if self.arrived >= self.needed:
            self.completed, self.arrived = number, 0
            self._clocks[number], self._gathering = {**self._gathering, self.component: number}, {}
        return number

    def clock_of(self, number: int) -> Clock:
        """What all arrivals of a meeting knew."""
        return self._clocks[number]


class MeetingWait(Wait):
    """An agent that arrived waits for the others."""

    def __init__(self, op: Operation, agent: "Agent", meeting: Meeting, number: int) -> None:
        super().__init__(op)
        self._agent, self._meeting, self._number = agent, meeting, number

    def ready(self) -> bool:
        return self._meeting.completed >= self._number

    def finish(self) -> None:
        join(self._agent.clock, self._meeting.clock_of(self._number))

    def text(self) -> str:
        return (
            f"waits at {self._meeting.name}, meeting {self._number}: {self._meeting.arrived} of {self._meeting.needed} arrivals "
            f"({self._meeting.completed} meetings complete)"
        )


class ConditionWait(Wait):
    """Waits for a condition of the engine; `then` runs when it holds."""

    def __init__(self, op: Operation, condition: Callable[[], bool], then: Callable[[], None], text: str) -> None:
        super().__init__(op)
        self._condition, self._then, self._text = condition, then, text

    def ready(self) -> bool:
        return self._condition()

    def finish(self) -> None:
        self._then()

    def text(self) -> str:
        return self._text


class Mbarrier:
    """A transaction barrier: a phase completes after its arrivals and all bytes announced.

    `signalling`: copies in flight that will report their bytes here. `_waits`: where waits for a phase stand, as a component and its time;
    the next phase may complete only where that is known. `place`: its allocation, how often that had been executed, its slot.
    """

    def __init__(self, name: str, number: int, arrivals: int, place: tuple[Operation, int, int]) -> None:
        self.name, self.place = name, place
        self.component = ("mbarrier", number)
        self.completed = 0
        self.signalling: list[AsyncOperation] = []
        self._arrivals = self._missing = arrivals
        self._bytes = self._announced = 0
        self._clock: Clock = {}
        self._done: Clock = {}
        self._waits: dict[int, list[tuple[Component, int]]] = {}

    @property
    def missing(self) -> int:
        """Arrivals that the phase still lacks."""
        return self._missing

    def arrive(self, clock: Clock, byte_count: int = 0) -> str:
        """One arrival that announces bytes; what is wrong with it."""
        if self._missing == 0:
            return f"an arrival at a phase that has all of its own ({self.state()})"
        join(self._clock, clock)
        self._missing -= 1
        self._bytes += byte_count
        self._announced += byte_count
        if self._announced > MAX_BYTES:
            return f"{self._announced} bytes announced in a phase, which counts {MAX_BYTES}"
        return self._check()

    def landed(self, byte_count: int) -> str:
        """A copy reports its bytes, which count for the phase after the complete ones; what is wrong with it."""
        self._bytes -= byte_count
        return self._check()

    def _check(self) -> str:
        if self._missing:
            return ""
        if self._bytes < 0:
            return "a phase gets more bytes than were announced"
        if self._bytes > 0:
            return ""
        overtaken = any(self._clock.get(c, 0) < time for c, time in self._waits.pop(self.completed, ()))
        early = bool(self.signalling)
        self.completed += 1
        self._missing, self._announced = self._arrivals, 0
        self._clock[self.component] = self.completed
        self._done = dict(self._clock)
        if early:
            return "a phase completes before all copies that signal it are there: more bytes are copied than were announced"
        return "a phase completes while a wait for the one before it may still be looking" if overtaken else ""

    def waited(self, component: Component, time: int) -> None:
        """A wait that found the last phase complete ended at this time."""
        self._waits.setdefault(self.completed, []).append((component, time))

    def is_complete(self, parity: int) -> bool:
        """Whether the phase of that parity is complete; a fresh barrier has completed parity 1."""
        return self.completed % 2 != parity

    @property
    def done(self) -> Clock:
        """What happened before the phase completed last."""
        return self._done

    def state(self) -> str:
        """Its phase in words."""
        seen = self._arrivals - self._missing
        return f"{self.completed} phase(s) complete, then {seen} of {self._arrivals} arrivals seen, {self._bytes} bytes outstanding"


class PhaseWait(Wait):
    """An agent waits for a phase."""

    def __init__(self, op: Operation, agent: "Agent", barrier: Mbarrier, parity: int) -> None:
        super().__init__(op)
        self._agent, self._barrier, self._parity = agent, barrier, parity

    def ready(self) -> bool:
        return self._barrier.is_complete(self._parity)

    def finish(self) -> None:
        join(self._agent.clock, self._barrier.done)
        self._barrier.waited(("order", self._agent.number), self._agent.tick())

    def landable(self) -> Sequence[AsyncOperation]:
        return self._barrier.signalling

    def text(self) -> str:
        return f"waits for parity {self._parity} of {self._barrier.name}: {self._barrier.state()}"
