"""Which strands have to do with one another in the loops that they are in: others need not go on meanwhile.

A run may take any order of turns that its waits allow. Where some strands are in stretches of loops in which they wait for one another
alone, they go on by themselves: what repeats there is told without what others do at the same time, whose loops may have other lengths.
"""

from collections.abc import Iterable, Sequence

from treadle.verify.clocks import Agent, Frame
from treadle.verify.events import Counted, Event, LoopNode, Node, TurnedEvent
from treadle.verify.program import Program
from treadle.verify.strands import FREE, Strands

ALL = -1
"""What all strands meet at."""


class StrandsApart(Strands):
    """The strands of a run with roles, and who of them goes on. What they meet at are bits of a number."""

    def __init__(self, program: Program, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self._meets: dict[int, int] = {}
        self._bits: dict[object, int] = {}
        self._alloc_of = [at for at, op in enumerate(program.mbarriers.base) for _ in range(op.slot_count())]  # type: ignore[attr-defined]
        self._is_cluster = program.cluster > 1
        self._stuck: set[int] = set()
        self._group: Sequence[Agent] | None = None

    def changed(self) -> None:
        """A strand has come to another stretch of its outermost loop, or out of it."""
        self._group = None
        self._stuck.clear()

    def at_work(self, active: Sequence[Agent]) -> Sequence[Agent]:
        """The strands that go on next."""
        if self._is_cluster or active[0].strand.trace < 0:
            return active
        for agent in active:
            if agent.frames and not agent.blocked and self._is_alone(agent.frames[-1]) and not self.is_counting(agent):
                return [other for other in active if other.strand.team == agent.strand.team]
        if self._group is None:
            self._group = self._together(active)
        return self._group

    def give_way(self, active: Sequence[Agent]) -> bool:
        """Whether others may go on where those at work cannot."""
        if self._group is None or self._group is active:
            return False
        self._stuck.update([agent.number for agent in self._group])
        self._group = None
        return True

    # --- who waits for whom

    def _together(self, active: Sequence[Agent]) -> Sequence[Agent]:
        """The first strand in a loop of any length, and all that wait for it, or it for them, where they are; all where there is none."""
        seed = next((agent for agent in active if agent.number not in self._stuck and self._is_open(agent)), None)
        if seed is None:
            return active
        meets = {agent.number: self._meets_at(agent) for agent in active}
        teams, reached = {seed.strand.team}, meets[seed.number]
        while True:
            found = [agent for agent in active if agent.strand.team in teams or meets[agent.number] & reached]
            more = {agent.strand.team for agent in found}
            if more == teams:
                break
            teams = more
            for agent in found:
                reached |= meets[agent.number]
        return active if len(found) == len(active) else found

    def _is_open(self, agent: Agent) -> bool:
        if agent.is_done or len(agent.frames) < 2:
            return False
        node = self.nodes[agent.frames[1].loop]
        return isinstance(node, LoopNode) and any(segment.stretch >= 0 for segment in node.segments)

    def _meets_at(self, agent: Agent) -> int:
        """What a strand meets others at: in the stretch of its outermost loop, else in all that is left to it."""
        if agent.is_done or not agent.frames:
            return 0
        if len(agent.frames) == 1 or self.is_counting(agent):
            rest = agent.frames[0].items[agent.frames[0].position :]
            return self._of_all(rest, agent) | (self._of(agent.frames[1].loop, agent) if len(agent.frames) > 1 else 0)
        frame = agent.frames[1]
        node = self.nodes[frame.loop]
        rows = node.segments[frame.segment].iterations if isinstance(node, LoopNode) else ()
        return self._of_all([item for row in rows for item in row], agent)

    def _of_all(self, items: Iterable[int], agent: Agent) -> int:
        found = 0
        for item in items:
            found |= self._of(item, agent)
        return found

    def _of(self, item: int, agent: Agent) -> int:
        found = self._meets.get(item)
        if found is None:
            node = self.nodes[item]
            if isinstance(node, LoopNode):
                found = self._of_all([inner for segment in node.segments for row in segment.iterations for inner in row], agent)
            elif isinstance(node, Counted):
                found = 0
            else:
                event = node.at(agent.counts) if isinstance(node, TurnedEvent) else node
                found = self._of_event(event) if isinstance(event, Event) else ALL
            self._meets[item] = found
        return found

    def _of_event(self, event: Event) -> int:
        if event.barrier >= 0:
            return self._bit(self._alloc_of[event.barrier])
        if event.kind == "named":
            return self._bit(event.queue)
        return 0 if event.kind in FREE else ALL

    def _bit(self, what: object) -> int:
        return self._bits.setdefault(what, 1 << len(self._bits))

    def _is_alone(self, frame: Frame) -> bool:
        """Whether a strand begins an iteration of a stretch that may be longer, and waits for nobody there."""
        node = self.nodes[frame.loop] if frame.loop >= 0 and not frame.position else None
        return isinstance(node, LoopNode) and node.segments[frame.segment].stretch >= 0 and self.is_free(frame.loop, frame.segment)
