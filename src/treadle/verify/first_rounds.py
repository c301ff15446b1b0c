"""Whether the state of a run may come back in the loops that its strands are in, which is asked before anything is kept of states.

Few iterations are sooner run than compared. A kernel whose loops all have few needs nothing of `repetition.py`, which is loaded when a
strand comes to the first loop of more.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from treadle.verify.clocks import Agent, Ended
from treadle.verify.events import LoopNode, Node, Trace

if TYPE_CHECKING:
    from treadle.verify.repetition import Repetitions


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
