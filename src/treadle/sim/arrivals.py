"""Arrivals of workgroups at counters, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dialects import tile
from treadle.sim.element_types import Array
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import View


def count_in(view: View, offsets: Sequence[int], count: int, subject: str) -> bool:
    """One arrival at a counter: whether it is the last of `count`. Raises SimulationFault for a counter that is none."""
    if any(not 0 <= at < size for at, size in zip(offsets, view.sizes, strict=True)):
        raise SimulationFault(f"{subject} at {list(offsets)} of {list(view.sizes)} counters")
    before = int(view.array[tuple(offsets)])
    if not 0 <= before < count:
        raise SimulationFault(f"{subject} finds {before} in a counter of {count} arrivals: counters are zero before a launch")
    last = before == count - 1
    view.array[tuple(offsets)] = 0 if last else before + 1
    return last


def arrival_function(op: tile.ArriveLastOp | tile.CountInOp | tile.LocalFlagOp) -> Callable[..., Any]:
    """What an operation computes of its operands' values."""

    def arrive_last(view: View, *rest: int) -> Array:
        return np.asarray(count_in(view, rest[:-1], rest[-1], op.name))

    def arrive(flag: Array, view: View, *rest: int) -> None:
        flag[0] = count_in(view, rest[:-1], rest[-1], op.name)

    def read(flag: Array) -> Array:
        return np.asarray(bool(flag[0]))

    match op:
        case tile.ArriveLastOp():
            return arrive_last
        case tile.CountInOp():
            return arrive
        case tile.LocalFlagOp():
            return read
