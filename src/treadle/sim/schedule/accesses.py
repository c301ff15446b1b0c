"""Races: every access is checked, when it is issued, against the earlier ones to the same places.

A shadow keeps for each place the last write and, for each stream of accesses that complete in order, the last read. That is enough: a
write that is ordered after others stands for them (Flanagan and Freund, "FastTrack: Efficient and Precise Dynamic Race Detection", 2009).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.ir.core import Operation
from treadle.sim.element_types import Array
from treadle.sim.schedule.clocks import Clock, Component
from treadle.sim.schedule.report import Findings, Party

Places = Any
"""A slice or an array of indices into a shadow."""


@dataclass(slots=True, eq=False)
class Access:
    """One access: complete for those whose clock has reached `time` at `component`.

    `settled`: time in its agent's program order from which on it is complete for that agent. `in_order`: an access of the local pipe, which
    keeps the order of its own agent's accesses. `repeats`: a write whose values other such writes of its agent may write too, in any order.
    `update`: how it combines elements with values in one step; such writes of one kind commute.
    """

    op: Operation
    agent: int
    agent_name: str
    component: Component
    time: int
    settled: int
    is_write: bool
    is_async: bool = False
    in_order: bool = False
    repeats: bool = False
    is_atomic: bool = False
    update: str = ""

    def happened_before(self, clock: Clock, later: "Access") -> bool:
        """Whether it was complete before `later` started, whose agent had this clock."""
        if clock.get(self.component, 0) >= self.time or (self.is_atomic and later.is_atomic):
            return True
        if self.update and self.update == later.update:
            return True
        return self.agent == later.agent and ((self.in_order and later.in_order) or (self.repeats and later.repeats))

    def is_fenced(self, clock: Clock, fence: str) -> bool:
        """Whether a fence (of that component) of its agent followed its completion and is known to `clock`."""
        return clock.get((fence, self.agent), 0) >= self.settled

    @property
    def party(self) -> Party:
        """It in a report."""
        return Party(self.op, self.agent_name, "write" if self.is_write else "read")


def _distinct(ids: Array) -> Sequence[int]:
    if not ids.size:
        return ()
    first = ids.flat[0]
    if (ids == first).all():
        return () if first < 0 else (int(first),)
    return [int(i) for i in np.unique(ids) if i >= 0]


class Shadow:
    """The last accesses to each place of a memory, as numbers of accesses (-1: none). `fence`: the component of fences that serve it."""

    def __init__(self, size: int, fence: str = "fence") -> None:
        self._size, self.fence = size, fence
        self.writes = np.full(size, -1, dtype=np.int32)
        self._reads: dict[Component, Array] = {}

    def record(self, places: Places, number: int, access: Access) -> set[int]:
        """Enter an access; the earlier ones that it conflicts with."""
        found = set(_distinct(self.writes[places]))
        if not access.is_write:
            if access.component not in self._reads:
                self._reads[access.component] = np.full(self._size, -1, dtype=np.int32)
            self._reads[access.component][places] = number
            return found
        for reads in self._reads.values():
            if readers := _distinct(reads[places]):
                found.update(readers)
                reads[places] = -1
        self.writes[places] = number
        return found


class Accesses:
    """All accesses of an execution, and what was wrong with them."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self._all: list[Access] = []

    def enter(self, shadow: Shadow, places: Places, access: Access, clock: Clock, where: Callable[[], str]) -> Array | None:
        """Check and record an access made with `clock`; for an asynchronous one, which of `places` hold writes without a fence."""
        number = len(self._all)
        before = shadow.writes[places].copy() if access.is_async else None
        self._all.append(access)
        unfenced: list[int] = []
        for earlier_number in sorted(shadow.record(places, number, access)):
            earlier = self._all[earlier_number]
            if not earlier.happened_before(clock, access):
                self.findings.race("order", earlier.party, access.party, where())
            if access.is_async and earlier.is_write and not earlier.is_async and not earlier.is_fenced(clock, shadow.fence):
                self.findings.race("proxy", earlier.party, access.party, where())
                unfenced.append(earlier_number)
        return np.isin(before, unfenced) if before is not None and unfenced else None
