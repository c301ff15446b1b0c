"""Leaving out whole rounds of loops once the state of a run repeats.

Traces say how often a stretch of a loop is done. When two moments of a run have the same state (where everybody stands, who knows what
about every access in flight, phases, meetings), whatever happened between them happens again as long as all stretches go on, so as many
such rounds as all of them have left are left out at once. Rounds of the remainder are still run.

A round in which nobody left the innermost loop it was in says nothing about the loops around that: it goes for every place that these
loops come to the state at, and for every run. Any other round goes for every run whose agents stand in loops of the same iterations,
however many of these the loops have, and whatever the rows outside of all loops hold: nobody comes to their next nodes in the round.

States are taken whenever the leader begins an iteration: the first strand that is in a stretch which repeats. Who goes on when need not be
part of them: what happened between two equal states is one legal order of events, and may be repeated whatever the engine would do next.

Runs of one kernel share what they have in common: a run begins at the last saved moment of another that it comes by, and ends where it
comes to another's state with the same nodes left (`moments.py`).
"""

from collections.abc import Callable, Iterator, Sequence

from treadle.errors import InternalError
from treadle.verify.clocks import Agent, Ended, Frame, Restore
from treadle.verify.events import LoopNode, Node, Trace
from treadle.verify.moments import Frames, Jump, Moment, have_same_rest, joined
from treadle.verify.run_states import RunStates, State

Steps = tuple[int, ...]
"""How many iterations of its innermost loop each agent does in a round."""
Done = tuple[tuple[int, ...], ...]
"""In which iteration of each of its loops each agent is."""
Seen = tuple[Done, int, int]
"""Where the strands were at a state, and the lengths of the path and of the log then."""
INNER_DEPTHS = (2, 3)  # loops within the outermost one, whose frame is number 1, and within tiles of blocks
MAX_STATES = 4096
MAX_SAVED = 32
MAX_ENDS = 4
"""Moments of other runs with one state whose ends are compared."""
MANY_ROUNDS = 8
MAX_TURNED = 64


class Rounds:
    """The states that runs of one tracer came by, as numbers, and the rounds that lead from one back to it.

    `steps`: rounds of innermost loops. `moves`: rounds of loops around them: for each agent how many frames from its innermost one the loop
    is that it goes on in, and by how many iterations. With both: loops that began and ended in the round. `ends`: moments with a state
    that runs came by which ended without a fault.
    """

    def __init__(self) -> None:
        self.steps: dict[int, tuple[Steps, frozenset[int]]] = {}
        self.moves: dict[int, tuple[tuple[tuple[int, int], ...], frozenset[int]]] = {}
        self.ends: dict[int, list[Moment]] = {}
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
                self.ends.clear()
            self._count += 1
            found = self._numbers[state] = self._count
        return found


def _first_of_round(repeated: tuple[tuple[int, ...], ...]) -> int:
    """With which iteration a round is taken to begin: with the same one, wherever in it a loop begins (of long rounds: with its first)."""
    return min(range(len(repeated)), key=lambda at: repeated[at:] + repeated[:at]) if len(repeated) <= MAX_TURNED else 0


def _done_of(agents: list[Agent]) -> Done:
    """In which iteration of each of its loops each strand is: what longer loops do not change."""
    return tuple([tuple([frame.number for frame in agent.frames]) for agent in agents])


