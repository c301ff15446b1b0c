"""A loop body as the stage planner sees it: units (operations), the resources they access, what each carried value becomes.

Pure records, no IR; `pipelining/loop_body.py` reads them from a loop, `stages.py` plans with them.
"""

from collections.abc import Iterable
from functools import cached_property

from treadle.records import dataclass

Result = tuple[int, int]
"""A value made in the body: (unit, number of its result)."""


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a unit to a resource. `condition`: what it depends on, None where it always happens; equal ones happen together."""

    resource: int
    is_write: bool
    condition: object = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One operation of a loop body, with all that is nested in it.

    `uses`: results of other units; `carried`: loop-carried values it reads. `is_free`: without effect and computed from the induction
    variable and values from outside alone, so that every stage may repeat it. `loads` global memory, `copies` it asynchronously to shared
    memory; `computes`: arithmetic on tiles; `is_final`: a contraction, reduction or store, whose results never feed a write ahead of time.
    `synchronises`: orders other effects. `is_opaque`: has effects nobody knows. `is_portable`: its results can be carried by a loop.
    """

    name: str
    uses: frozenset[Result] = frozenset()
    carried: frozenset[int] = frozenset()
    accesses: tuple[Access, ...] = ()
    is_free: bool = False
    loads: bool = False
    copies: bool = False
    computes: bool = False
    is_final: bool = False
    synchronises: bool = False
    is_opaque: bool = False
    is_portable: bool = True


@dataclass(frozen=True, slots=True)
class Resource:
    """A shared buffer, or the memory behind a global pointer. `escapes`: used outside the loop, or by what is no plain access.

    `can_stack`: slots one after the other keep the alignment its accesses need.
    """

    name: str
    is_shared: bool = True
    escapes: bool = False
    can_stack: bool = True


@dataclass(frozen=True, slots=True)
class Yielded:
    """What becomes a carried value's next: a unit's result, another carried value, or (neither) a value every stage can compute."""

    result: Result | None = None
    carried: int | None = None


@dataclass(frozen=True)
class Body:
    """A loop body: units in program order, the resources they access, what each carried value becomes."""

    units: tuple[Unit, ...]
    resources: tuple[Resource, ...]
    yields: tuple[Yielded, ...]

    def source(self, carried: int) -> int | None:
        """The unit that makes a carried value, through other carried values; None where none does."""
        seen: set[int] = set()
        while carried not in seen:
            seen.add(carried)
            entry = self.yields[carried]
            if entry.result is not None:
                return None if self.units[entry.result[0]].is_free else entry.result[0]
            if entry.carried is None:
                return None
            carried = entry.carried
        return None

    @cached_property
    def dependences(self) -> tuple[frozenset[int], ...]:
        """For each unit the units whose results or memory it needs, of the same iteration or the one before; free ones left out."""
        writers: dict[int, list[int]] = {}
        for at, unit in enumerate(self.units):
            for access in unit.accesses:
                if access.is_write:
                    writers.setdefault(access.resource, []).append(at)
        found: list[frozenset[int]] = []
        for at, unit in enumerate(self.units):
            needed = {p for p, _ in unit.uses if not self.units[p].is_free}
            needed |= {p for j in unit.carried if (p := self.source(j)) is not None}
            for access in unit.accesses:
                if not access.is_write:
                    known = writers.get(access.resource, ())
                    needed |= {w for w in known if w < at} or set(known)
            found.append(frozenset(needed - {at}))
        return tuple(found)

    def closure(self, roots: Iterable[int]) -> frozenset[int]:
        """The roots and all they depend on."""
        found: set[int] = set()
        pending = list(roots)
        while pending:
            at = pending.pop()
            if at not in found:
                found.add(at)
                pending.extend(self.dependences[at])
        return frozenset(found)

    def accesses_of(self, resource: int) -> list[tuple[int, Access]]:
        """The accesses to a resource, by unit, in program order."""
        return [(at, access) for at, unit in enumerate(self.units) for access in unit.accesses if access.resource == resource]
