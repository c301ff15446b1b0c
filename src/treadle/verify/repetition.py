"""Leaving out whole rounds of loops once the state of a run repeats.

Traces say how often a stretch of a loop is done. When two moments of a run have the same state (where everybody stands, who knows what
about every access in flight, phases, meetings), whatever happened between them happens again as long as all stretches go on, so as many
such rounds as all of them have left are left out at once. Rounds of the remainder are still run.

A round in which nobody left the innermost loop it was in says nothing about the loops around that: it goes for every place that these
loops come to the state at, and for every run. Any other round goes for every run whose agents stand in loops of the same iterations,
however many of these the loops have, and whatever the rows outside of all loops hold: nobody comes to their next nodes in the round.

States are taken whenever the leader begins an iteration: the first strand that is in a stretch which repeats. Who goes on when need not be
part of them: what happened between two equal states is one legal order of events, and may be repeated whatever the engine would do next.
"""

from collections.abc import Iterator

from treadle.errors import InternalError
from treadle.verify.barriers import Barriers
from treadle.verify.clocks import Agent, Clock, Components, Frame, Record
from treadle.verify.events import LoopNode, Node
from treadle.verify.orders import fence_token, needs_fence
from treadle.verify.workgroups import Cluster

State = tuple[object, ...]
Steps = tuple[int, ...]
"""How many iterations of its innermost loop each agent does in a round."""
MAX_STATES = 4096
FEW_ROUNDS, MANY_ROUNDS = 2, 8
SHORT_ROUND, OFTEN = 8, 2
"""States are taken every other iteration of short rounds: a round repeats the sooner, from wherever in it what came before is over."""
MAX_TURNED = 64
OLDEST_PHASE = 3  # older phases are known to whoever knows any that may still be learnt of


class Rounds:
    """The states that runs of one tracer came by, as numbers, and the rounds that lead from one back to it.

    `steps`: rounds of innermost loops. `moves`: rounds of loops around them: for each agent how many frames from its innermost one the loop
    is that it goes on in, and by how many iterations.
    """

    def __init__(self) -> None:
        self.steps: dict[int, Steps] = {}
        self.moves: dict[int, tuple[tuple[int, int], ...]] = {}
        self._numbers: dict[State, int] = {}
        self._count = 0

    def number(self, state: State) -> int:
        """The number of a state; no other state ever has it."""
        found = self._numbers.get(state)
        if found is None:
            if len(self._numbers) >= MAX_STATES:
                self._numbers.clear()
                self.steps.clear()
                self.moves.clear()
            self._count += 1
            found = self._numbers[state] = self._count
        return found


class _Knowledge:
    """What a number of clocks know of tokens. The first `agents` of them are those of agents."""

    def __init__(self, clocks: list[Clock], agents: int, size: int) -> None:
        self._agents = agents
        self._columns = list(zip(*(clock + [0] * (size - len(clock)) for clock in clocks), strict=True))
        self._least: dict[int, int] = {}
        self._known: dict[tuple[int, int], tuple[bool, ...]] = {}

    def of_agents(self, component: int, value: int) -> tuple[bool, ...]:
        """Which clocks know a token that only agents are asked about; empty where all of these know it, who then can learn no more."""
        least = self._least.get(component)
        if least is None:
            least = self._least[component] = min(self._columns[component][: self._agents])
        return () if value <= least else self.of(component, value)

    def of(self, component: int, value: int) -> tuple[bool, ...]:
        """Which clocks know a token."""
        found = self._known.get((component, value))
        if found is None:
            found = self._known[component, value] = tuple([known >= value for known in self._columns[component]])
        return found

    def lags(self, component: int, now: int) -> tuple[int, ...]:
        """How far the clocks are behind `now` in a component, large distances by their parity: who is two behind can only be overtaken.

        Other clocks than those of agents are only ever joined to these, so what every agent knows counts as known.
        """
        column = self._columns[component]
        least = min(column[: self._agents])
        return tuple([lag if (lag := now - (known if known > least else least)) < 2 else 2 + lag % 2 for known in column])


def _first_of_round(repeated: tuple[tuple[int, ...], ...]) -> int:
    """With which iteration a round is taken to begin: with the same one, wherever in it a loop begins (of long rounds: with its first)."""
    return min(range(len(repeated)), key=lambda at: repeated[at:] + repeated[:at]) if len(repeated) <= MAX_TURNED else 0


def _earlier(left: tuple[int, ...], move: tuple[int, int]) -> tuple[int, ...]:
    """What was left of an agent's loops before a round."""
    back, step = move
    return left if not back else (*left[:-back], left[-back] + step, *left[len(left) - back + 1 :])


