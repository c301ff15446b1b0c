"""What an execution of a schedule found: races, deadlock, reads of memory that holds no data, misused barriers."""

from dataclasses import dataclass, field
from typing import Literal

from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.sim.element_types import Array

RaceKind = Literal["order", "proxy", "result", "end"]
"""`order`: two conflicting accesses that nothing orders. `proxy`: a generic write that an asynchronous access follows without the writer's
fence. `result`: the result of a matrix instruction used before a wait retired it. `end`: a copy still in flight when the kernel ends."""


def operation_text(op: Operation) -> str:
    """An operation's name and place."""
    location = location_of(op)
    return f"{op.name} at {location}" if location is not None else op.name


@dataclass(frozen=True, slots=True)
class Party:
    """One side of a race: the operation, the agent that executed it, read or write."""

    op: Operation
    agent: str
    access: Literal["read", "write"]

    def __str__(self) -> str:
        return f"{self.access} by {operation_text(self.op)} ({self.agent})"


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses (`first` was issued earlier) to the same bytes; `where` names the buffer, its slot and the bytes."""

    kind: RaceKind
    first: Party
    second: Party
    where: str

    def __str__(self) -> str:
        missing = {
            "order": "are not ordered",
            "proxy": "have no fence of the writer between them",
            "result": "have no wait between them that retires the instruction",
            "end": "nothing waits for before the kernel ends",
        }[self.kind]
        if self.kind == "end":
            return f"{self.first}, which {missing}: {self.where}"
        return f"{self.first} and {self.second} {missing}: {self.where}"


@dataclass(frozen=True, slots=True)
class PoisonRead:
    """A read of memory that was never written or whose copy has not landed; `elements` of them in the first such execution."""

    reader: Party
    elements: int
    where: str

    def __str__(self) -> str:
        return f"{self.reader} finds no data in {self.elements} element(s) of {self.where}"


@dataclass(frozen=True, slots=True)
class Blocked:
    """An agent that waits forever, where, and what for (None: it has ended, and others wait for it)."""

    agent: str
    op: Operation | None
    reason: str

    def __str__(self) -> str:
        return f"{self.agent} {f'at {operation_text(self.op)} ' if self.op is not None else ''}{self.reason}"


@dataclass(frozen=True, slots=True)
class Deadlock:
    """No agent of a workgroup can go on."""

    agents: tuple[Blocked, ...]

    def __str__(self) -> str:
        return "deadlock:\n" + "\n".join(f"  {one}" for one in self.agents)


@dataclass(frozen=True, slots=True)
class Misuse:
    """A barrier used in a way that hardware does not define."""

    op: Operation
    agent: str
    reason: str

    def __str__(self) -> str:
        return f"{operation_text(self.op)} ({self.agent}): {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an execution. `outputs`: the output arrays; `steps`: memory and synchronisation operations executed by all agents.

    Each pair of operations is reported once a kind.
    """

    races: tuple[Race, ...]
    deadlock: Deadlock | None
    poison_reads: tuple[PoisonRead, ...]
    misuses: tuple[Misuse, ...]
    outputs: tuple[Array, ...]
    steps: int

    @property
    def ok(self) -> bool:
        """Whether nothing is to be objected to."""
        return not (self.races or self.deadlock or self.poison_reads or self.misuses)

    def __str__(self) -> str:
        found = [*self.races, *self.poison_reads, *self.misuses, *([self.deadlock] if self.deadlock else [])]
        return "\n".join(map(str, found)) or f"no objection in {self.steps} steps"


@dataclass(slots=True)
class Findings:
    """Collects findings while agents run; the same pair of operations is kept once a kind."""

    races: dict[tuple[object, ...], Race] = field(default_factory=dict[tuple[object, ...], Race])
    poison_reads: dict[Operation, PoisonRead] = field(default_factory=dict[Operation, PoisonRead])
    misuses: dict[tuple[Operation, str], Misuse] = field(default_factory=dict[tuple[Operation, str], Misuse])
    deadlock: Deadlock | None = None
    steps: int = 0

    def race(self, kind: RaceKind, first: Party, second: Party, where: str) -> None:
        """Add a race."""
        self.races.setdefault((kind, first.op, second.op, first.access, second.access), Race(kind, first, second, where))

    def poison_read(self, reader: Party, elements: int, where: str) -> None:
        """Add a read of nothing."""
        self.poison_reads.setdefault(reader.op, PoisonRead(reader, elements, where))

    def misuse(self, op: Operation, agent: str, reason: str) -> None:
        """Add a misused barrier."""
        self.misuses.setdefault((op, reason), Misuse(op, agent, reason))

    def report(self, outputs: tuple[Array, ...]) -> Report:
        """Everything found so far."""
        reads, misuses = tuple(self.poison_reads.values()), tuple(self.misuses.values())
        return Report(tuple(self.races.values()), self.deadlock, reads, misuses, outputs, self.steps)
