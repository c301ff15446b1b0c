"""What one agent does, as far as order matters: events, and the traces they form.

A trace is a tree that shares equal parts. Its leaves are events; a loop is a row of iterations in which a round that repeats is kept once
with how many iterations there are, so that a checker can leave out whole repetitions once its own state repeats.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Literal

from treadle.dialects.effects import Effect
from treadle.ir.core import Operation
from treadle.verify.regions import Part, Region

Kind = Literal["access", "move", "commit", "wait", "barrier", "cluster", "named", "fence", "arrive", "alloc", "expect", "wait_phase"]


class Access:
    """One access of an event. `queue`: "" for program order, "mbarrier", or the queue whose wait retires it.

    `effect`: of an access to a global array, the effect that it is (the region is then the whole array). `turned`: the number of the
    event that it is of and its own there, where that goes round a ring; -1 for others.
    """

    __slots__ = ("effect", "in_local_order", "is_async", "is_write", "part", "queue", "region", "turned")

    def __init__(
        self,
        region: Region,
        is_write: bool,
        is_async: bool,
        queue: str,
        part: Part | None,
        in_local_order: bool,
        effect: Effect | None = None,
    ) -> None:
        self.region, self.is_write, self.is_async = region, is_write, is_async
        self.queue, self.part, self.in_local_order, self.effect = queue, part, in_local_order, effect
        self.turned = -1


class Event:
    """One dynamic operation, equal ones shared. Those of one operation differ in accesses, number and barrier.

    `uses`, `defines`, `chained`: register values that a queue may still write (by number). `barrier`: number of the mbarrier.
    `number`: pending groups, parity, warps or bytes. `elected`: only the elected warp does it. `ranks`: the workgroups that it reaches,
    where it names them. `is_perhaps`: it may or may not happen.
    """

    def __init__(
        self,
        kind: Kind,
        op: Operation,
        op_index: int,
        accesses: tuple[Access, ...] = (),
        uses: tuple[int, ...] = (),
        chained: tuple[int, ...] = (),
        defines: tuple[int, ...] = (),
        moves: tuple[tuple[int, int], ...] = (),
        queue: str = "",
        number: int = 0,
        barrier: int = -1,
        is_elected: bool = False,
    ) -> None:
        self.kind, self.op, self.op_index, self.accesses = kind, op, op_index, accesses
        self.uses, self.chained, self.defines, self.moves = uses, chained, defines, moves
        self.queue, self.number, self.barrier, self.is_elected = queue, number, barrier, is_elected
        self.is_read_wait = self.is_bare = self.is_arrive = self.is_perhaps = False
        self.groups: tuple[int, ...] | None = None
        self.ranks: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it only accesses memory, in the order of the program."""
        return self.kind == "access" and self.barrier < 0 and not self.defines and not any(access.queue for access in self.accesses)

    def perhaps(self) -> "Event":
        """The same as one that may or may not happen."""
        found = Event("access", self.op, self.op_index, self.accesses, self.uses, self.chained, is_elected=self.is_elected)
        found.ranks, found.is_perhaps = self.ranks, True
        return found


MAX_ACCESSES = 64


class TurnedEvent:
    """An event whose slots, barrier or parity are those of counters of rings: another one for each of their counts.

    `number`: no other such event has it. `make`: makes the event for a count of each of `counters`.
    """

    __slots__ = ("_counts", "_events", "_make", "counters", "is_elected", "kind", "number")

    def __init__(self, number: int, counters: tuple[int, ...], counts: list[int], make: Callable[[tuple[int, ...]], Event]) -> None:
        self.number, self.counters, self._make = number, counters, make
        self._events: dict[object, Event] = {}
        self._counts: Callable[[list[int]], int | tuple[int, ...]] = itemgetter(*counters)  # of one counter its count, of several a tuple
        event = self.at(counts)
        self.kind, self.is_elected = event.kind, event.is_elected

    def at(self, counts: list[int]) -> Event:
        """The event for these counts of all counters."""
        key = self._counts(counts)
        found = self._events.get(key)
        if found is None:
            found = self._events[key] = self._make(key if isinstance(key, tuple) else (key,))
            for at, access in enumerate(found.accesses):
                if access.effect is None:
                    access.turned = self.number * MAX_ACCESSES + at
        return found

    def perhaps(self, number: int, counts: list[int]) -> "TurnedEvent":
        """The same as one that may or may not happen."""
        return TurnedEvent(number, self.counters, counts, lambda key: self._make(key).perhaps())


