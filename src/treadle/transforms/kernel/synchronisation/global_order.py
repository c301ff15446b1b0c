"""Barriers between accesses of a workgroup to a global array that its kernel both reads and writes.

A thread that stores what it has loaded itself needs none: the same part of the array, in one layout that no two threads share. Everything
else may be another thread's: a store waits for the loads and stores before it, a load for the stores. Kernels with roles, with groups a
stage apart, and those that hand arrays on by arrivals or turns are ordered by their own means.
"""

from treadle.analysis.synchronisation.own_elements import accesses, keep_to_threads
from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.global_arrays import accessed_pointers
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.transforms.kernel.kernel_ir import insert_before

Touched = frozenset[tuple[SSAValue, str]]
"""Arrays that were accessed since the last barrier, and how: "read", "write", or by which kind of update."""
_NOTHING: Touched = frozenset()
_ORDERED_OTHERWISE = (pipe.RolesOp, tile.CounterOp, sync.NamedBarrierOp, tile.CopyOp, tile.CopyOutOp)


def insert_global_barriers(kernel: tile.KernelOp) -> None:
    """Insert the barriers of one kernel."""
    read, written = accessed_pointers(kernel)
    ops = tuple(kernel.body.walk())
    if not read & written or kernel.group_count() > 1 or any(_is_ordered_otherwise(op) for op in ops):
        return
    shared = frozenset(pointer for pointer in read & written if not keep_to_threads([op for op in ops if accesses(op, pointer)]))
    if shared:
        _Walk(shared).block(kernel.body.block, _NOTHING)


def _is_ordered_otherwise(op: Operation) -> bool:
    return isinstance(op, _ORDERED_OTHERWISE) or (isinstance(op, sync.BarrierOp) and not _meets_all(op))


def _meets_all(op: sync.BarrierOp) -> bool:
    return op.groups is None and op.bare is None


def _touched(op: Operation) -> Touched:
    found: set[tuple[SSAValue, str]] = set()
    for effect in op.effects() if isinstance(op, HasEffects) else ():
        view = effect.resource.owner
        if isinstance(view, tile.ViewOp):
            found.add((view.pointer, effect.update or effect.access))
    return frozenset(found)


def _conflict(before: Touched, now: Touched) -> bool:
    """Whether their order matters: reads, and updates of one kind, may come in any."""
    return any(one is other and (how != then or how == "write") for one, how in before for other, then in now)


class _Walk:
    """Goes through a kernel in the order of execution, with what was touched since the last barrier."""

    def __init__(self, pointers: frozenset[SSAValue]) -> None:
        self._pointers = pointers

    def block(self, block: Block, before: Touched) -> Touched:
        """What is open behind a block."""
        for op in tuple(block.ops):
            before = self._operation(op, before)
        return before

    def _operation(self, op: Operation, before: Touched) -> Touched:
        if isinstance(op, scf.ForOp):
            once = self.block(op.body.block, before)
            return before | self.block(op.body.block, before | once)  # a second time round: what the end of an iteration leaves open
        if isinstance(op, scf.IfOp):
            ends = [self.block(region.block, before) if region.blocks else before for region in op.regions]
            return ends[0].union(*ends[1:])
        if isinstance(op, sync.BarrierOp):
            return _NOTHING
        now = frozenset(one for one in _touched(op) if one[0] in self._pointers)
        if now and _conflict(before, now):
            insert_before(op, sync.BarrierOp())
            before = _NOTHING
        return before | now
