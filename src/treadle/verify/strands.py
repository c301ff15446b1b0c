"""Strands in stretches of loops in which nobody waits, which need not be run in turn with others; and all strands of a run at work.

In kernels with roles not all go on together (`strands_apart.py`). Few iterations are sooner run than their states compared: `repetition.py`
is loaded when a strand comes to the first loop of more.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from treadle.verify.clocks import Agent, Ended, Frame, vector_of
from treadle.verify.events import Counted, Event, LoopNode, Node, Trace, TurnedEvent

if TYPE_CHECKING:
    from treadle.verify.repetition import Repetitions


FREE = ("access", "move", "commit", "wait", "fence")
"""Events after which a strand goes on whatever others do."""


class Strands:
    """The strands of a run, all of which go on together."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._free: dict[tuple[int, int], bool] = {}
        self._counting: dict[tuple[int, int], bool] = {}

    def changed(self) -> None:
        """A strand has come to another stretch of its outermost loop, or out of it."""

    def at_work(self, active: Sequence[Agent]) -> Sequence[Agent]:
        """The strands that go on next."""
        return active

    def give_way(self, active: Sequence[Agent]) -> bool:
        """Whether others may go on where those at work cannot."""
        return False

    # --- stretches in which nobody waits

    def is_counting(self, agent: Agent) -> bool:
        """Whether a strand begins an iteration of a loop of any length in which counters go on, and nothing else happens."""
        if agent.is_done or not agent.frames or agent.frames[-1].position or agent.frames[-1].loop < 0:
            return False
        frame = agent.frames[-1]
        found = self._counting.get((frame.loop, frame.segment))
        if found is None:
            node = self.nodes[frame.loop]
            found = isinstance(node, LoopNode) and node.segments[frame.segment].stretch >= 0
            rows = node.segments[frame.segment].iterations if isinstance(node, LoopNode) else ()
            found = found and all(isinstance(self.nodes[item], Counted) for row in rows for item in row)
            self._counting[frame.loop, frame.segment] = found
        return found

    def counts_for_nothing(self, agent: Agent) -> bool:
        """Whether a strand ends behind the loop that it is in, with nothing left to do that waits or asks how far a counter is."""
        outer, *loops = agent.frames[:-1]
        if any(frame.left > 1 or frame.position < len(frame.items) or not self._is_last(frame) for frame in loops):
            return False
        rest = [self.nodes[item] for item in outer.items[outer.position :]]
        return all(isinstance(node, Event) and node.kind in FREE for node in rest)

    def _is_last(self, frame: Frame) -> bool:
        node = self.nodes[frame.loop]
        return isinstance(node, LoopNode) and frame.segment == len(node.segments) - 1

    def is_level(self, agent: Agent, leader: Agent) -> bool:
        """Whether a strand begins the leader's iteration, or a later one, in a stretch where nobody waits: it would run on alone."""
        if not agent.frames or len(agent.frames) != len(leader.frames) or agent.frames[-1].position:
            return False
        pairs = zip(agent.frames, leader.frames, strict=True)
        if any(one.loop != other.loop for one, other in pairs) or vector_of(agent) < vector_of(leader):
            return False
        first, second = leader.frames[-1], agent.frames[-1]
        return first.segment == second.segment and self.is_free(first.loop, first.segment)

    def is_free(self, number: int, segment: int) -> bool:
        """Whether strands go through a segment of a loop without waiting for others."""
        found = self._free.get((number, segment))
        if found is None:
            node = self.nodes[number] if number >= 0 else None
            rows = node.segments[segment].iterations if isinstance(node, LoopNode) else ()
            found = isinstance(node, LoopNode) and all(self._goes_on(item) for row in rows for item in row)
            self._free[number, segment] = found
        return found

    def _goes_on(self, item: int) -> bool:
        node = self.nodes[item]
        if isinstance(node, Event | TurnedEvent):
            return node.kind in FREE
        if isinstance(node, LoopNode):
            return all(self.is_free(item, segment) for segment in range(len(node.segments)))
        return isinstance(node, Counted)


class FirstRounds:
    """The repetitions of the runs of an engine, which `make` makes when a strand is in such a stretch for the first time."""

    def __init__(self, nodes: list[Node], slots: int, at_work: Callable[[], Sequence[Agent]], make: "Callable[[], Repetitions]") -> None:
        self._nodes, self._slots, self._at_work, self._make = nodes, slots, at_work, make
        self._made: Repetitions | None = None
        self._trace: Trace | None = None
        self._log: list[Ended] = []

    @property
    def log(self) -> list[Ended]:
        """The executions of loops that are over in the run."""
        return self._log if self._made is None else self._made.log

    def begin(self, trace: Trace) -> None:
        """A run over a trace begins from the start."""
        self._trace, self._log = trace, []
        if self._made is not None:
            self._made.begin(trace)

    def come_by(self, trace: Trace) -> bool:
        """Begin a run over a trace at the last moment that was saved of one which it comes by; False where there is none."""
        return self._made is not None and self._made.come_by(trace)

    def turned(self) -> Agent | None:
        """The leader, where it has begun another iteration since it was asked for last."""
        if self._made is None and self._may_repeat(self._at_work()):
            self._made = self._begun_late()
        return None if self._made is None else self._made.turned()

    def look(self) -> bool:
        """Leave out what repeats; True where what is left is what another run has done."""
        return self._made is not None and self._made.look()

    def end(self) -> None:
        """The run is over, without a fault."""
        if self._made is not None:
            self._made.end()

    def _may_repeat(self, agents: Iterable[Agent]) -> bool:
        for agent in agents:
            for frame in agent.frames:
                node = self._nodes[frame.loop] if frame.loop >= 0 else None
                if isinstance(node, LoopNode) and frame.may_repeat(node.segments[frame.segment], self._slots):
                    return True
        return False

    def _begun_late(self) -> "Repetitions":
        """Made in the middle of a run: there were no states to be taken up to here, but loops may be over."""
        found = self._make()
        if self._trace is not None:
            found.begin(self._trace)
            found.log = self._log
        return found