class Repetitions:
    """The states of a run so far. `pending`: the most groups that any wait leaves in flight. `rounds`: those that earlier runs saw."""

    def __init__(
        self, nodes: list[Node], pending: int, cluster: Cluster, barriers: Barriers, components: Components, rounds: Rounds
    ) -> None:
        self.nodes, self.cluster, self.barriers, self.components = nodes, cluster, barriers, components
        self.rounds = rounds
        self.seen: dict[State, tuple[tuple[int, ...], ...]] = {}
        self.oldest = pending + 2
        self._turn: tuple[int, ...] = ()
        self._pumps: dict[tuple[tuple[int, int, int, int], ...], int] = {}
        self._stretches: dict[tuple[int, int], tuple[int, int, int]] = {}

    def turned(self) -> Agent | None:
        """The leader, where it has begun another iteration since it was asked for last."""
        for agent in self.cluster.active:
            turn = self._turn_of(agent)
            if turn is not None:
                if turn == self._turn:
                    return None
                self._turn = turn
                return agent
        return None

    def look(self) -> None:
        """Leave out what repeats."""
        agents = self.cluster.active
        self.barriers.forget_known(agents)
        self.cluster.forget_everywhere()
        places = [agent.place() for agent in agents]
        rows = tuple([self._row(agent.frames[-1]) if agent.frames else () for agent in agents])
        number = self.rounds.number((rows, *self._state(agents)))
        state = number, *places
        left = tuple([tuple([frame.left for frame in agent.frames]) for agent in agents])
        before = self.seen.get(state)
        if before is None and (steps := self.rounds.steps.get(number)) is not None:
            before = tuple([(*now[:-1], now[-1] + step) if step else now for now, step in zip(left, steps, strict=True)])
        if before is None and self.rounds.moves and (moves := self.rounds.moves.get(self._loops(number, agents))) is not None:
            before = tuple([_earlier(now, move) for now, move in zip(left, moves, strict=True)])
        if before is None or not self._leave_out(number, agents, before, left):
            if len(self.seen) >= MAX_STATES:
                self.seen.clear()
            self.seen[state] = left

    def _turn_of(self, agent: Agent) -> tuple[int, ...] | None:
        """Where a strand is in the innermost stretch that repeats: which, and the round.

        Each iteration of a loop around others, and of one that may be longer than here and is short: the sooner a state comes back, the
        fewer lengths are classes of their own. Else once a round, at the iteration that it is taken to begin with, wherever the loop began:
        what was seen to repeat in another loop, or tile, goes for it then. Few rounds are sooner run than compared.
        """
        for depth in range(len(agent.frames) - 1, -1, -1):
            frame = agent.frames[depth]
            node = self.nodes[frame.loop] if frame.loop >= 0 else None
            if isinstance(node, LoopNode):
                segment = node.segments[frame.segment]
                rounds, is_open = segment.length / len(segment.iterations), segment.stretch >= 0
                if rounds > (1 if is_open else FEW_ROUNDS):
                    if (is_open and rounds < MANY_ROUNDS) or self._has_loops(frame):
                        return agent.number, depth, frame.loop, frame.left
                    at = self._row(frame)[1]
                    if rounds > 2 * FEW_ROUNDS and frame.left > len(segment.iterations) <= SHORT_ROUND:
                        at %= OFTEN
                    return self._turn if at else (agent.number, depth, frame.loop, frame.left)
        return None

    def _loops(self, state: int, agents: list[Agent]) -> int:
        """The number of a state with what the loops repeat that each strand is in, and where in it it is; of rows those within a loop."""
        places: list[object] = [state]
        for agent in agents:
            found: list[object] = []
            for frame in agent.frames[:-1]:
                if frame.loop >= 0 or found:
                    found.append(self._row(frame))
            places.append(tuple(found))
        return self.rounds.number(tuple(places))

    def _has_loops(self, frame: Frame) -> bool:
        return any(isinstance(self.nodes[item], LoopNode) for item in frame.items)

    def _row(self, frame: Frame) -> tuple[object, int, int]:
        """Which row of nodes a frame is in, and where in it; in a loop by what its stretch repeats, from wherever in that it begins."""
        if frame.loop < 0:
            return frame.items, 0, frame.position
        number, first, period = self._stretches.get((frame.loop, frame.segment)) or self._stretch(frame.loop, frame.segment)
        return number, (frame.iteration - first) % period, frame.position

    def _stretch(self, loop: int, segment: int) -> tuple[int, int, int]:
        """The number of what a stretch of a loop repeats, which of its iterations is the round's first there, and how many there are."""
        node = self.nodes[loop]
        if not isinstance(node, LoopNode):
            raise InternalError("a loop's node is none")
        repeated, length = node.segments[segment].iterations, node.segments[segment].length
        first = _first_of_round(repeated) if length > len(repeated) else 0
        number = self.rounds.number((repeated[first:] + repeated[:first], length > len(repeated)))
        found = self._stretches[loop, segment] = (number, first, len(repeated))
        return found

    def _leave_out(self, state: int, agents: list[Agent], before: tuple[tuple[int, ...], ...], now: tuple[tuple[int, ...], ...]) -> bool:
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
        if not jumps:
            return False
        self._note_pump(jumps)
        if all(depth == len(agent.frames) - 1 for agent, depth, _ in jumps):
            steps = {agent.number: step for agent, _, step in jumps}
            self.rounds.steps[state] = tuple([steps.get(agent.number, 0) for agent in agents])
        else:
            moves = {agent.number: (len(agent.frames) - depth, step) for agent, depth, step in jumps}
            self.rounds.moves[self._loops(state, agents)] = tuple([moves.get(agent.number, (0, 0)) for agent in agents])
        if not rounds:
            return False
        for agent, depth, step in jumps:
            frame = agent.frames[depth]
            frame.left -= rounds * step
            self.cluster.arrays.leave_out(agent, depth, rounds * step)
            frame.number += rounds * step
        return True

    def _note_pump(self, jumps: list[tuple[Agent, int, int]]) -> None:
        """Remember that all these loops could go on by whole rounds together: a run over longer ones would come by this state again."""
        frames = [(agent.frames[depth], agent.number, step) for agent, depth, step in jumps]
        key = tuple([(number, frame.loop, frame.segment, step) for frame, number, step in frames])
        pump = self._pumps.setdefault(key, len(self._pumps))
        for frame, _, step in frames:
            node = self.nodes[frame.loop]
            if isinstance(node, LoopNode):
                frame.pumps.append((pump, node.segments[frame.segment].stretch, step))

    # --- states

    def _state(self, agents: list[Agent]) -> State:
        barriers, components, workgroups = self.barriers, self.components, self.cluster.workgroups
        clocks: list[Clock] = [agent.clock for agent in agents]  # whoever waits for roles to end knows less than all of these
        for phases in barriers.phases:
            clocks += [phases.clock, *phases.completions.values()]
            clocks += [clock for value in phases.parts.values() for clock in value]
        clocks += [meeting.clock for meeting in barriers.named.values()]
        knowledge = _Knowledge(clocks, len(agents), components.size)
        found: list[object] = [agent.state(barriers.phases_left(agent), self.oldest) for agent in agents]
        for at, phases in enumerate(barriers.phases):
            parts = tuple(sorted([(key, len(value)) for key, value in phases.parts.items() if value]))
            waits = [
                (waiter.number, count - phases.completed, knowledge.of(waiter.number, time))
                for count, waiting in phases.waiters.items()
                for waiter, time, _ in waiting
            ]
            found.append((phases.completed & 1, phases.arrived, phases.announced, phases.delivered, len(phases.completions), parts))
            found += [tuple(sorted(waits)), knowledge.lags(components.mbarrier + at, phases.completed)]
            if components.passed != components.mbarrier:
                found.append(knowledge.lags(components.passed + at, phases.completed))
        for (rank, name), meeting in barriers.named.items():
            found.append((rank, name, meeting.warps, meeting.needed, tuple([a.number for a in meeting.came])))
            found.append(knowledge.of_agents(components.meeting(rank, name), meeting.over))
        found.append(tuple(sorted(self._records(knowledge))))
        found += [workgroup.memory.written.state() for workgroup in workgroups]
        return tuple(found)

    def _records(self, knowledge: _Knowledge) -> Iterator[tuple[object, ...]]:
        """Every access in flight or to be ordered after: whose it is, its age, who knows of it and of its fence."""
        for workgroup in self.cluster.workgroups:
            for record in workgroup.memory.records():
                yield self._record(record, knowledge, workgroup.rank)
        for record in self.cluster.arrays.records():
            yield *self._record(record, knowledge, -1), self.cluster.arrays.age(record)

    def _record(self, record: Record, knowledge: _Knowledge, rank: int) -> tuple[object, ...]:
        oldest, base = self.oldest, self.components.mbarrier
        component, value, access, agent = record.component, record.value, record.access, record.agent
        queue = access.queue
        if not queue:
            age = 0
        elif queue == "mbarrier":
            age = self.barriers.phases[component - base].completed - value
            age = age if age < OLDEST_PHASE else OLDEST_PHASE + age % 2
        else:
            age = min(agent.closed.get(queue, 0) - value, oldest)
        fenced: tuple[int, ...] = (-1,)  # not even done; all of these have to compare
        if needs_fence(access) and (token := fence_token(self.components, record)) is not None:
            fenced = knowledge.of_agents(*token)
        known = knowledge.of_agents(component, value)
        return rank, agent.number, record.event.op_index, id(access), age, known, fenced
