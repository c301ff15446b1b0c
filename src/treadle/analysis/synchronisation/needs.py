"""What operations have to wait for: each with the accesses that start with it and the values it reads, held against what is in flight."""

from dataclasses import field
from enum import IntEnum

from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.synchronisation.in_flight import AccessTable, Flow, Issued
from treadle.ir.core import SSAValue
from treadle.records import dataclass


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


class _Meeting(IntEnum):
    """What an operation has to do with one in flight: nothing, wait for it, or wait for it with all other agents."""

    NONE = 0
    WAIT = 1
    MEET = 2


class Start:
    """What starts at one place: accesses, and reads of values. What it has to do with others is found out once."""

    __slots__ = ("_crossed", "_held", "_items", "_table", "accesses", "reads")

    def __init__(self, table: AccessTable, accesses: tuple[int, ...], reads: frozenset[SSAValue]) -> None:
        self.accesses, self.reads, self._table = accesses, reads, table
        self._items: dict[Issued, _Meeting] = {}
        self._crossed: dict[int, bool] = {}
        self._held: dict[int, bool] = {}

    def needs(self, flow: Flow) -> Needs:
        """What must happen before the accesses start and the values are read."""
        found = Needs()
        for item, newer in flow.issued.items():
            if item not in self._items:
                self._items[item] = self._meeting(item)
            if meeting := self._items[item]:
                found.require(item.queue, newer)
                found.barrier = found.barrier or meeting is _Meeting.MEET
        if self.accesses and not found.barrier:
            found.barrier = any(map(self._crosses, flow.unordered))
        return found

    def holds(self, earlier: int) -> bool:
        """Whether an access is to the slot of one of these, or to a part of it, whatever its number."""
        if earlier not in self._held:
            done = self._table[earlier]
            mine = [self._table[access] for access in self.accesses]
            self._held[earlier] = any(access.holds_slot_of(done) for access in mine)
        return self._held[earlier]

    def conflicts(self, other: "Start") -> bool:
        """Whether some of the accesses of two meet."""
        return any(self._table[a].conflicts(self._table[b]) for a in self.accesses for b in other.accesses)

    def _meeting(self, item: Issued) -> _Meeting:
        found = _Meeting.WAIT if item.names & self.reads else _Meeting.NONE
        for earlier in map(self._table.__getitem__, item.accesses):
            for access in map(self._table.__getitem__, self.accesses):
                if earlier.conflicts(access):
                    if not (earlier.is_elected and access.is_elected):
                        return _Meeting.MEET
                    found = _Meeting.WAIT
        return found

    def _crosses(self, earlier: int) -> bool:
        if earlier not in self._crossed:
            done = self._table[earlier]
            self._crossed[earlier] = any(_crosses_agents(done, self._table[access]) for access in self.accesses)
        return self._crossed[earlier]


def _crosses_agents(earlier: SharedAccess, access: SharedAccess) -> bool:
    if earlier.is_elected and access.is_elected:
        return False
    return earlier.conflicts(access) and not earlier.keeps_to_threads(access)
