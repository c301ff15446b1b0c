"""What workgroups hand on to the last of them to arrive, as accesses of insert-sync's data flow.

All global arrays that the kernel writes are one place here. Its accesses are ordered with arrivals, not with one another: an arrival writes
the place, everything else reads it.
"""

from treadle.analysis.shared_accesses import SharedAccess, is_elected
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.global_arrays import accessed_pointers
from treadle.ir.core import Operation, SSAValue


class HandedOn:
    """The global arrays of a kernel whose workgroups arrive at counters; nothing in other kernels."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self.arrivals = [op for op in kernel.body.walk() if isinstance(op, tile.CountInOp)]
        self._pointers = accessed_pointers(kernel)[1] if self.arrivals else frozenset[SSAValue]()

    def accesses(self, op: Operation) -> tuple[SharedAccess, ...]:
        """The access of an operation to what is handed on."""
        if not self.arrivals or not (isinstance(op, tile.CountInOp) or self.touches(op)):
            return ()
        is_arrival = isinstance(op, tile.CountInOp)
        return (SharedAccess(self.arrivals[0], None, 0, (), (), is_arrival, False, is_elected=is_elected(op)),)

    def touches(self, op: Operation) -> bool:
        """Whether an operation reads or writes a global array that the kernel writes."""
        effects = op.effects() if isinstance(op, HasEffects) else ()
        return any(isinstance(view := e.resource.owner, tile.ViewOp) and view.pointer in self._pointers for e in effects)
