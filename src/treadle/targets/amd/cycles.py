"""A model of one matrix unit running a loop: in-order waves, one instruction of each class at a time, counters as queues.

It is for comparing loops, not for predicting times: caches always answer after the same time, and waves of a workgroup on other units are
taken to keep step with those on this one.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal

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
_WARM_UP, _MEASURED = 8, 24
_AHEAD = 2
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


@dataclass(slots=True)
class _Step:
    issue: Class
    counter: Counter | None
    waits: Mapping[Counter, int]
    meets: bool
    matrix: int
    served: float
    """Clocks of shared memory or of the cache."""


@dataclass(slots=True)
class _Wave:
    ready: float = 0.0
    at: int = 0
    pending: dict[Counter, deque[float]] = field(default_factory=dict[Counter, deque[float]])
    trips: int = 0


def _steps(listing: Listing, loop: frozenset[int], banks: Mapping[int, BankUse | None], spec: TargetSpec) -> list[_Step]:
    own_store_counter = spec.queue_for("store") is not None
    found: list[_Step] = []
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
        found.append(_Step(class_of(one, kind), counter, waits_of(one), kind == "barrier", matrix, served))
    return found


@dataclass(slots=True)
class _Unit:
    """One matrix unit and its share of what the compute unit's units have together."""

    steps: Sequence[_Step]
    waves: list[_Wave]
    workgroup_waves: int
    slot: int
    units: int
    free: dict[Class, float] = field(default_factory=dict[Class, float])
    served_until: dict[Class, float] = field(default_factory=dict[Class, float])
    matrix_until: float = 0.0
    multiplied: int = 0

    def run(self, trips: int) -> float:
        """Go on until each wave has gone around so many times; when that is.

        The machine serves the oldest of its waves first; here none runs ahead of the slowest by more than `_AHEAD` trips.
        """
        while (slowest := min(wave.trips for wave in self.waves)) < trips:
            self._issue(min(self.waves, key=lambda wave: (self._earliest(wave), wave.trips > slowest + _AHEAD)))
        return max(wave.ready for wave in self.waves)

    def _earliest(self, wave: _Wave) -> float:
        step = self.steps[wave.at]
        when = max(wave.ready, self.free.get(step.issue, 0.0) if step.issue != "none" else 0.0)
        if step.matrix:
            when = max(when, self.matrix_until)
        for counter, left in step.waits.items():
            queue = wave.pending.get(counter, deque[float]())
            if len(queue) > left:
                when = max(when, queue[len(queue) - left - 1])
        if step.meets:
            when = max(when, *(other.ready for other in self._fellows(wave)))
            if any((other.trips, other.at) < (wave.trips, wave.at) for other in self._fellows(wave)):
                return float("inf")
        return when

    def _fellows(self, wave: _Wave) -> list[_Wave]:
        number = next(at for at, other in enumerate(self.waves) if other is wave)
        first = number // self.workgroup_waves * self.workgroup_waves
        return self.waves[first : first + self.workgroup_waves]

    def _issue(self, wave: _Wave) -> None:
        step, when = self.steps[wave.at], self._earliest(wave)
        wave.ready = when + self.slot
        if step.issue != "none":
            self.free[step.issue] = wave.ready
        if step.matrix:
            self.matrix_until = when + step.matrix
            self.multiplied += step.matrix
        if step.meets:
            wave.ready = when + BARRIER_CLOCKS
        for counter, left in step.waits.items():
            queue = wave.pending.get(counter, deque[float]())
            while len(queue) > left:
                queue.popleft()
        if step.counter is not None:
            begin = max(when, self.served_until.get(step.issue, 0.0))
            self.served_until[step.issue] = begin + step.served * self.units
            latency = SHARED_CLOCKS if step.issue == "shared" else LOAD_CLOCKS
            queue = wave.pending.setdefault(step.counter, deque[float]())
            done = self.served_until[step.issue] + latency
            queue.append(max(done, queue[-1]) if queue else done)
        wave.at += 1
        if wave.at == len(self.steps):
            wave.at = 0
            wave.trips += 1


def loop_cycles(
    listing: Listing, loop: frozenset[int], banks: Mapping[int, BankUse | None], spec: TargetSpec, waves: int, workgroup_waves: int
) -> tuple[float, float]:
    """Clocks in which each of the `waves` on a matrix unit makes one trip, and the part of them that the unit multiplies in.

    `workgroup_waves`: of them, those that meet at barriers.
    """
    steps = _steps(listing, loop, banks, spec)
    slot = spec.subgroup_size // spec.vector_lanes
    unit = _Unit(steps, [_Wave() for _ in range(waves)], workgroup_waves, slot, spec.matrix_units)
    begin, before = unit.run(_WARM_UP), unit.multiplied
    end = unit.run(_WARM_UP + _MEASURED)
    share = (unit.multiplied - before) / (end - begin)
    return waves * sum(step.matrix for step in steps) / share, min(1.0, share)
