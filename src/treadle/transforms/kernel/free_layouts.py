"""Shared buffers whose layout is the compiler's to choose: how it is chosen for what matrix instructions read of their slots."""

from collections.abc import Callable

from treadle.analysis.operand_sources import source_load
from treadle.dialects import pipe, tile
from treadle.dialects.stages import FREE_LAYOUT
from treadle.ir.core import SSAValue
from treadle.ir.retype import retype
from treadle.layout.shared_layout import SharedLayout


def settle_layout(value: SSAValue, choose: Callable[[tile.LoadOp | None], SharedLayout]) -> None:
    """Give the buffer that an operand is loaded from the layout `choose` has for one slot, where that is free and nobody has yet.

    `choose` takes the load from global memory that fills slots, None where nothing is stored as it was loaded.
    """
    if not isinstance(value.owner, tile.LocalLoadOp) or not isinstance(slot := value.owner.source.owner, pipe.SlotOp):
        return
    alloc = slot.source.owner
    if not isinstance(alloc, tile.AllocOp) or FREE_LAYOUT not in alloc.attributes:
        return
    del alloc.attributes[FREE_LAYOUT]
    layout = choose(_filled_by(alloc))
    old = tile.memref_type(alloc.result)
    (count, *shape) = old.get_shape()
    whole = retype(alloc.result, tile.shared_buffer_type((count, *shape), old.element_type, layout.stacked(count)))
    for use in tuple(whole.uses):
        if isinstance(use.operation, pipe.SlotOp):
            retype(use.operation.result, tile.shared_buffer_type(shape, old.element_type, layout))


def _filled_by(alloc: tile.AllocOp) -> tile.LoadOp | None:
    slots = [use.operation for use in alloc.result.uses if isinstance(use.operation, pipe.SlotOp)]
    for store in [use.operation for slot in slots for use in slot.result.uses]:
        if isinstance(store, tile.LocalStoreOp) and (load := source_load(store.value)) is not None:
            return load
    return None
