"""Stretches of loops that strands go through without waiting for others: they could run on alone, as far as these go."""

from collections.abc import Sequence

from treadle.verify.clocks import Agent, Frame, vector_of
from treadle.verify.events import Counted, Event, LoopNode, Node, TurnedEvent

FREE = ("access", "move", "commit", "wait", "fence")
"""Events after which a strand goes on whatever others do."""


class FreeStretches:
    """Those of the loops among some nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._known: dict[tuple[int, int], bool] = {}

    def at_work(self, active: Sequence[Agent]) -> Sequence[Agent]:
        """The strands that go on next: those of one group of a role alone where it is in a stretch of any length in which it waits for
        nobody, so that what repeats there has nothing to do with what others do meanwhile.
        """
        for agent in active:
            if agent.frames and agent.strand.trace >= 0 and not agent.blocked and self._is_alone(agent.frames[-1]):
                return [other for other in active if other.strand.team == agent.strand.team]
        return active

    def _is_alone(self, frame: Frame) -> bool:
        """Whether a strand begins an iteration of a stretch that may be longer, and waits for nobody there."""
        node = self.nodes[frame.loop] if frame.loop >= 0 and not frame.position else None
        return isinstance(node, LoopNode) and node.segments[frame.segment].stretch >= 0 and self._is_free(frame.loop, frame.segment)

    def is_level(self, agent: Agent, leader: Agent) -> bool:
        """Whether a strand begins the leader's iteration, or a later one, in a stretch where nobody waits: it would run on alone."""
        if not agent.frames or len(agent.frames) != len(leader.frames) or agent.frames[-1].position:
            return False
        pairs = zip(agent.frames, leader.frames, strict=True)
        if any(one.loop != other.loop for one, other in pairs) or vector_of(agent) < vector_of(leader):
            return False
        first, second = leader.frames[-1], agent.frames[-1]
        return first.segment == second.segment and self._is_free(first.loop, first.segment)

    def _is_free(self, number: int, segment: int) -> bool:
        """Whether strands go through a segment of a loop without waiting for others."""
        found = self._known.get((number, segment))
        if found is None:
            node = self.nodes[number] if number >= 0 else None
            rows = node.segments[segment].iterations if isinstance(node, LoopNode) else ()
            found = isinstance(node, LoopNode) and all(self._goes_on(item) for row in rows for item in row)
            self._known[number, segment] = found
        return found

    def _goes_on(self, item: int) -> bool:
        node = self.nodes[item]
        if isinstance(node, Event | TurnedEvent):
            return node.kind in FREE
        if isinstance(node, LoopNode):
            return all(self._is_free(item, segment) for segment in range(len(node.segments)))
        return isinstance(node, Counted)
