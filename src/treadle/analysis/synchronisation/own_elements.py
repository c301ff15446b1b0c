"""Whether each thread of a workgroup keeps to its own elements of a global array. Pure functions over the IR."""

from collections.abc import Sequence

from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.ir.core import Operation, SSAValue


def accesses(op: Operation, pointer: SSAValue) -> bool:
    """Whether an operation accesses the array of a pointer, through whatever view."""
    views = [effect.resource.owner for effect in (op.effects() if isinstance(op, HasEffects) else ())]
    return any(isinstance(view, tile.ViewOp) and view.pointer is pointer for view in views)


def keep_to_threads(ops: Sequence[Operation]) -> bool:
    """Whether each element is one thread's in all of these accesses to one array: the same part of it, in one layout without copies."""
    places: set[tuple[object, ...]] = set()
    for op in ops:
        if not isinstance(op, tile.LoadOp | tile.StoreOp):
            return False
        layout = tile.layout_of(op.result if isinstance(op, tile.LoadOp) else op.value)
        if layout is None or layout.replicated_lane_bits() or layout.replicated_warp_bits():
            return False
        places.add((layout, op.view, tuple(op.offsets), tile.ints(op.dims)))
    return len(places) == 1