class Counted:
    """A counter of rings goes on."""

    __slots__ = ("by", "counter")

    def __init__(self, counter: int, by: int) -> None:
        self.counter, self.by = counter, by


class Segment(tuple[Any, ...]):
    """`length` iterations, which are `iterations` in turn, as often as that takes; `first` is the number of the first one.

    `stretch`: the stretch between turning points of the loop that it is in, where that may be longer and would go on repeating; else -1.
    Compared by all of these, as a tuple is; `typing.NamedTuple` takes as long to import as three modules.
    """

    __slots__ = ()
    iterations: tuple[tuple[int, ...], ...] = property(itemgetter(0))  # type: ignore[assignment]
    length: int = property(itemgetter(1))  # type: ignore[assignment]
    first: int = property(itemgetter(2))  # type: ignore[assignment]
    stretch: int = property(itemgetter(3))  # type: ignore[assignment]

    def __new__(cls, iterations: tuple[tuple[int, ...], ...], length: int, first: int, stretch: int = -1) -> "Segment":
        return tuple.__new__(cls, (iterations, length, first, stretch))  # pyright: ignore[reportUnknownMemberType]


class LoopNode:
    """A loop's iterations."""

    __slots__ = ("segments",)

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments


class RolesNode:
    """Roles that run at the same time: the trace of each group of each role, in order."""

    __slots__ = ("op_index", "traces")

    def __init__(self, op_index: int, traces: tuple[tuple[int, ...], ...]) -> None:
        self.op_index, self.traces = op_index, traces


Node = Event | LoopNode | RolesNode | TurnedEvent | Counted


class Trace:
    """All nodes, and the kernel's own row of them in each workgroup of the cluster.

    `open_loops`: the nodes of loops that may be longer or shorter in the class of the run, as far as the run shows that nothing changes.
    """

    __slots__ = ("nodes", "open_loops", "roots", "trip_counts")

    def __init__(
        self, nodes: list[Node], roots: tuple[tuple[int, ...], ...], trip_counts: dict[int, int], open_loops: frozenset[int]
    ) -> None:
        self.nodes, self.roots, self.trip_counts, self.open_loops = nodes, roots, trip_counts, open_loops


MIN_ITERATIONS = 8
MAX_TAIL = 24
_CHUNK = 256  # so many iterations are compared at once


def compress(iterations: Sequence[tuple[int, ...]], at: int = 0) -> tuple[Segment, ...]:
    """The iterations as segments: one long repeated stretch, if there is one, with what comes before and after it.

    `at` is the number of the first one.
    """
    total = len(iterations)
    whole = (Segment(tuple(iterations), total, at),) if total else ()
    if total < MIN_ITERATIONS:
        return whole
    middle = total // 2
    best = (0, 0, 0)
    for period in range(1, total // 3 + 1):
        if iterations[middle] != iterations[middle + period]:
            continue
        low, high = middle, middle + period
        while low >= _CHUNK and iterations[low - _CHUNK : low] == iterations[low - _CHUNK + period : low + period]:
            low -= _CHUNK
        while low > 0 and iterations[low - 1] == iterations[low - 1 + period]:
            low -= 1
        while high + _CHUNK <= total and iterations[high : high + _CHUNK] == iterations[high - period : high - period + _CHUNK]:
            high += _CHUNK
        while high < total and iterations[high] == iterations[high - period]:
            high += 1
        if high - low > best[0]:
            best = (high - low, low, period)
        if high - low >= total - MAX_TAIL:
            break
    length, low, period = best
    if not period or length < 3 * period:
        return whole
    high = low + length
    found = [Segment(tuple(iterations[low : low + period]), length, at + low)]
    if low:
        found.insert(0, Segment(tuple(iterations[:low]), low, at))
    if high < total:
        found.append(Segment(tuple(iterations[high:]), total - high, at + high))
    return tuple(found)
