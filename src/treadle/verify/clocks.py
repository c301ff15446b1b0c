"""Happens-before as vector clocks over components: the time of every strand, its last fence, and what has retired or completed.

A component counts: steps of a strand, groups of a queue that are known to be retired, phases of an mbarrier known to be complete. An
operation that completes later has a token (component, value): it happened before everything whose clock has reached the value.
"""

from collections.abc import Callable, Sequence

from treadle.verify.events import Access, Event, Segment
from treadle.verify.program import Program, Strand

Clock = dict[int, int]
"""Of each component that something is known of, how far; of others nothing, which is 0."""
Restore = Callable[[], None]
"""Brings back what was saved, as often as it is called."""
Ended = tuple[int, int, int, tuple[tuple[int, int, int], ...]]
"""An execution of a loop that is over: the strand, the frame's place among its frames, the loop's node, what repeated in it."""
FEW_ROUNDS = 2
FILLED, LONG = 2, 3
"""Of a loop of fixed length so many rounds of the longest ring are run before states are taken, which compare as long as some iterations
take; none in one of fewer.
"""


class Components:
    """The numbers of the components of a program.

    `mbarrier + b`: phases of mbarrier b whose effects are known. `passed + b`: phases known to be complete, which copies from other
    workgroups tell too; in one workgroup the same.
    """

    def __init__(self, program: Program) -> None:
        count = len(program.strands)
        barriers = program.cluster * len(program.mbarriers)
        self.mbarrier = self.passed = 3 * count
        self._size = self.mbarrier + barriers
        if program.cluster > 1:
            self.passed = self._size
            self._size += barriers
        self._local_queue = program.local_queue
        self._queues: dict[tuple[int, str, bool], int] = {}
        self._meetings: dict[tuple[int, str], int] = {}
        self.strand_count = count

    def fence(self, strand: int, *, is_global: bool = False) -> int:
        """The time of the last fence of a strand for shared or global memory; the strand's own time is the component of its number."""
        return (2 if is_global else 1) * self.strand_count + strand

    def queue(self, strand: int, name: str, *, is_read: bool = False) -> int:
        """Groups of a strand's queue known to be retired; `is_read`: known to have read their sources."""
        key = strand, name, is_read
        found = self._queues.get(key)
        if found is None:
            found = self._queues[key] = self._next()
        return found

    def meeting(self, rank: int, name: str) -> int:
        """Meetings at a named barrier of a workgroup known to be over."""
        found = self._meetings.get((rank, name))
        if found is None:
            found = self._meetings[(rank, name)] = self._next()
        return found

    def flush(self, agent: "Agent") -> None:
        """A strand's accesses to shared memory in its local queue are complete."""
        queue = self._local_queue
        if queue and (issued := agent.closed.get(queue, 0)):
            agent.put(self.queue(agent.number, queue), issued)

    def _next(self) -> int:
        self._size += 1
        return self._size - 1


def reached(clock: Clock, component: int, value: int) -> bool:
    """Whether a clock knows of a token."""
    return clock.get(component, 0) >= value


def join(clock: Clock, other: Clock) -> None:
    """Let `clock` know what `other` knows."""
    if not clock:
        clock.update(other)
        return
    known = clock.get
    for component, value in other.items():
        if value > known(component, 0):
            clock[component] = value


Vector = tuple[int, ...]
"""Numbers of the iterations of the loops that an agent is in, outermost first."""


class Record:
    """An access that later ones may have to be ordered after; complete for those who know the token.

    `vector`: of an access to a global array, the iterations of all loops it was made in, outermost first.
    """

    __slots__ = ("access", "agent", "component", "done", "event", "iteration", "value", "vector")

    def __init__(self, agent: "Agent", event: Event, access: Access, component: int, value: int, iteration: int, done: int = -1) -> None:
        self.agent, self.event, self.access = agent, event, access
        self.component, self.value, self.iteration, self.done = component, value, iteration, done
        self.vector: tuple[int, ...] = ()


class Flight:
    """A register tile that a queued operation writes: ready for those who know the token. All names of the tile share it.

    `taken`: the operation that took the tile over as its accumulator while it was in flight; nobody else may use it then.
    """

    __slots__ = ("component", "event", "taken", "value")

    def __init__(self, component: int, value: int, event: Event) -> None:
        self.component, self.value, self.event = component, value, event
        self.taken: Event | None = None


class Frame:
    """Where a strand stands in a row of nodes.

    In a loop: its node, the segment, how many iterations of the segment are `left` (this one included), the iteration of the round, and the
    iteration of the loop (`number`). `pumps`: what was seen to repeat in it: (number of the pump, stretch, iterations of a round).
    """

    __slots__ = ("items", "iteration", "left", "loop", "number", "position", "pumps", "segment")

    def __init__(self, items: tuple[int, ...], loop: int = -1, segment: int = -1, left: int = 0, number: int = -1) -> None:
        self.items, self.position, self.iteration = items, 0, 0
        self.loop, self.segment, self.left, self.number = loop, segment, left, number
        self.pumps: list[tuple[int, int, int]] = []

    def may_repeat(self, segment: Segment, slots: int) -> bool:
        """Whether its segment has enough rounds for states to be looked at. `slots`: of the longest ring.

        A loop of fixed length has to have gone round that before, so that its states may come back, and to go on for long enough.
        """
        rounds = segment.length / len(segment.iterations)
        if segment.stretch >= 0:
            return rounds > 1
        return rounds > FEW_ROUNDS and segment.length > LONG * slots and self.number - segment.first >= FILLED * slots

    def copy(self) -> "Frame":
        """Another one that stands there."""
        found = Frame(self.items, self.loop, self.segment, self.left, self.number)
        found.position, found.iteration, found.pumps = self.position, self.iteration, list(self.pumps)
        return found


