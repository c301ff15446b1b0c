"""Which barriers order global arrays: those with accesses to an array that the kernel reads and writes on both sides.

The others order shared memory alone: they neither wait for accesses to global memory nor invalidate caches.
"""

from treadle.dialects.effects import HasEffects
from treadle.dialects.global_arrays import accessed_pointers
from treadle.dialects.pipe import RolesOp
from treadle.dialects.sync import BarrierOp
from treadle.dialects.tile import KernelOp, ViewOp
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation
from treadle.ir.dialects import scf


def global_barriers(kernel: KernelOp) -> frozenset[Operation] | None:
    """The barriers of a kernel that order global arrays; None: all, those around roles too."""
    read, written = accessed_pointers(kernel)
    changing = read & written
    if not changing:
        return frozenset()
    ops = list(kernel.body.walk())
    if any(isinstance(op, RolesOp) for op in ops):
        return None
    accesses = [(at, _loops(op)) for at, op in enumerate(ops) if _touches(op, changing)]
    found: set[Operation] = set()
    for at, op in enumerate(ops):
        if isinstance(op, BarrierOp):
            loops = _loops(op)
            before, behind = (any(loops & around or (other - at) * side > 0 for other, around in accesses) for side in (-1, 1))
            if before and behind:
                found.add(op)
    return frozenset(found)


def _loops(op: Operation) -> set[Operation]:
    return {around for around in ancestors(op) if isinstance(around, scf.ForOp)}


def _touches(op: Operation, pointers: frozenset[object]) -> bool:
    effects = op.effects() if isinstance(op, HasEffects) else ()
    return any(isinstance(view := effect.resource.owner, ViewOp) and view.pointer in pointers for effect in effects)
