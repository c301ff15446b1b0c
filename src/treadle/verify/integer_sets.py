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
Map = isl.Map
PARAMETER, IN, OUT, SET = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set


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


class Account:
    """A context of its own, whose questions may cost so many operations together. Sets of different accounts do not mix."""

    def __init__(self, operations: int) -> None:
        self._context = isl.Context()
        self._context.set_on_error(isl.on_error.CONTINUE)
        self._context.set_max_operations(operations)

    @contextmanager
    def bounded(self) -> Generator[None]:
        """Ask questions. Raises `TooHard` once all of them together cost more than they may."""
        try:
            yield
        except isl.Error as error:
            raise TooHard(str(error)) from error

    def integer_set(self, text: str) -> Set:
        """The set that a text in isl's notation describes."""
        return isl.Set.read_from_str(self._context, text)


def integer_set(text: str) -> Set:
    """The set that a text in isl's notation describes."""
    return isl.Set.read_from_str(_LOCAL.context, text)


def pairs_of(one: Set, other: Set) -> Map:
    """All pairs of an element of each of two sets."""
    return isl.Map.from_domain_and_range(one, other)


def apart_by(found: Map, before: int, after: int, distance: int) -> Map:
    """The pairs in which coordinate `after` of the second element is that much more than coordinate `before` of the first."""
    constraint = isl.Constraint.alloc_equality(isl.LocalSpace.from_space(found.get_space()))
    constraint = constraint.set_coefficient_val(IN, before, 1).set_coefficient_val(OUT, after, -1)
    return found.add_constraint(constraint.set_constant_val(distance))


def different(found: Map, before: int, after: int) -> tuple[Map, Map]:
    """The pairs in which coordinate `before` of the first element is less, and more, than coordinate `after` of the second."""
    return found.order_lt(IN, before, OUT, after), found.order_gt(IN, before, OUT, after)


def distances(found: Map, before: int, after: int) -> tuple[int, int] | None:
    """The least and largest amount by which coordinate `after` is more than `before`; None where there is no bound."""
    for kind, kept in ((OUT, after), (IN, before)):
        found = found.project_out(kind, kept + 1, found.dim(kind) - kept - 1).project_out(kind, 0, kept)
    ahead = found.deltas()
    low, high = ahead.dim_min_val(0), ahead.dim_max_val(0)
    return (low.to_python(), high.to_python()) if low.is_int() and high.is_int() else None


def pair_in(found: Map) -> tuple[dict[str, int], list[int], list[int]] | None:
    """A pair of a relation: the parameters that it exists for, by name, and the two elements; None where it is empty for all."""
    point = found.wrap().sample_point()
    if point.is_void():
        return None
    names = {found.get_dim_name(PARAMETER, at) or "": at for at in range(found.dim(PARAMETER))}
    parameters = {name: point.get_coordinate_val(PARAMETER, at).to_python() for name, at in names.items()}
    values = [point.get_coordinate_val(isl.dim_type.set, at).to_python() for at in range(found.dim(IN) + found.dim(OUT))]
    return parameters, values[: found.dim(IN)], values[found.dim(IN) :]


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


def first_dimensions(found: Set, count: int) -> Set:
    """The set without all but its first dimensions."""
    return found.project_out(isl.dim_type.set, count, found.dim(isl.dim_type.set) - count)
