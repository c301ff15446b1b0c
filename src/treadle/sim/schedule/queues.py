"""Asynchronous operations, the queues that retire them in groups, and what an agent waits for."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from treadle import machine
from treadle.ir.core import Operation
from treadle.sim.schedule.clocks import Clock, Component


class AsyncOperation:
    """An operation that was issued: first it reads its sources, then it writes its results."""

    __slots__ = ("_read", "_value", "_write", "done", "group", "has_read", "op", "queue")

    def __init__(self, op: Operation, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self.op = op
        self._read = read
        self._write = write
        self._value: Any = None
        self.has_read = self.done = False
        self.group = 0
        self.queue: Queue | None = None

    def read(self) -> None:
        """Read the sources, if that has not happened."""
        if not self.has_read:
            self._value = self._read()
            self.has_read = True

    def land(self) -> None:
        """Take effect, if that has not happened."""
        self.read()
        if not self.done:
            self.done = True
            self._write(self._value)
            self._value = None


class Settled(Protocol):
    """What is complete for its agent from a time in its program order on."""

    settled: int


class Queue:
    """The operations an agent issued to one queue of the machine, in groups. `facts`: the machine's row of it.

    `retired`, `read`: groups known by waits to be complete, or to have read their sources.
    """

    def __init__(self, facts: machine.Queue, agent: int) -> None:
        self.facts, self.name = facts, facts.name
        name = facts.name
        self.component: Component = (name, agent)
        self.read_component: Component = (f"{name} read", agent)
        self.committed = self.retired = self.read = 0
        self.operations: list[AsyncOperation] = []
        self._unknown: list[AsyncOperation] = []
        self._unsettled: list[tuple[int, Settled]] = []

    @property
    def is_local(self) -> bool:
        """Whether it holds the agent's own accesses to shared memory."""
        return self.facts.role == "local"

    @property
    def next_group(self) -> int:
        """The group of an operation issued now."""
        return self.committed + 1

    def issue(self, operation: AsyncOperation) -> None:
        """Add an operation."""
        operation.group, operation.queue = self.next_group, self
        self.operations.append(operation)
        self._unknown.append(operation)
        if not self.facts.is_committed:
            self.committed += 1

    def settles(self, access: "Settled") -> None:
        """An access of the next group: it is complete for its agent once a wait retires the group."""
        self._unsettled.append((self.next_group, access))

    def unfinished(self, last: int, *, read: bool = False) -> list[AsyncOperation]:
        """Operations up to group `last` that have not taken effect (`read`: not read their sources), oldest first."""
        self.operations = [o for o in self.operations if not o.done]
        return [o for o in self.operations if o.group <= last and not (read and o.has_read)]

    def left(self) -> list[AsyncOperation]:
        """Operations on shared memory that no wait retired (bulk stores: that no wait knows to have read)."""
        if self.is_local:
            return []
        last = self.read if self.facts.tells_reads else self.retired
        return [o for o in self._unknown if o.group > last]

    def land_through(self, operation: AsyncOperation) -> None:
        """Let everything up to an operation take effect."""
        for earlier in self.unfinished(operation.group):
            earlier.land()
            if earlier is operation:
                break

    def retire(self, last: int, clock: Clock, *, read: bool = False) -> None:
        """The agent with this clock now knows that groups up to `last` are complete (or have read)."""
        self.read = max(self.read, last)
        clock[self.read_component] = max(clock.get(self.read_component, 0), last)
        if not read:
            self.retired = max(self.retired, last)
            clock[self.component] = max(clock.get(self.component, 0), last)
            self._unknown = [o for o in self._unknown if o.group > last]
            for group, access in self._unsettled:
                if group <= last:
                    access.settled = clock.get(("order", self.component[1]), 0) + 1  # the agent's next step
            self._unsettled = [pair for pair in self._unsettled if pair[0] > last]


class Wait:
    """What an agent waits for at an operation."""

    def __init__(self, op: Operation) -> None:
        self.op = op

    def ready(self) -> bool:
        """Whether it may go on."""
        raise NotImplementedError

    def finish(self) -> None:
        """What going on means for the agent's clock."""

    def landable(self) -> Sequence[AsyncOperation]:
        """Operations in flight whose effects may make it ready."""
        return ()

    def take(self) -> None:
        """Let what is needed take effect: one step."""
        for operation in self.landable()[:1]:
            operation.land()

    def text(self) -> str:
        """What is waited for, for a report."""
        raise NotImplementedError


class QueueWait(Wait):
    """A wait for all groups of a queue up to `last`."""

    def __init__(self, op: Operation, queue: Queue, last: int, clock: Clock, *, read: bool) -> None:
        super().__init__(op)
        self._queue, self._last, self._clock, self._read = queue, last, clock, read

    def ready(self) -> bool:
        return not self.landable()

    def finish(self) -> None:
        self._queue.retire(self._last, self._clock, read=self._read)

    def landable(self) -> Sequence[AsyncOperation]:
        return self._queue.unfinished(self._last, read=self._read)

    def take(self) -> None:
        for operation in self.landable()[:1]:
            if self._read:
                operation.read()
            else:
                operation.land()

    def text(self) -> str:
        return f"waits for {len(self.landable())} operation(s) of the queue {self._queue.name}"


class Registers:
    """The registers of a tile that an operation in a queue reads, with the result that says when it is over."""

    __slots__ = ("reader", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.reader: PendingTile | None = None


class PendingTile:
    """The result of an operation that has not been waited for; it stands for its value in the frames of agents.

    `taken`: the operation that took it over as its accumulator while it was in flight.
    """

    __slots__ = ("operation", "queue", "taken", "value")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.operation: AsyncOperation | None = None
        self.taken: Operation | None = None
        self.value: Any = None

    @property
    def is_retired(self) -> bool:
        """Whether a wait retired its group."""
        return self.operation is not None and self.queue.retired >= self.operation.group
