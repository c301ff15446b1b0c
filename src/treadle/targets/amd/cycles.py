"""A model of one matrix unit running a loop: in-order waves, one instruction of each class at a time, counters as queues.

It is for comparing loops, not for predicting times: caches always answer after the same time, and waves of a workgroup on other units are
taken to keep step with those on this one.
"""

import re
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from typing import Literal, get_args

from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.targets.amd.assembly import Instruction, Listing
from treadle.targets.amd.counters import Counter, Kind, access_bytes, counter_of, kind_of, waits_of
from treadle.targets.amd.lane_values import BankUse

LOAD_CLOCKS = 800
"""From the issue of a load to its data: between a hit in the cache that units share and memory."""
SHARED_CLOCKS = 128
BARRIER_CLOCKS = 16
CACHE_BYTES = 64
"""That a compute unit's cache gives in a clock."""
WARM_UP, MEASURED = 8, 24
AHEAD = 2
_MATRIX = re.compile(r"v_\w*?(?:mfma|wmma)\w*?_(\d+)x(\d+)x(\d+)_?(\w*)")
_TYPE_WORDS = {"f16": "f16", "bf16": "bf16", "i8": "i8", "iu8": "i8", "f32": "f32"}
Class = Literal["matrix", "vector", "scalar", "shared", "global", "none"]


