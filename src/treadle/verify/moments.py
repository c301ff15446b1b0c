"""Moments of runs, where one run goes on from another's or ends as another did.

The runs of a kernel's classes differ in how often some loops go round, and so begin alike: what a run did up to a moment, one over another
trace does too where each strand's nodes up to there are the same, however long the loops are that it is still in. It begins with what was
saved there. And where two runs have the same state and the same nodes left, what one of them does from there on the other does too.
"""

from collections.abc import Sequence

from treadle.verify.clocks import Agent, Ended, Frame, Restore
from treadle.verify.events import LoopNode, Node, RolesNode, Segment, Trace

Jump = tuple[int, int, int]
"""A strand, its frame, and by how many iterations it goes on in a round."""
Frames = tuple[Frame, ...]


class Moment:
    """Where the strands of a run stood. `state`: the number of the run's state. `log`: executions that were over in the run, `at`: then.

    `taken_over`: loops that began and ended in rounds of other runs that this one left out. `restore`: brings everything else back, where
    that was saved. `cycle`: a round that leads from here back to this state, if one is known; `inside`: the loops that begin and end in it.
    """

    def __init__(self, agents: Sequence[Agent], at_work: list[Agent], state: int, log: list[Ended], taken_over: set[int]) -> None:
        self.agents, self.state, self.log, self.at, self.taken_over = agents, state, log, len(log), taken_over
        self.frames = [tuple([frame.copy() for frame in agent.frames]) for agent in agents]
        self.rows = [agent.row for agent in agents]
        self.blocked = [agent.blocked for agent in agents]
        self.awaits_roles = [agent.blocked == "roles" and agent not in at_work for agent in agents]
        self.restore: Restore | None = None
        self.path: tuple[Moment, ...] = ()
        self.cycle: tuple[Jump, ...] = ()
        self.inside: frozenset[int] = frozenset()

    def on(self, nodes: list[Node], trace: Trace) -> list[tuple[tuple[int, ...], Frames]] | None:
        """Row and frames of each strand where a run over another trace comes by here; None where it does not."""
        roles: dict[tuple[int, int], RolesNode] = {}
        found: list[tuple[tuple[int, ...], Frames]] = []
        for number, agent in enumerate(self.agents):
            strand, row, frames = agent.strand, self.rows[number], self.frames[number]
            if strand.trace < 0:
                row = trace.roots[strand.rank]
            elif (started := roles.get((strand.rank, strand.roles))) is not None:
                row = started.traces[strand.trace]
            if not frames:
                if row != self.rows[number]:
                    return None
                found.append((row, ()))
                continue
            is_in_roles = self.awaits_roles[number]
            here = frames_on(nodes, frames, row, is_blocked=bool(self.blocked[number]) and not is_in_roles)
            if here is None:
                return None
            if is_in_roles:
                node = nodes[row[frames[0].position]] if frames[0].position < len(row) else None
                before = nodes[self.rows[number][frames[0].position]]
                if not isinstance(node, RolesNode) or not isinstance(before, RolesNode) or node.op_index != before.op_index:
                    return None
                roles[strand.rank, node.op_index] = node
            found.append((row, here))
        return found

    def cycle_on(self, nodes: list[Node], standing: list[tuple[tuple[int, ...], Frames]]) -> tuple[Jump, ...]:
        """The cycle, where the loops that go on in it repeat the same there; where one begins alike, what comes may be another."""
        pairs = [(self.frames[number][depth], standing[number][1][depth]) for number, depth, _ in self.cycle]
        return self.cycle if all(_repeated(nodes, one) == _repeated(nodes, other) for one, other in pairs) else ()


def _repeated(nodes: list[Node], frame: Frame) -> tuple[tuple[int, ...], ...]:
    node = nodes[frame.loop]
    return node.segments[frame.segment].iterations if isinstance(node, LoopNode) else ()


