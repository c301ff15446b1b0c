"""The state of insert-sync's data flow: operations in the queues, with how many groups are newer, and accesses other agents do not know of.

Joins keep the least number of newer groups, for a wait that leaves n groups pending retires an operation on every path only where at
least n newer groups exist on every path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from treadle.analysis.shared_accesses import SharedAccess
from treadle.ir.core import Operation, SSAValue

OPEN = -1
"""Number of newer groups of an operation whose group nobody has closed."""
MOST_GROUPS = 63
"""Numbers of groups are counted up to here; more are as many."""


@dataclass(frozen=True, slots=True)
class Issued:
    """An operation in a queue: what it accesses, and the values that hold its result (`names`)."""

    op: Operation
    queue: str
    accesses: tuple[SharedAccess, ...]
    names: frozenset[SSAValue] = frozenset()


@dataclass(frozen=True, slots=True)
class Flow:
    """What is known before an operation.

    `issued`: operations in flight, with the number of newer groups. `unordered`: complete accesses that other agents may not know of.
    `has_local`: local accesses may be on their way on machines that queue them. `owed`: operations behind which slots of rings are handed
    back as soon as their reads are over.
    """

    issued: Mapping[Issued, int] = field(default_factory=dict[Issued, int])
    unordered: frozenset[SharedAccess] = frozenset()
    has_local: bool = False
    owed: frozenset[Operation] = frozenset()

    def join(self, other: "Flow", count: Callable[[int, int], int] = min) -> "Flow":
        """What is known where two paths meet. `count`: which number of newer groups is kept where they differ."""
        merged = dict(self.issued)
        for item, newer in other.issued.items():
            merged[item] = count(newer, merged.get(item, newer))
        return Flow(merged, self.unordered | other.unordered, self.has_local or other.has_local, self.owed | other.owed)

    def issue(self, item: Issued, *, closed: bool) -> "Flow":
        """An operation enters its queue; `closed`: as a group of its own."""
        flow = self.newer_group(item.queue) if closed else self
        issued = dict(flow.issued)
        issued[item] = 0 if closed else OPEN
        return replace(flow, issued=issued)

    def is_open(self, queue: str) -> bool:
        """Whether a commit of the queue would close a group that holds something, on some path."""
        return any(item.queue == queue and newer == OPEN for item, newer in self.issued.items())

    def newer_group(self, queue: str) -> "Flow":
        """A group of the queue is closed: what it held counts 0 newer ones, the rest one more."""
        issued = {i: min(n + 1, MOST_GROUPS) if i.queue == queue else n for i, n in self.issued.items()}
        return replace(self, issued=issued)

    def retire(self, queue: str, pending: int) -> "Flow":
        """All but the newest `pending` groups are complete, for the agent that waited."""
        left: dict[Issued, int] = {}
        done = set(self.unordered)
        for item, newer in self.issued.items():
            if item.queue == queue and newer >= pending:
                done.update(item.accesses)
            else:
                left[item] = newer
        return replace(self, issued=left, unordered=frozenset(done))

    def fenced(self) -> "Flow":
        """What this agent wrote may be seen by the async proxy once it is ordered."""
        return replace(self, unordered=frozenset(replace(access, is_async=True) for access in self.unordered))

    def meet(self) -> "Flow":
        """All agents met: what was complete is known to all."""
        return replace(self, unordered=frozenset(), has_local=False)

    def access(self, accesses: tuple[SharedAccess, ...], *, is_local: bool) -> "Flow":
        """Accesses that are complete when the next operation starts."""
        return replace(self, unordered=self.unordered | frozenset(accesses), has_local=self.has_local or is_local)

    def moved(self, slots: Callable[[SharedAccess], SharedAccess], names: Callable[[frozenset[SSAValue]], frozenset[SSAValue]]) -> "Flow":
        """Seen from behind an edge of a loop."""
        issued: dict[Issued, int] = {}
        for item, newer in self.issued.items():
            there = replace(item, accesses=tuple(map(slots, item.accesses)), names=names(item.names))
            issued[there] = min(newer, issued.get(there, newer))
        return replace(self, issued=issued, unordered=frozenset(map(slots, self.unordered)))


@dataclass(slots=True)
class Plan:
    """What a walk found: for each wait, the operation that its last needed group ends with, and where the wait stands.

    `once`: branches of loops that are taken in one of the first steps.
    """

    ends: list[tuple[Operation, str, Operation]] = field(default_factory=list[tuple[Operation, str, Operation]])
    once: set[Operation] = field(default_factory=set[Operation])


@dataclass(slots=True)
class Needs:
    """What an operation has to wait for: of each queue the newest operation, by the number of newer groups, and the other agents."""

    newer: dict[str, int] = field(default_factory=dict[str, int])
    barrier: bool = False

    def __bool__(self) -> bool:
        return self.barrier or bool(self.newer)

    def require(self, queue: str, newer: int) -> None:
        """Something of the queue must be complete."""
        self.newer[queue] = min(newer, self.newer.get(queue, newer))

    def add(self, other: "Needs") -> None:
        """Both."""
        for queue, newer in other.newer.items():
            self.require(queue, newer)
        self.barrier = self.barrier or other.barrier


def needs(flow: Flow, starting: tuple[SharedAccess, ...], reads: frozenset[SSAValue]) -> Needs:
    """What must happen before accesses start and values are read."""
    found = Needs()
    for item, newer in flow.issued.items():
        if item.names & reads:
            found.require(item.queue, newer)
        for earlier in item.accesses:
            for access in starting:
                if earlier.conflicts(access):
                    found.require(item.queue, newer)
                    found.barrier = found.barrier or not (earlier.is_elected and access.is_elected)
    if not found.barrier:
        found.barrier = any(_crosses_agents(earlier, access) for earlier in flow.unordered for access in starting)
    return found


def _crosses_agents(earlier: SharedAccess, access: SharedAccess) -> bool:
    if earlier.is_elected and access.is_elected:
        return False
    return earlier.conflicts(access) and not earlier.keeps_to_threads(access)
