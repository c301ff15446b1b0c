"""What an agent does, as far as time matters: steps, durations in clocks of the compute unit, and the spans that come out."""

from dataclasses import dataclass
from typing import Literal

StepKind = Literal["work", "matrix", "copy", "load", "store", "store_async", "commit", "wait", "barrier", "expect", "arrive", "wait_phase"]
SpanKind = Literal["work", "local", "matrix", "copy", "store", "wait"]


@dataclass(frozen=True, slots=True)
class Step:
    """One dynamic operation of an agent.

    `clocks`: how long it keeps the agent (work) or its resource (matrix unit, memory) busy; `latency`: clocks from then until its result is
    there. `uses`, `defines`: register tiles, by number. `queue`, `pending`: of commits, waits and queued operations; `is_group`: such an
    operation is a group of its own; `is_read`: the wait asks only that the source was read. `barrier`: an mbarrier's or a meeting's key;
    `count`: arrivals, bytes, or warps that meet; `parity`: of a phase. `is_local`: work on shared memory.
    """

    kind: StepKind
    label: str
    clocks: float = 0.0
    latency: float = 0.0
    uses: tuple[int, ...] = ()
    defines: tuple[int, ...] = ()
    queue: str = ""
    pending: int = 0
    is_group: bool = False
    is_read: bool = False
    barrier: str = ""
    count: int = 0
    parity: int = 0
    is_arrival: bool = False
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts: on `lane`, from `start` to `end` in clocks; `agent` is who asked for it."""

    lane: str
    kind: SpanKind
    label: str
    start: float
    end: float
    agent: str = ""