def matrix_cycles(mnemonic: str, spec: TargetSpec) -> int:
    """Clocks that a matrix unit is busy with an instruction, by the rate of the machine's rows for its types (else for f16)."""
    found = _MATRIX.match(mnemonic)
    if found is None:
        return 0
    m, n, k = (int(found.group(i)) for i in (1, 2, 3))
    word = found.group(4).removesuffix("_1k").split("_")[0]
    wanted = _TYPE_WORDS.get(word, "f8" if word.startswith(("fp8", "bf8", "f8")) else "f16")
    rows = [row for row in spec.matrix_instructions if row.a_type.startswith(wanted) and row.cycles]
    rows = rows or [row for row in spec.matrix_instructions if row.a_type == "f16"]
    return max((m * n * k * row.cycles) // (row.m * row.n * row.k) for row in rows[:1])


def class_of(one: Instruction, kind: Kind | None) -> Class:
    """Which part of the machine issues an instruction."""
    match kind:
        case "matrix":
            return "matrix"
        case "local_load" | "local_store" | "lane":
            return "shared"
        case "load" | "store" | "copy":
            return "global"
        case _:
            pass
    if one.mnemonic.startswith("v_"):
        return "vector"
    return "none" if one.mnemonic.startswith(("s_wait", "s_nop", "s_barrier")) else "scalar"


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a loop: who issues it, the counter it goes to, what it waits for, whether waves of a workgroup meet there."""

    issue: Class
    counter: Counter | None
    waits: tuple[tuple[Counter, int], ...]
    meets: bool
    matrix: int
    """Clocks of the matrix unit."""
    served: float
    """Clocks of shared memory or of the cache."""


@dataclass(slots=True)
class _Wave:
    number: int
    trips: int = 0
    at: int = 0
    ready: float = 0.0
    may_go: float = 0.0
    """When nothing of its own, of its counters or of those it meets is in the way of its next step; infinite while others are to come."""
    pending: dict[Counter, deque[float]] = field(default_factory=dict[Counter, deque[float]])


def steps_of(listing: Listing, loop: frozenset[int], banks: Mapping[int, BankUse | None], spec: TargetSpec) -> list[Step]:
    """The instructions of a loop, in their order."""
    own_store_counter = spec.queue_for("store") is not None
    found: list[Step] = []
    for at in sorted(loop):
        one = listing.instructions[at]
        kind = kind_of(one)
        size = access_bytes(one) * spec.subgroup_size if kind in ("load", "store", "copy", "local_load", "local_store") else 0
        served = 0.0
        if kind in ("local_load", "local_store"):
            use = banks.get(at)
            served = use.wavefronts if use is not None else -(-size // (spec.banks.count * spec.banks.bytes))
        elif size:
            served = size / CACHE_BYTES
        matrix = matrix_cycles(one.mnemonic, spec) if kind == "matrix" else 0
        counter = counter_of(kind, own_store_counter=own_store_counter)
        found.append(Step(class_of(one, kind), counter, tuple(waits_of(one).items()), kind == "barrier", matrix, served))
    return found


class Unit:
    """One matrix unit and its share of what the compute unit's units have together.

    `waves` on it in workgroups of `workgroup_waves`; an instruction takes a class for `slot` clocks; `units` share memory's paths.
    """

    def __init__(self, steps: Sequence[Step], waves: int, workgroup_waves: int, slot: int, units: int) -> None:
        self.steps, self.slot, self.units = steps, slot, units
        self.waves = [_Wave(number) for number in range(waves)]
        self._workgroups = [self.waves[first : first + workgroup_waves] for first in range(0, waves, workgroup_waves)]
        self._workgroup_waves = workgroup_waves
        self._free = dict.fromkeys(get_args(Class), 0.0)
        self._served_until = dict.fromkeys(get_args(Class), 0.0)
        self._matrix_until = 0.0
        self.multiplied = 0
        self._asked: dict[Counter, int] = {}
        for counter, left in (wait for step in steps for wait in step.waits):
            self._asked[counter] = max(self._asked.get(counter, 0), left + 1)
        for wave in self.waves:
            self._look_ahead(wave)

    def run(self, trips: int) -> float:
        """Go on until each wave has gone around so many times; when that is.

        The machine serves the oldest of its waves first; here none runs ahead of the slowest by more than `AHEAD` trips.
        """
        slowest = min(wave.trips for wave in self.waves)
        while slowest < trips:
            wave, when = self._next(slowest + AHEAD)
            self._issue(wave, when)
            if wave.at == 0:
                slowest = min(wave.trips for wave in self.waves)
        return max(wave.ready for wave in self.waves)

    def state(self) -> Hashable:
        """All that the future depends on, with clocks and trips counted from now: equal states go on equally."""
        now, trip = min(wave.ready for wave in self.waves), min(wave.trips for wave in self.waves)

        def ahead(wave: _Wave, counter: Counter) -> tuple[float, ...]:
            last = list(wave.pending.get(counter, ()))[-self._asked[counter] :]
            return tuple(done - now for done in last if done > now)  # what has arrived is like what was never on its way

        waves = [(wave.at, wave.trips - trip, wave.ready - now, *(ahead(wave, counter) for counter in self._asked)) for wave in self.waves]
        shared = (*self._free.values(), *self._served_until.values(), self._matrix_until)
        return (tuple(waves), tuple(max(0.0, until - now) for until in shared))

    def _next(self, last_trip: int) -> tuple[_Wave, float]:
        """The wave to issue, and when: the first one; of several, one not beyond `last_trip`, then the oldest."""
        steps, free, matrix_until = self.steps, self._free, self._matrix_until
        found, first, is_ahead = self.waves[0], float("inf"), True
        for wave in self.waves:
            when = wave.may_go
            if when > first:
                continue
            step = steps[wave.at]
            if free[step.issue] > when:
                when = free[step.issue]
            if step.matrix and matrix_until > when:
                when = matrix_until
            if when < first or (when == first and is_ahead and wave.trips <= last_trip):
                found, first, is_ahead = wave, when, wave.trips > last_trip
        return found, first

    def _look_ahead(self, wave: _Wave) -> None:
        """Set when a wave may go on, which changes only where it or one that it meets goes on."""
        step, when = self.steps[wave.at], wave.ready
        for counter, left in step.waits:
            queue = wave.pending.get(counter)
            if queue is not None and len(queue) > left:
                when = max(when, queue[len(queue) - left - 1])
        if step.meets:
            for other in self._workgroups[wave.number // self._workgroup_waves]:
                is_behind = other.trips < wave.trips or (other.trips == wave.trips and other.at < wave.at)
                when = float("inf") if is_behind else max(when, other.ready)
        wave.may_go = when

    def _issue(self, wave: _Wave, when: float) -> None:
        step = self.steps[wave.at]
        wave.ready = when + self.slot
        if step.issue != "none":
            self._free[step.issue] = wave.ready
        if step.matrix:
            self._matrix_until = when + step.matrix
            self.multiplied += step.matrix
        if step.meets:
            wave.ready = when + BARRIER_CLOCKS
        for counter, left in step.waits:
            queue = wave.pending.get(counter)
            while queue is not None and len(queue) > left:
                queue.popleft()
        if step.counter is not None:
            begin = max(when, self._served_until[step.issue])
            self._served_until[step.issue] = begin + step.served * self.units
            done = self._served_until[step.issue] + (SHARED_CLOCKS if step.issue == "shared" else LOAD_CLOCKS)
            queue = wave.pending.setdefault(step.counter, deque[float]())
            queue.append(max(done, queue[-1]) if queue else done)
        wave.at += 1
        if wave.at == len(self.steps):
            wave.at = 0
            wave.trips += 1
        self._look_ahead(wave)
        for other in self._workgroups[wave.number // self._workgroup_waves]:
            if self.steps[other.at].meets:
                self._look_ahead(other)


def loop_cycles(
    listing: Listing, loop: frozenset[int], banks: Mapping[int, BankUse | None], spec: TargetSpec, waves: int, workgroup_waves: int
) -> tuple[float, float]:
    """Clocks in which each of the `waves` on a matrix unit makes one trip, and the part of them that the unit multiplies in.

    `workgroup_waves`: of them, those that meet at barriers.
    """
    steps = steps_of(listing, loop, banks, spec)
    slot = spec.subgroup_size // spec.vector_lanes
    unit = Unit(steps, waves, workgroup_waves, slot, spec.matrix_units)
    begin, end = _at_trips(unit, WARM_UP, WARM_UP + MEASURED)
    share = (end[1] - begin[1]) / (end[0] - begin[0])
    return waves * sum(step.matrix for step in steps) / share, min(1.0, share)


def _at_trips(unit: Unit, *trips: int) -> list[tuple[float, int]]:
    """When each wave has gone around so many times, and the clocks in which the unit has multiplied by then.

    Most loops fall into a rhythm of a few trips after some; from then on nothing is to be followed.
    """
    seen: dict[Hashable, int] = {}
    found = [(0.0, 0)]
    begin, period = 0, 1
    for trip in range(1, max(trips) + 1):
        found.append((unit.run(trip), unit.multiplied))
        begin = seen.setdefault(unit.state(), trip)
        if begin < trip:
            period = trip - begin
            break

    def at(trip: int) -> tuple[float, int]:
        if trip < len(found):
            return found[trip]
        again, rest = divmod(trip - begin, period)
        (clocks, multiplied), (before, multiplied_before) = found[begin + period], found[begin]
        since = found[begin + rest]
        return since[0] + again * (clocks - before), since[1] + again * (multiplied - multiplied_before)

    return [at(trip) for trip in trips]
