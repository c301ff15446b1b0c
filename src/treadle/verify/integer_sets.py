"""The one door to the integer set library (isl, through islpy): sets in its notation, decided exactly or given up on.

`[n] -> { [i, j] : 0 <= i < n and (exists k : i = 4k + j) }` is a set of pairs for each n. Import this module inside functions, where sets
are needed: loading the library takes longer than most proofs, which need none.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager

import islpy as isl

MAX_OPERATIONS = 200_000
"""What questions may cost together unless their caller says otherwise, in isl's own count: some tens of milliseconds."""

Set = isl.Set


class TooHard(Exception):
    """The question costs more than it may."""


class _Local(threading.local):
    """A context for each thread: isl's contexts, and the limit, are not to be shared."""

    def __init__(self) -> None:
        self.context = isl.Context()
        self.context.set_on_error(isl.on_error.CONTINUE)  # exceptions alone tell of errors; isl would print them too


_LOCAL = _Local()


@contextmanager
def bounded(operations: int = MAX_OPERATIONS) -> Generator[None]:
    """All questions asked inside may cost so many operations together. Raises `TooHard`. Does not nest."""
    context = _LOCAL.context
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except isl.Error as error:  # isl calls a text that the limit cuts short a syntax error, so errors are not told apart here
        raise TooHard(str(error)) from error
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def integer_set(text: str) -> Set:
    """The set that a text in isl's notation describes."""
    return isl.Set.read_from_str(_LOCAL.context, text)


def point_of(found: Set) -> dict[str, int] | None:
    """One element by the names of its dimensions, with parameters for which it exists; None where the set is empty for all."""
    point = found.sample_point()
    if point.is_void():
        return None
    values: dict[str, int] = {}
    for kind in (isl.dim_type.param, isl.dim_type.set):
        for at in range(found.dim(kind)):
            values[found.get_dim_name(kind, at) or f"x{at}"] = point.get_coordinate_val(kind, at).to_python()
    return values
