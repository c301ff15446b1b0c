"""Which synchronisation a right kernel needs (rule V6): an operation is needed where removing or weakening it makes verification fail."""

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.machine import TargetSpec
from treadle.verify.check import is_right
from treadle.verify.faults import changed, erase, is_sync, set_pending


@dataclass(frozen=True, slots=True)
class Superfluous:
    """An operation that could go, or a wait that could let more groups be pending."""

    op: Operation
    text: str


def sync_ops(kernel: tile.KernelOp) -> Iterator[tuple[int, Operation]]:
    """The operations that order memory, with their number in a walk of the kernel."""
    for index, op in enumerate(kernel.walk()):
        if is_sync(op):
            yield index, op


def needed_sync_ops(kernel: tile.KernelOp, spec: TargetSpec | None = None) -> tuple[Operation, ...]:
    """The synchronisation that a right kernel cannot do without."""
    return tuple(op for index, op in sync_ops(kernel) if not is_right(changed(kernel, index, erase), spec))


def superfluous_sync(kernel: tile.KernelOp, spec: TargetSpec | None = None) -> tuple[Superfluous, ...]:
    """What a right kernel could do without: covered waits, double barriers, waits for more groups than they need."""
    found: list[Superfluous] = []
    for index, op in sync_ops(kernel):
        where = location_of(op)
        at = f" at {where}" if where else ""
        if is_right(changed(kernel, index, erase), spec):
            found.append(Superfluous(op, f"{op.name}{at} orders nothing that is not ordered without it"))
        elif isinstance(op, sync.WaitOp) and is_right(changed(kernel, index, lambda o: set_pending(o, 1)), spec):
            found.append(Superfluous(op, f"{op.name}{at} could leave {op.pending.value.data + 1} groups pending"))
    return tuple(found)
