"""The state of insert-sync's data flow: operations in the queues, with how many groups are newer, and accesses other agents do not know of.

Joins keep the least number of newer groups, for a wait that leaves n groups pending retires an operation on every path only where at
least n newer groups exist on every path. Accesses are numbers of an `AccessTable`: a walk comes to the same ones again and again.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import NamedTuple

from treadle.analysis.shared_accesses import SharedAccess
from treadle.ir.core import Operation, SSAValue
from treadle.records import dataclass

OPEN = -1
"""Number of newer groups of an operation whose group nobody has closed."""
MOST_GROUPS = 63
"""Numbers of groups are counted up to here; more are as many."""


@dataclass(frozen=True, eq=False, slots=True)
class Issued:
    """An operation in a queue: what it accesses, and the values that hold its result (`names`). One object for each (`AccessTable`)."""

    op: Operation
    queue: str
    accesses: tuple[int, ...]
    names: frozenset[SSAValue] = frozenset()


class AccessTable:
    """The accesses of one kernel by number, and its operations in queues: equal ones are one number, and one object."""

    def __init__(self) -> None:
        self._numbers: dict[SharedAccess, int] = {}
        self._accesses: list[SharedAccess] = []
        self._issued: dict[tuple[Operation, tuple[int, ...], frozenset[SSAValue]], Issued] = {}
        self._fenced: dict[int, int] = {}

    def __getitem__(self, number: int) -> SharedAccess:
        """The access of a number."""
        return self._accesses[number]

    def number(self, access: SharedAccess) -> int:
        """The number of an access."""
        found = self._numbers.setdefault(access, len(self._accesses))
        if found == len(self._accesses):
            self._accesses.append(access)
        return found

    def fenced(self, number: int) -> int:
        """An access that the async proxy may see."""
        if number not in self._fenced:
            self._fenced[number] = self.number(replace(self[number], is_async=True))
        return self._fenced[number]

    def issued(self, op: Operation, queue: str, accesses: tuple[int, ...], names: frozenset[SSAValue]) -> Issued:
        """An operation in a queue."""
        key = (op, accesses, names)
        if key not in self._issued:
            self._issued[key] = Issued(op, queue, accesses, names)
        return self._issued[key]


class Flow(NamedTuple):
    """What is known before an operation.

    `issued`: operations in flight, with the number of newer groups. `unordered`: complete accesses that other agents may not know of.
    `has_local`: local accesses may be on their way on machines that queue them. `owed`: operations behind which slots of rings are handed
    back as soon as their reads are over.
    """

    issued: Mapping[Issued, int]
    unordered: frozenset[int] = frozenset()
    has_local: bool = False
    owed: frozenset[Operation] = frozenset()

    def join(self, other: "Flow", count: Callable[[int, int], int] = min) -> "Flow":
        """What is known where two paths meet. `count`: which number of newer groups is kept where they differ."""
        if self == other:
            return self
        merged = dict(self.issued)
        for item, newer in other.issued.items():
            merged[item] = count(newer, merged.get(item, newer))
        return Flow(merged, self.unordered | other.unordered, self.has_local or other.has_local, self.owed | other.owed)

    def issue(self, item: Issued, *, closed: bool) -> "Flow":
        """An operation enters its queue; `closed`: as a group of its own."""
        flow = self.newer_group(item.queue) if closed else self
        return Flow({**flow.issued, item: 0 if closed else OPEN}, *flow[1:])

    def is_open(self, queue: str) -> bool:
        """Whether a commit of the queue would close a group that holds something, on some path."""
        return any(item.queue == queue and newer == OPEN for item, newer in self.issued.items())

    def newer_group(self, queue: str) -> "Flow":
        """A group of the queue is closed: what it held counts 0 newer ones, the rest one more."""
        return Flow({i: min(n + 1, MOST_GROUPS) if i.queue == queue else n for i, n in self.issued.items()}, *self[1:])

    def retire(self, queue: str, pending: int) -> "Flow":
        """All but the newest `pending` groups are complete, for the agent that waited."""
        left: dict[Issued, int] = {}
        done = set(self.unordered)
        for item, newer in self.issued.items():
            if item.queue == queue and newer >= pending:
                done.update(item.accesses)
            else:
                left[item] = newer
        return Flow(left, frozenset(done), self.has_local, self.owed)

    def meet(self) -> "Flow":
        """All agents met: what was complete is known to all."""
        return Flow(self.issued, owed=self.owed)

    def access(self, accesses: tuple[int, ...], *, is_local: bool) -> "Flow":
        """Accesses that are complete when the next operation starts."""
        return Flow(self.issued, self.unordered.union(accesses), self.has_local or is_local, self.owed)

    def moved(self, accesses: Callable[[int], int], items: Callable[[Issued], Issued]) -> "Flow":
        """Seen from behind an edge of a loop."""
        issued: dict[Issued, int] = {}
        for item, newer in self.issued.items():
            there = items(item)
            issued[there] = min(newer, issued.get(there, newer))
        return Flow(issued, frozenset(map(accesses, self.unordered)), self.has_local, self.owed)


@dataclass(slots=True)
class Plan:
    """What a walk found: for each wait, the operation that its last needed group ends with, and where the wait stands.

    `once`: branches of loops that are taken in one of the first steps.
    """

    ends: list[tuple[Operation, str, Operation]] = field(default_factory=list[tuple[Operation, str, Operation]])
    once: set[Operation] = field(default_factory=set[Operation])
