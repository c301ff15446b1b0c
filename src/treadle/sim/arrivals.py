"""Arrivals of workgroups at counters and turns there, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.sim.element_types import Array
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import View


def count_in(view: View, offsets: Sequence[int], count: int, subject: str) -> bool:
    """One arrival at a counter: whether it is the last of `count`. Raises SimulationFault for a counter that is none."""
    before = counter(view, offsets, subject)
    if not 0 <= before < count:
        raise SimulationFault(f"{subject} finds {before} in a counter of {count} arrivals: counters are zero before a launch")
    last = before == count - 1
    view.array[tuple(offsets)] = 0 if last else before + 1
    return last


def counter(view: View, offsets: Sequence[int], subject: str) -> int:
    """What a counter is now. Raises SimulationFault where there is none."""
    if any(not 0 <= at < size for at, size in zip(offsets, view.sizes, strict=True)):
        raise SimulationFault(f"{subject} at {list(offsets)} of {list(view.sizes)} counters")
    return int(view.array[tuple(offsets)])


def pass_turn(view: View, offsets: Sequence[int], turn: int, count: int, subject: str) -> None:
    """End a turn: the next one's workgroup may go on, behind the last one the counter is as it was. Raises SimulationFault where the turn
    had not come.
    """
    found = counter(view, offsets, subject)
    if found != turn or not 0 <= turn < count:
        raise SimulationFault(f"{subject} ends turn {turn} of {count} where it is turn {found}")
    view.array[tuple(offsets)] = 0 if turn == count - 1 else turn + 1


def arrival_function(op: tile.CounterOp | tile.LocalFlagOp) -> Callable[..., Any]:
    """What an operation computes of its operands' values."""

    def arrive_last(view: View, *rest: int) -> Array:
        return np.asarray(count_in(view, rest[:-1], rest[-1], op.name))

    def arrive(flag: Array, view: View, *rest: int) -> None:
        flag[0] = count_in(view, rest[:-1], rest[-1], op.name)

    def read(flag: Array) -> Array:
        return np.asarray(bool(flag[0]))

    def wait(turn: int, view: View, *rest: int) -> None:
        found = counter(view, rest[:-1], op.name)
        if found != turn:
            later = "which ends no sooner than this one" if found < turn else "which is past"
            raise SimulationFault(f"{op.name} waits for turn {turn} of {rest[-1]} where it is turn {found}, {later}: it never ends")

    def end(turn: int, view: View, *rest: int) -> None:
        pass_turn(view, rest[:-1], turn, rest[-1], op.name)

    match op:
        case tile.ArriveLastOp():
            return arrive_last
        case tile.CountInOp():
            return arrive
        case tile.AwaitTurnOp():
            return wait
        case tile.PassTurnOp():
            return end
        case tile.LocalFlagOp():
            return read
        case _:
            raise InternalError(f"{op.name} at a counter")
