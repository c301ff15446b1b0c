"""Shared memory and stages in kernels: buffers, their slots as tiles, and what a stage opens and closes."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from treadle.dialects import pipe, tile
from treadle.dialects.stages import FREE_LAYOUT
from treadle.ir.dialects import builtin
from treadle.language.emitter import Emitter
from treadle.language.intrinsics import element_type, extents
from treadle.language.source import Refusal
from treadle.language.values import Shared, Slot, Stage, Tile, broadcast_shape, text_of
from treadle.layout.shared_layout import dense

if TYPE_CHECKING:
    from treadle.language.compiler import FunctionCompiler


def allocate_shared(c: "FunctionCompiler", shape: object, dtype: object, slots: int = 1) -> Shared:
    """A buffer in shared memory of `slots` slots, each for a tile of this shape. `x[i] = tile` writes a slot, `x[i]` reads it."""
    sides, kind = extents(shape), element_type(dtype)
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        raise Refusal(f"a buffer of {text_of(slots)} slots", "give a positive number, known when the kernel is compiled")
    if not c.emit.is_outermost:
        raise Refusal("shared memory is allocated inside of a loop or branch", "allocate it once, ahead of all loops")
    layout = dense(sides, tuple(reversed(range(len(sides)))))
    if layout is None:
        raise Refusal(f"a buffer of tiles of {list(sides)}", "let all sides but the first be powers of two")
    whole = tile.shared_buffer_type((slots, *sides), kind.ir, layout.stacked(slots))
    alloc = tile.AllocOp(whole)
    alloc.attributes[FREE_LAYOUT] = builtin.UnitAttr()
    return Shared(c.emit.insert(alloc), slots, sides, kind)


def slot_of(emit: Emitter, shared: Shared, parts: tuple[object, ...]) -> Slot:
    """The slot that a subscript names. Raises Refusal for what is none."""
    if len(parts) != 1:
        raise Refusal(f"{len(parts)} subscripts of {text_of(shared)}", "name one slot: ring[i % 2]")
    (part,) = parts
    if isinstance(part, int) and not 0 <= part < shared.slots:
        raise Refusal(f"slot {part} of {text_of(shared)}", f"slots are numbered from 0 to {shared.slots - 1}")
    return Slot(shared, emit.index(part))


def _view(emit: Emitter, slot: Slot) -> pipe.SlotOp:
    layout = tile.shared_layout_of(slot.shared.buffer).slot(1)
    view = pipe.SlotOp(slot.shared.buffer, [slot.number.value], layout)
    emit.add(view)
    return view


def load_slot(emit: Emitter, slot: Slot) -> Tile:
    """The tile that a slot holds."""
    kind = builtin.TensorType(slot.dtype.ir, list(slot.shape))
    origin = (0,) * len(slot.shape)
    return Tile(emit.insert(tile.LocalLoadOp(_view(emit, slot).result, origin, kind)), slot.shape, slot.dtype)


def store_slot(emit: Emitter, slot: Slot, value: object) -> None:
    """Write a tile to a slot, converted to the buffer's type and extended to its shape."""
    found = emit.cast(emit.tile(value, slot.dtype), slot.dtype)
    if broadcast_shape(found.shape, slot.shape) != slot.shape:
        raise Refusal(f"{text_of(found)} is stored to {text_of(slot)}", "give both one shape")
    full = emit.broadcast(found, slot.shape)
    emit.add(tile.LocalStoreOp(full.value, _view(emit, slot).result, (0,) * len(slot.shape)))


def warp_pipeline_stage(c: "FunctionCompiler", label: object = None, priority: object = None) -> Stage:
    """A stage of the loop around it, as in `with tl.warp_pipeline_stage("load", priority=1):`. Groups of warps run the stages of a loop
    some stages apart, so that one copies while another one computes. `priority`: that of its warps on their scheduler, 0 to 3.
    """
    if label is not None and not isinstance(label, str):
        raise Refusal(f"the label {text_of(label)} of a stage", "labels are strings")
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= 3):
        raise Refusal(f"the priority {text_of(priority)} of a stage", "priorities are 0, 1, 2 and 3, or None")
    return Stage(label, priority)


@contextmanager
def inside(emit: Emitter, stage: Stage) -> Generator[None]:
    """Within: operations belong to a stage."""
    emit.add(pipe.StageOp(stage.label, stage.priority))
    yield
    emit.add(pipe.EndStageOp())
