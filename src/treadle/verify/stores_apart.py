"""Stores to arrays that are only written, compared for all executions at once: those that never meet need no run to say so.

Of stores whose places are not known that far it is assumed, as runs do, where those of other workgroups may meet them.
"""

from treadle.verify.global_accesses import GlobalAccess
from treadle.verify.global_arrays import GlobalArrays, Kind
from treadle.verify.program import Program

WITHIN: tuple[Kind, ...] = ("strand", "team", "workgroup", "cluster")
ASSUMED = "it writes other elements than all other stores to its array"


def stores_apart(program: Program) -> list[tuple[GlobalAccess, str]] | None:
    """What is assumed where no two stores to an array that is only written go to one element, in any executions; None where runs have to
    tell. `program` tracks all arrays that are written.
    """
    arrays = GlobalArrays(program)
    pairs = [(one, other) for one, other in arrays.pairs() if one.pointer in program.only_written]
    assumed: dict[GlobalAccess, str] = {}
    for one, other in pairs:
        met = arrays.meeting(one, other, "grid")
        if met is not None and not met.doubt:
            return None
        if met is not None:
            assumed[other] = ASSUMED
    for one, other in pairs:
        for kind in WITHIN:
            if other not in assumed and _meet(arrays, one, other, kind):
                return None
    views = [(access, arrays.assumed[access.op]) for access in arrays.read() if access.op in arrays.assumed and access not in assumed]
    return [*assumed.items(), *views]


def _meet(arrays: GlobalArrays, one: GlobalAccess, other: GlobalAccess, kind: Kind) -> bool:
    """Whether two executions may meet that are not the same one."""
    met = arrays.meeting(one, other, kind)
    if met is None or one is not other or met.spans != ((0, 0),) * len(one.loops):
        return met is not None
    # An iteration of one agent, whose elected operations one thread executes for all warps.
    return not (kind == "strand" or (kind == "team" and arrays.program.is_elected(one.op)))
