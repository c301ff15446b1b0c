"""The one interface through which operations of `tile`, `pipe` and `sync` tell what memory they touch, and when.

An effect names a resource (the SSA value of a view, a shared buffer or one of its slots, a register tile), read or write, the proxy the
access goes through, and when it is complete: in program order, by a queue of groups, or on an mbarrier. Slot indices are the operands of
the `pipe.slot` that gives the resource (`analysis/buffers.py` follows it to the allocation). Operations of `sync` touch no data: what they
order is in docs/schedule.md. An operation of these dialects without the interface is refused by the verifier of `tile.kernel`.
"""

from abc import ABC, abstractmethod
from typing import Literal

from treadle.ir.core import SSAValue
from treadle.machine import QueueRole
from treadle.records import dataclass

Access = Literal["read", "write"]
Proxy = Literal["generic", "async"]
Completion = Literal["program_order", "queue", "mbarrier"]


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a resource (within its slot) that an effect touches: SSA values or static ints of its origin, its static extents.

    `own_part`: each agent touches only what its own threads hold, by the layout of the tile or as copies are dealt out (False: the whole
    slice may be touched by every agent).
    """

    offsets: tuple[SSAValue | int, ...]
    extents: tuple[int, ...]
    own_part: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """One access: what, how, through which proxy, complete when.

    `queue`: the role of the queue whose waits retire it; complete in program order on a machine without a queue of that role.
    `update`: a write that combines each element with a value in one step, in this way; such writes of one kind commute.
    """

    resource: SSAValue
    access: Access
    slice: Slice | None = None
    proxy: Proxy = "generic"
    completion: Completion = "program_order"
    queue: QueueRole | Literal[""] = ""
    update: str = ""


class HasEffects(ABC):
    """Interface of every operation of `tile`, `pipe` and `sync`."""

    @abstractmethod
    def effects(self) -> tuple[Effect, ...]:
        """The accesses of this operation, in issue order; an empty tuple states that it touches no memory."""