class Agent:
    """A strand at work: its clock, its queues, where it stands, and what it waits for (`blocked`: empty when it does not).

    `number`: the strand's number, which is also its component. `row`: the nodes that it has to run. `counts`: how far its counters of
    rings are.
    """

    def __init__(self, strand: Strand, counts: Sequence[int] = ()) -> None:
        self.strand, self.number = strand, strand.number
        self.counts = list(counts)
        self.clock: Clock = {}
        self.row: tuple[int, ...] = ()
        self.frames: list[Frame] = []
        self.closed: dict[str, int] = {}
        self.registers: dict[int, Flight] = {}
        self.retired: dict[str, list[tuple[int, int]]] = {}
        self.blocked, self.target = "", 0
        self.waiting: Event | None = None
        self.last_sync: Event | None = None
        self.is_done = False

    def begin(self, row: tuple[int, ...]) -> None:
        """Begin with a row of nodes."""
        self.row, self.frames = row, [Frame(row)]
        self.is_done, self.blocked = False, ""

    def saved(self) -> Restore:
        """What brings back all but where it stands."""
        clock, closed = dict(self.clock), dict(self.closed)
        tiles = [(register, flight, flight.taken) for register, flight in self.registers.items()]
        retired = {queue: list(times) for queue, times in self.retired.items()}
        rest = self.blocked, self.target, self.waiting, self.last_sync, self.is_done
        counts = list(self.counts)

        def restore() -> None:
            self.clock, self.closed, self.counts = dict(clock), dict(closed), list(counts)
            self.registers = {register: flight for register, flight, _ in tiles}
            for _, flight, taken in tiles:
                flight.taken = taken
            self.retired = {queue: list(times) for queue, times in retired.items()}
            self.blocked, self.target, self.waiting, self.last_sync, self.is_done = rest

        return restore

    def at(self, component: int) -> int:
        """The clock's value of a component."""
        return self.clock.get(component, 0)

    def put(self, component: int, value: int) -> None:
        """Raise a component."""
        if value > self.clock.get(component, 0):
            self.clock[component] = value

    def tick(self) -> int:
        """One step further."""
        now = self.clock[self.number] = self.clock.get(self.number, 0) + 1
        return now

    def place(self) -> tuple[tuple[int, int, int], ...]:
        """Where it stands in each row of nodes, but for how much of loops is left: which nodes come next in the rows it is in."""
        return tuple([(f.segment, f.iteration, f.position) for f in self.frames])

    def state(self, phases_left: int, oldest: int) -> tuple[object, ...]:
        """What it waits for and has in flight, in numbers that do not grow with time; ages above `oldest` count as that."""
        tiles = [
            (register, f.event.op_index, min(self.closed.get(f.event.queue, 0) - f.value, oldest), f.taken.op_index if f.taken else -1)
            for register, f in self.registers.items()
            if f.taken is not None or self.at(f.component) < f.value
        ]
        return self.blocked, phases_left, tuple(sorted(tiles)), self.is_done

    def iteration(self) -> int:
        """The iteration of the innermost loop it is in, -1 in none; the repetitions left out count."""
        return self.frames[-1].number if self.frames else -1


def vector_of(agent: Agent) -> Vector:
    """Where a strand stands in its loops."""
    return tuple([frame.number for frame in agent.frames if frame.loop >= 0])


def is_ordered(record: Record, agent: Agent, access: Access) -> bool:
    """Whether a record happened before an access that the agent makes now."""
    if record.agent is agent and (not record.access.queue or (record.access.in_local_order and access.in_local_order)):
        return True
    return reached(agent.clock, record.component, record.value)


def needs_fence(access: Access) -> bool:
    """Whether the async proxy sees what an access did only after a fence."""
    return access.is_write and not access.is_async


def fence_token(components: Components, record: Record) -> tuple[int, int] | None:
    """What says that the writer fenced a generic write after it was done; None where it does not know yet that it is done."""
    if record.done < 0:
        retired = record.agent.retired.get(record.access.queue, ())
        record.done = next((time for count, time in retired if count >= record.value), -1)
        if record.done < 0:
            return None
    return components.fence(record.agent.number, is_global=record.access.effect is not None), record.done


def is_fenced(components: Components, record: Record, clock: Clock) -> bool:
    """Whether the writer fenced a generic write after it was done, and whoever has the clock knows."""
    token = fence_token(components, record)
    return token is not None and reached(clock, *token)


def known_to_all(clocks: list[Clock]) -> Clock:
    """What every one of some clocks knows."""
    first, *others = clocks
    return {component: min([value, *[clock.get(component, 0) for clock in others]]) for component, value in first.items()}


def not_over(components: Components, records: list[Record], known: Clock, *, fences: bool) -> list[Record]:
    """Those of `records` that are not `known` to be over; `fences`: and to be fenced, where the async proxy may come."""
    get = known.get
    return [
        r for r in records if get(r.component, 0) < r.value or (fences and needs_fence(r.access) and not is_fenced(components, r, known))
    ]
