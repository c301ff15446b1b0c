"""What workgroups hand on to the last of them to arrive, or to the next in turn, as accesses of insert-sync's data flow.

All global arrays that the kernel writes are one place here. Its accesses are ordered with arrivals and turns, not with one another: what is
done at a counter writes the place, everything else reads it. In a turn the workgroup's threads read what they then write: an array of which
they do not keep to elements of their own is a place, too, with accesses that are ordered with one another.
"""

from treadle.analysis.shared_accesses import SharedAccess, is_elected
from treadle.analysis.synchronisation.own_elements import accesses, keep_to_threads
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.global_arrays import accessed_pointers
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf


class HandedOn:
    """The global arrays of a kernel whose workgroups arrive at counters; nothing in other kernels."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.arrivals = [op for op in kernel.body.walk() if isinstance(op, tile.OrderedCounterOp)]
        self._pointers = accessed_pointers(kernel)[1] if self.arrivals else frozenset[SSAValue]()
        self._mixed = _mixed(kernel) if any(isinstance(op, tile.AwaitTurnOp) for op in self.arrivals) else {}

    def accesses(self, op: Operation) -> tuple[SharedAccess, ...]:
        """The access of an operation to what is handed on."""
        if not self.arrivals or not (isinstance(op, tile.OrderedCounterOp) or self.touches(op)):
            return ()
        is_arrival = isinstance(op, tile.OrderedCounterOp)
        mixed = [
            SharedAccess(self._mixed[view.pointer], None, 0, (), (), effect.access == "write", False)
            for effect in (op.effects() if isinstance(op, HasEffects) else ())
            if isinstance(view := effect.resource.owner, tile.ViewOp) and view.pointer in self._mixed
        ]
        return (SharedAccess(self.arrivals[0], None, 0, (), (), is_arrival, False, is_elected=is_elected(op)), *mixed)

    def accesses_in_each(self, branch: scf.IfOp) -> tuple[SharedAccess, ...]:
        """The access to what is handed on that both cases of a conditional begin with, where both have one."""
        if not self.arrivals or not all(any(map(self.touches, region.walk())) for region in branch.regions):
            return ()
        return (SharedAccess(self.arrivals[0], None, 0, (), (), False, False),)

    def touches(self, op: Operation) -> bool:
        """Whether an operation reads or writes a global array that the kernel writes."""
        effects = op.effects() if isinstance(op, HasEffects) else ()
        return any(isinstance(view := e.resource.owner, tile.ViewOp) and view.pointer in self._pointers for e in effects)


def _mixed(kernel: tile.KernelOp) -> dict[SSAValue, Operation]:
    """Arrays that the kernel reads and writes, but for counters, in which threads may meet; by each its first view."""
    ops = list(kernel.body.walk())
    read, written = accessed_pointers(kernel)
    counted = [op.counters.owner for op in ops if isinstance(op, tile.CounterOp)]
    found: dict[SSAValue, Operation] = {}
    for view in ops:
        if not isinstance(view, tile.ViewOp) or view.pointer not in read & written or view.pointer in found or view in counted:
            continue
        if not keep_to_threads([op for op in ops if accesses(op, view.pointer)]):
            found[view.pointer] = view
    return found