def frames_on(nodes: list[Node], frames: Frames, row: tuple[int, ...], *, is_blocked: bool) -> Frames | None:
    """The frames with which another row comes by the same place; None where it does not."""
    found: list[Frame] = []
    loop, left = -1, 0
    for frame, inner in zip(frames, (*frames[1:], None), strict=True):
        here = frame.copy()
        here.loop, here.left = loop, left
        here.items = row
        found.append(here)
        past = frame.position - (inner is not None)
        if row[:past] != frame.items[:past] or (is_blocked and inner is None and row[past : past + 1] != frame.items[past : past + 1]):
            return None
        if inner is None:
            return tuple(found)
        if past >= len(row):
            return None
        loop = row[past]
        node, before = nodes[loop], nodes[inner.loop]
        if not isinstance(node, LoopNode) or not isinstance(before, LoopNode) or inner.segment >= len(node.segments):
            return None
        segment, same = node.segments[inner.segment], before.segments[inner.segment]
        left = inner.left + segment.length - same.length
        is_same = segment.first == same.first and segment.stretch == same.stretch and _begins_as(segment, same, inner.number - same.first)
        if not is_same or left < 1 or node.segments[: inner.segment] != before.segments[: inner.segment]:
            return None
        row = segment.iterations[inner.iteration]
    return tuple(found)


def _begins_as(segment: Segment, other: Segment, done: int) -> bool:
    """Whether so many iterations of two segments are the same; of those that may be longer, all. The one at work is not compared."""
    one, same = segment.iterations, other.iterations
    return one == same or (segment.stretch < 0 and done < min(len(one), len(same)) and one[:done] == same[:done])


def have_same_rest(nodes: list[Node], one: Moment, other: Moment, *, with_numbers: bool) -> bool:
    """Whether the same nodes are left to all strands. `with_numbers`: and their iterations have the same numbers."""
    for number, agent in enumerate(one.agents):
        frames, others = one.frames[number], other.frames[number]
        if len(frames) != len(others) or one.awaits_roles[number] != other.awaits_roles[number]:
            return False
        begun = one.awaits_roles[number]  # the roles that it waits for are compared themselves
        if begun and agent.registers:
            return False
        for frame, same in zip(frames, others, strict=True):
            if with_numbers and frame.number != same.number:
                return False
            if not (_have_same_row(frame, same, begun) if frame.loop < 0 else _have_same_iterations(nodes, frame, same)):
                return False
    return True


def _have_same_row(one: Frame, other: Frame, begun: bool) -> bool:
    return other.loop < 0 and one.items[one.position + begun :] == other.items[other.position + begun :]


def _have_same_iterations(nodes: list[Node], one: Frame, other: Frame) -> bool:
    """Whether two strands in loops have the same nodes left there."""
    if one.left != other.left or one.position != other.position or other.loop < 0:
        return False
    node, same = nodes[one.loop], nodes[other.loop]
    if not isinstance(node, LoopNode) or not isinstance(same, LoopNode):
        return False
    first, second = node.segments[one.segment], same.segments[other.segment]
    if first.stretch != second.stretch or _from(first.iterations, one.iteration) != _from(second.iterations, other.iteration):
        return False
    return node.segments[one.segment + 1 :] == same.segments[other.segment + 1 :]


def _from(repeated: tuple[tuple[int, ...], ...], at: int) -> tuple[tuple[int, ...], ...]:
    return repeated[at:] + repeated[:at]


def joined(then: Moment, now: Moment) -> list[Ended]:
    """The executions that a run finds over which goes on from a moment as another did: that one's, of its own loops where it is in some."""
    found: list[Ended] = []
    begun = {(number, depth): frame for number, frames in enumerate(now.frames) for depth, frame in enumerate(frames) if frame.loop >= 0}
    for number, depth, loop, pumps in then.log[then.at :]:
        frame = begun.pop((number, depth), None)
        if frame is None:
            found.append((number, depth, loop, pumps))
        else:
            found.append((number, depth, frame.loop, (*frame.pumps, *pumps[len(then.frames[number][depth].pumps) :])))
    return found
