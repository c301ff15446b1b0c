"""Branches of a run: the way that the class goes, or either where nobody knows it."""

from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.verify.classes import Symbol
from treadle.verify.events import Event, TurnedEvent
from treadle.verify.reasons import Reason, all_of
from treadle.verify.trace_memory import MemorySteps
from treadle.verify.trace_state import State, Step, Undecided

Moves = tuple[list[tuple[int, int]], int | None]
"""What a hand-over of values does: pairs of places, to and from, and the event that moves register tokens."""
Way = tuple[list[Step], Moves]
"""The steps of a way, and what it hands on."""


class BranchSteps:
    """Makes the steps of branches."""

    def __init__(self, state: State, memory: MemorySteps) -> None:
        self.state, self.program, self.memory = state, state.program, memory

    def quiet(self, op: scf.IfOp) -> Step:
        """A conditional that computes register tiles alone: it needs what either way reads."""
        state, index, numbers = self.state, self.program.index[op], self.program.registers
        uses = tuple(dict.fromkeys(numbers[value] for inner in op.walk() for value in inner.operands if value in numbers))

        def run() -> None:
            if uses:
                state.out.append(state.node(index, lambda: Event("access", op, index, uses=uses)))

        return run

    def branch(self, op: scf.IfOp, ways: list[Way]) -> Step:
        """A branch, and what its ways do."""
        state, env, condition = self.state, self.state.env, self.state.place(op.cond)

        def run() -> None:
            if env[condition] is None:
                self._both_ways(op, ways)
                return
            steps, moves = ways[0 if state.fix(condition, op) else 1]
            for step in steps:
                step()
            copies, event = moves
            values = [(env[source], state.symbols[source], state.reasons[source]) for _, source in copies]
            for (to, _), found in zip(copies, values, strict=True):
                state.put(to, *found)
            if event is not None:
                state.out.append(event)

        return run

    def _both_ways(self, op: scf.IfOp, ways: list[Way]) -> None:
        """A branch of which nobody knows the way, this time: right where what either way does may or may not have been done."""
        state, outer = self.state, self.state.out
        done: list[tuple[int, ...]] = []
        ends: list[dict[int, tuple[object, object, Reason | None]]] = []
        events = list[int | None]()
        for steps, (copies, event) in ways:
            kept = state.values()
            state.out = []
            for step in steps:
                step()
            done.append(tuple(state.out))
            ends.append({to: (state.env[source], _key_of(state.symbols[source]), state.reasons[source]) for to, source in copies})
            events.append(event)
            state.restore(kept)
        state.out = outer
        for to, (value, form, reason) in ends[0].items():
            other = ends[1].get(to)
            is_same = other is not None and other[:2] == (value, form) and form is None
            state.put(to, value if is_same else None, None, all_of([reason, other[2]]) if is_same and other else None)
        if done[0] == done[1] and events[0] == events[1]:
            state.out += [*done[0], *(event for event in events[:1] if event is not None)]
        elif events[0] is events[1] is None:
            state.out += [self._perhaps(op, number) for way in done for number in way]
        else:
            raise Undecided(op, "its condition is not known before the kernel runs, and its results are those of queued operations")

    def _perhaps(self, op: Operation, number: int) -> int:
        """The node of an event that may or may not happen."""
        event = self.state.nodes[number]
        if isinstance(event, TurnedEvent) and event.at(self.memory.starts).is_plain:
            return self.memory.perhaps(event)
        if not isinstance(event, Event) or not event.is_plain:
            raise Undecided(op, "its condition is not known before the kernel runs, and it holds synchronisation or queued operations")
        return self.state.node(("perhaps", number), event.perhaps)


def _key_of(symbol: Symbol) -> object:
    return None if symbol is None else symbol.key
