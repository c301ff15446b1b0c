"""Shared buffers whose layout is the compiler's to choose: how it is chosen for what matrix instructions read of their slots."""

from collections.abc import Callable

from treadle.analysis.operand_sources import source_load
from treadle.analysis.shared_accesses import shared_accesses
from treadle.analysis.slot_values import SlotValues
from treadle.dialects import pipe, tile
from treadle.dialects.stages import FREE_LAYOUT
from treadle.ir.core import Operation, SSAValue
from treadle.ir.retype import retype
from treadle.layout.shared_layout import SharedLayout


def settle_layout(value: SSAValue, choose: Callable[[tile.LoadOp | None], SharedLayout]) -> None:
    """Give the buffer that an operand is loaded from the layout `choose` has for one slot, where that is free and nobody has yet.

    `choose` takes the load from global memory that fills slots, None where nothing is stored as it was loaded.
    """
    alloc = _ring(value)
    if alloc is None or FREE_LAYOUT not in alloc.attributes:
        return
    del alloc.attributes[FREE_LAYOUT]
    layout = choose(_filled_by(alloc))
    old = tile.memref_type(alloc.result)
    (count, *shape) = old.get_shape()
    whole = retype(alloc.result, tile.shared_buffer_type((count, *shape), old.element_type, layout.stacked(count)))
    for use in tuple(whole.uses):
        if isinstance(use.operation, pipe.SlotOp):
            retype(use.operation.result, tile.shared_buffer_type(shape, old.element_type, layout))


def _ring(value: SSAValue) -> tile.AllocOp | None:
    """The buffer from a slot of which a tile is loaded."""
    if not isinstance(value.owner, tile.LocalLoadOp) or not isinstance(slot := value.owner.source.owner, pipe.SlotOp):
        return None
    return slot.source.owner if isinstance(slot.source.owner, tile.AllocOp) else None


def filled_by(value: SSAValue) -> tile.LoadOp | None:
    """The load from global memory that fills the buffer which a tile is loaded from."""
    alloc = _ring(value)
    return None if alloc is None else _filled_by(alloc)


def is_kept_until(load: tile.LocalLoadOp, reader: Operation) -> bool:
    """Whether what a slot of a ring held at a load is there still at an operation of the load's block behind it."""
    if _ring(load.result) is None or load.parent is not reader.parent:
        return False
    values = SlotValues()
    (read,) = shared_accesses(load, values)
    current = load.next_op
    while current is not None and current is not reader:
        if any(read.conflicts(access) for inner in current.walk() for access in shared_accesses(inner, values)):
            return False
        current = current.next_op
    return current is reader


def _filled_by(alloc: tile.AllocOp) -> tile.LoadOp | None:
    slots = [use.operation for use in alloc.result.uses if isinstance(use.operation, pipe.SlotOp)]
    for store in [use.operation for slot in slots for use in slot.result.uses]:
        if isinstance(store, tile.LocalStoreOp) and (load := source_load(store.value)) is not None:
            return load
    return None
