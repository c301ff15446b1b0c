"""What one agent does, as far as order matters: events, and the traces they form.

A trace is a tree that shares equal parts. Its leaves are events; a loop is a row of iterations in which a repeated stretch is kept once
with its count, so that a checker can leave out whole repetitions once its own state repeats.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from treadle.ir.core import Operation
from treadle.verify.regions import Part, Region

Kind = Literal["access", "move", "commit", "wait", "barrier", "cluster", "named", "fence", "arrive", "alloc", "expect", "wait_phase"]
COMMITTED_QUEUES = ("wgmma", "cp_async", "bulk_store")
"""Queues whose groups a commit closes; in all others each operation is a group of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One access of an event. `queue`: "" for program order, "mbarrier", or the queue whose wait retires it."""

    region: Region
    is_write: bool
    is_async: bool
    queue: str = ""
    part: Part | None = None
    in_local_order: bool = False


@dataclass(slots=True, eq=False)
class Event:
    """One dynamic operation, equal ones shared.

    `uses`, `defines`, `chained`: register values that a queue may still write (by number). `barrier`: number of the mbarrier.
    `number`: pending groups, parity, warps or bytes. `elected`: only the elected warp does it. `ranks`: the workgroups that it reaches,
    where it names them.
    """

    kind: Kind
    op: Operation
    op_index: int
    accesses: tuple[Access, ...] = ()
    uses: tuple[int, ...] = ()
    chained: tuple[int, ...] = ()
    defines: tuple[int, ...] = ()
    moves: tuple[tuple[int, int], ...] = ()
    queue: str = ""
    number: int = 0
    barrier: int = -1
    is_elected: bool = False
    is_read_wait: bool = False
    is_bare: bool = False
    is_arrive: bool = False
    groups: tuple[int, ...] | None = None
    ranks: tuple[int, ...] = ()


class Segment(NamedTuple):
    """Iterations that are done `repeats` times; `first` is the number of the first one."""

    iterations: tuple[tuple[int, ...], ...]
    repeats: int
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class LoopNode:
    """A loop's iterations."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RolesNode:
    """Roles that run at the same time: the trace of each group of each role, in order."""

    op_index: int
    traces: tuple[tuple[int, ...], ...]


Node = Event | LoopNode | RolesNode


@dataclass(slots=True)
class Trace:
    """All nodes, and the kernel's own row of them in each workgroup of the cluster."""

    nodes: list[Node]
    roots: tuple[tuple[int, ...], ...] = ()
    trip_counts: dict[int, int] = field(default_factory=dict[int, int])


MIN_ITERATIONS = 8
MAX_TAIL = 24


def compress(iterations: Sequence[tuple[int, ...]]) -> tuple[Segment, ...]:
    """The iterations as segments: one long repeated stretch, if there is one, with what comes before and after it."""
    total = len(iterations)
    whole = (Segment(tuple(iterations), 1, 0),) if total else ()
    if total < MIN_ITERATIONS:
        return whole
    middle = total // 2
    best = (0, 0, 0)
    for period in range(1, total // 3 + 1):
        if iterations[middle] != iterations[middle + period]:
            continue
        low = middle
        while low > 0 and iterations[low - 1] == iterations[low - 1 + period]:
            low -= 1
        high = middle + period
        while high < total and iterations[high] == iterations[high - period]:
            high += 1
        if high - low > best[0]:
            best = (high - low, low, period)
        if high - low >= total - MAX_TAIL:
            break
    length, low, period = best
    count = length // period if period else 0
    if count < 3:
        return whole
    high = low + count * period
    found = [Segment(tuple(iterations[low : low + period]), count, low)]
    if low:
        found.insert(0, Segment(tuple(iterations[:low]), 1, 0))
    if high < total:
        found.append(Segment(tuple(iterations[high:]), 1, high))
    return tuple(found)
