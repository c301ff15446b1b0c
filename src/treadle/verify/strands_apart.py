"""Which strands have to do with one another in the loops that they are in: others need not go on meanwhile.

A run may take any order of turns that its waits allow. Where some strands are in stretches of loops in which they wait for one another
alone, they go on by themselves: what repeats there is told without what others do at the same time, whose loops may have other lengths.
"""

from collections.abc import Iterable, Sequence

from treadle.verify.clocks import Agent, Frame, vector_of
from treadle.verify.events import Counted, Event, LoopNode, Node, TurnedEvent
from treadle.verify.program import Program

FREE = ("access", "move", "commit", "wait", "fence")
"""Events after which a strand goes on whatever others do."""
ALL = -1
"""What all strands meet at."""


class StrandsApart:
    """The strands of a run, and who of them goes on. What they meet at are bits of a number."""

    def __init__(self, program: Program, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._free: dict[tuple[int, int], bool] = {}
        self._meets: dict[int, int] = {}
        self._bits: dict[object, int] = {}
        self._alloc_of = [at for at, op in enumerate(program.mbarriers.base) for _ in range(op.slot_count())]  # type: ignore[attr-defined]
        self._is_cluster = program.cluster > 1
        self._counting: dict[tuple[int, int], bool] = {}
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
            return all(self._is_free(item, segment) for segment in range(len(node.segments)))
        return isinstance(node, Counted)