def _jumps(agents: list[Agent], before: Done, now: Done) -> tuple[Jump, ...]:
    """In which loop each strand went on between two moments with one state, and by how much; none where one did in several."""
    found: list[Jump] = []
    for agent, old, new in zip(agents, before, now, strict=True):
        moved = [(depth, b - a) for depth, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if len(moved) > 1 or (moved and moved[0][1] < 0):
            return ()
        found += [(agent.number, depth, step) for depth, step in moved]
    return tuple(found)


def _outermost(agents: list[Agent]) -> list[tuple[int, ...]]:
    """Where each strand is in its outermost loop."""
    return [next(((frame.loop, frame.left) for frame in agent.frames if frame.loop >= 0), ()) for agent in agents]


def _distance(cycle: tuple[Jump, ...], standing: list[tuple[tuple[int, ...], Frames]]) -> tuple[int, int]:
    """How far a run is at a moment: nodes of outermost rows that it came to, and the iterations left of the loops there, negative."""
    steps = {(number, depth): step for number, depth, step in cycle}
    rounds = min([(standing[number][1][depth].left - 1) // step for number, depth, step in cycle], default=0)
    left = 0
    for number, (_, frames) in enumerate(standing):
        outer = next((depth for depth, frame in enumerate(frames) if frame.loop >= 0), None)
        if outer is not None:
            left += frames[outer].left - rounds * steps.get((number, outer), 0)
    return sum(frames[0].position for _, frames in standing if frames), -left


class Repetitions:
    """The states of runs so far. `agents`: all strands, at work or not. `save`: saves what is not kept here. `slots`: of the longest ring
    that is seen from a counter; no state comes back before it is full. `at_work`: the strands that go on next.
    """

    def __init__(
        self,
        nodes: list[Node],
        states: RunStates,
        agents: Sequence[Agent],
        save: Callable[[], Restore],
        slots: int,
        at_work: Callable[[], Sequence[Agent]],
    ) -> None:
        self._slots, self._at_work = slots, at_work
        self.nodes, self.states, self.cluster, self.agents, self.save = nodes, states, states.cluster, agents, save
        self.rounds = Rounds()
        self.log: list[Ended] = []
        self._saved: list[Moment] = []
        self._open_loops: frozenset[int] = frozenset()
        self._pumps: dict[tuple[tuple[int, ...], ...], int] = {}
        self._stretches: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._is_alone = len(self.cluster.workgroups) == 1

    # --- runs

    def begin(self, trace: Trace) -> None:
        """A run over a trace begins from the start."""
        self._open_loops = trace.open_loops
        self.log, self._looks = [], list[Moment]()
        self._path: tuple[Moment, ...] = ()
        self._seen: dict[State, Seen] = {}
        self._seen_within: dict[tuple[State, Done], Seen] = {}
        self._taken_over: set[int] = set()
        self._turn: tuple[int, ...] = ()
        self._progress: object = None

    def come_by(self, trace: Trace) -> bool:
        """Begin a run over a trace at the last moment that was saved of one which it comes by; False where there is none."""
        best: tuple[tuple[int, int], Moment, list[tuple[tuple[int, ...], Frames]], tuple[Jump, ...]] | None = None
        for moment in self._saved:
            standing = moment.on(self.nodes, trace) if moment.taken_over.isdisjoint(trace.open_loops) else None
            if standing is None:
                continue
            cycle = moment.cycle_on(self.nodes, standing)
            if best is None or _distance(cycle, standing) >= best[0]:
                best = _distance(cycle, standing), moment, standing, cycle
        if best is None:
            return False
        _, moment, standing, cycle = best
        self.begin(trace)
        self._taken_over.update(moment.taken_over)
        if moment.restore is not None:
            moment.restore()
        for agent, (row, frames) in zip(self.agents, standing, strict=True):
            agent.row, agent.frames = row, list(frames)
        self.log, self._path = moment.log[: moment.at], moment.path
        agents = self.cluster.active
        if cycle and self._may_take_over(moment.inside):
            self._leave_out(moment.state, agents, cycle, moment.inside)
        self.turned()
        self._progress = _outermost(agents)
        return True

    def end(self) -> None:
        """The run is over, without a fault."""
        for moment in self._looks:
            ends = self.rounds.ends.setdefault(moment.state, [])
            if len(ends) < MAX_ENDS:
                ends.append(moment)

    # --- looks

    def turned(self) -> Agent | None:
        """The leader, where it has begun another iteration since it was asked for last."""
        for agent in self._at_work():
            turn = self._turn_of(agent)
            if turn is not None:
                if turn == self._turn:
                    return None
                self._turn = turn
                return agent
        return None

    def look(self) -> bool:
        """Leave out what repeats; True where what is left is what another run has done."""
        agents = self.cluster.active
        self.states.forget(agents)
        places = [agent.place() for agent in agents]
        rows = tuple([self._row(agent.frames[-1]) if agent.frames else () for agent in agents])
        number = self.rounds.number((rows, *self.states.of(agents)))
        state, done = (number, *places), _done_of(agents)
        left_out: tuple[Jump, ...] = ()
        for jumps, inside in self._rounds_to(number, state, agents, done):
            if self._leave_out(number, agents, jumps, inside):
                left_out = jumps
                break
        moment = Moment(self.agents, agents, number, self.log, self._taken_over)
        if self._ends_as_another(moment):
            return True
        if len(self._looks) < MAX_STATES:
            self._looks.append(moment)
        if len(self._seen) >= MAX_STATES:
            self._seen.clear()
        is_inner = self._are_innermost(left_out)
        self._seen[state] = done if is_inner else _done_of(agents), len(self._path), len(self.log)
        if is_inner:
            self._keep(moment, agents)
        return False

    def _rounds_to(self, number: int, state: State, agents: list[Agent], done: Done) -> Iterator[tuple[tuple[Jump, ...], frozenset[int]]]:
        """The rounds that lead to this state, with the loops that began and ended in them: this run's own, and those seen elsewhere."""
        steps, known = self.rounds.steps.get(number), self._seen.get(state)
        if steps is not None and not steps[1].isdisjoint(self._open_loops):
            steps = None
        if known is not None:
            jumps, known = self._since(known, state, agents, done)
            inside = frozenset(loop for _, _, loop, _ in self.log[known[2] :]).union(self._taken_over)
            for passed in self._path[known[1] :]:
                if not passed.cycle:
                    passed.cycle, passed.inside = jumps, inside
            if steps is None or not self._are_innermost(jumps):
                yield jumps, inside
        if steps is not None:
            if self._may_take_over(steps[1]):
                yield (
                    tuple([(agent.number, len(agent.frames) - 1, step) for agent, step in zip(agents, steps[0], strict=True) if step]),
                    steps[1],
                )
            return
        moves = self.rounds.moves.get(self._loops(number, agents)) if known is None and self.rounds.moves else None
        if moves is not None and self._may_take_over(moves[1]):
            pairs = zip(agents, moves[0], strict=True)
            yield tuple([(agent.number, len(agent.frames) - back, step) for agent, (back, step) in pairs if back]), moves[1]

    def _since(self, known: Seen, state: State, agents: list[Agent], done: Done) -> tuple[tuple[Jump, ...], Seen]:
        """The round since the state was last there; where strands went on in several loops, since inner ones were where they are, too."""
        jumps = _jumps(agents, known[0], done)
        if jumps or known[0] == done:
            return jumps, known
        for depth in INNER_DEPTHS:
            then, now = (tuple([numbers[depth:] for numbers in each]) for each in (known[0], done))
            self._seen_within.setdefault((state, then), known)
            before = self._seen_within.get((state, now))
            self._seen_within[state, now] = done, len(self._path), len(self.log)
            if before is not None and (jumps := _jumps(agents, before[0], done)):
                return jumps, before
        return (), known

    def _may_take_over(self, inside: frozenset[int]) -> bool:
        """Whether rounds that another run did go for this one too: not where a loop is in them whose length its class leaves open.

        That loop's lengths are those that this run's own executions of it show to be like here.
        """
        if not inside.isdisjoint(self._open_loops):
            return False
        self._taken_over.update(inside)
        return True

    def _are_innermost(self, jumps: tuple[Jump, ...]) -> bool:
        """Whether all loops that go on are the innermost ones that their strands are in."""
        return all(depth == len(self.agents[number].frames) - 1 for number, depth, _ in jumps)

    def _ends_as_another(self, now: Moment) -> bool:
        """Whether a run came by the same state with the same nodes left: what was over then and what was seen to repeat is taken over.

        Not in clusters: what their workgroups still do to one another when they end is no part of the state.
        """
        for then in self.rounds.ends.get(now.state, ()) if self._is_alone else ():
            may_be = then.taken_over.isdisjoint(self._open_loops)
            if may_be and have_same_rest(self.nodes, then, now, with_numbers=self.cluster.arrays.is_used):
                self.log += joined(then, now)
                self._taken_over.update(then.taken_over)
                return True
        return False

    def _keep(self, moment: Moment, agents: list[Agent]) -> None:
        """Save a moment that runs over longer or shorter loops may begin at: one for each iteration of outermost loops."""
        outer = _outermost(agents)
        if outer == self._progress or not any(frame.loop >= 0 for agent in agents for frame in agent.frames):
            return
        self._progress = outer
        if len(self._saved) == MAX_SAVED:
            self._saved.pop(0)
        seen, within, everything = dict(self._seen), dict(self._seen_within), self.save()

        def restore() -> None:
            everything()
            self._seen = dict(seen)
            self._seen_within = dict(within)

        self._path = moment.path = (*self._path, moment)
        moment.restore = restore
        self._saved.append(moment)

    def _is_open(self, frame: Frame) -> bool:
        node = self.nodes[frame.loop] if frame.loop >= 0 else None
        return isinstance(node, LoopNode) and node.segments[frame.segment].stretch >= 0

    def _turn_of(self, agent: Agent) -> tuple[int, ...] | None:
        """Where a strand is in the innermost stretch that repeats: which, and the round.

        Each iteration of a loop around others, and of one that may be longer than here and is short: the sooner a state comes back, the
        fewer lengths are classes of their own. Else once a round, at the iteration that it is taken to begin with, wherever the loop
        began: what was seen to repeat in another loop, or tile, goes for it then. Few rounds are sooner run than compared.
        """
        for depth in range(len(agent.frames) - 1, -1, -1):
            frame = agent.frames[depth]
            node = self.nodes[frame.loop] if frame.loop >= 0 else None
            if isinstance(node, LoopNode):
                segment = node.segments[frame.segment]
                rounds, is_open = segment.length / len(segment.iterations), segment.stretch >= 0
                if frame.may_repeat(segment, self._slots):
                    if (is_open and rounds < MANY_ROUNDS) or self._has_loops(frame):
                        return agent.number, depth, frame.loop, frame.left
                    return self._turn if self._row(frame)[1] else (agent.number, depth, frame.loop, frame.left)
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

    def _leave_out(self, state: int, agents: list[Agent], jumps: tuple[Jump, ...], inside: frozenset[int]) -> bool:
        """Leave out rounds, as many as all loops have; False where there are none."""
        if not jumps:
            return False
        self._note_pump(jumps)
        moved = {number: (depth, step) for number, depth, step in jumps}
        at_work = {agent.number: agent for agent in agents}
        if self._are_innermost(jumps):
            self.rounds.steps[state] = tuple([moved[agent.number][1] if agent.number in moved else 0 for agent in agents]), inside
        else:
            back = {number: (len(at_work[number].frames) - depth, step) for number, depth, step in jumps}
            self.rounds.moves[self._loops(state, agents)] = tuple([back.get(agent.number, (0, 0)) for agent in agents]), inside
        rounds = min([(at_work[number].frames[depth].left - 1) // step for number, depth, step in jumps])
        if not rounds:
            return False
        for number, depth, step in jumps:
            frame = at_work[number].frames[depth]
            frame.left -= rounds * step
            self.cluster.arrays.leave_out(at_work[number], depth, rounds * step)
            frame.number += rounds * step
        return True

    def _note_pump(self, jumps: tuple[Jump, ...]) -> None:
        """Remember that all these loops could go on by whole rounds together: a run over longer ones would come by this state again.

        Strands that are in different iterations of one loop around theirs make other rounds than when they are in the same: where one has
        gone on to the next tile and meets there who is still in the last, both have rounds of their own as well.
        """
        frames = [(self.agents[number].frames[depth], number, step) for number, depth, step in jumps]
        around = [self.agents[number].frames[depth - 1] for number, depth, _ in jumps]
        first = {frame.loop: frame.number for frame in reversed(around)}
        key = tuple(
            [
                (number, frame.loop, frame.segment, step, outer.number - first[outer.loop])
                for (frame, number, step), outer in zip(frames, around, strict=True)
            ]
        )
        pump = self._pumps.setdefault(key, len(self._pumps))
        for frame, _, step in frames:
            node = self.nodes[frame.loop]
            if isinstance(node, LoopNode):
                frame.pumps.append((pump, node.segments[frame.segment].stretch, step))
