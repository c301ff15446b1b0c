"""Parts of global arrays: what a subscript names, and how it is read and written."""

from collections.abc import Sequence
from typing import cast

from treadle.dialects import tile
from treadle.ir.dialects import builtin
from treadle.language import dtypes
from treadle.language.emitter import Emitter, Number, element_attribute
from treadle.language.intrinsics import Call
from treadle.language.source import Refusal
from treadle.language.values import Array, Block, Index, Tile, broadcast_shape, text_of

_HINT = "write x[row, k : k + 64]: an index for each axis, or a range whose length is known when the kernel is compiled"


def block_of(emit: Emitter, array: Array, parts: Sequence[object]) -> Block | Array:
    """The block that a subscript names, or the front of an array: `x[:rows]`, whose blocks end there. Raises Refusal for what is none."""
    if (front := _front_of(emit, array, parts)) is not None:
        return front
    if len(parts) != len(array.sizes):
        raise Refusal(f"'{array.name}' has {len(array.sizes)} axes, {len(parts)} are given", _HINT)
    if any(isinstance(part, Tile) and part.shape for part in parts):
        return Block(array, tiles=_index_tiles(emit, parts))
    starts: list[Index] = []
    axes: list[int] = []
    shape: list[int] = []
    for axis, part in enumerate(parts):
        if isinstance(part, slice):
            start, extent = _range(emit, cast("slice[object, object, object]", part))
            starts.append(start)
            axes.append(axis)
            shape.append(extent)
        else:
            starts.append(emit.index(part))
    return Block(array, tuple(starts), tuple(axes), tuple(shape))


def _front_of(emit: Emitter, array: Array, parts: Sequence[object]) -> Array | None:
    """An array that ends earlier along some axes, None where the subscript names no such thing."""
    ranges = [cast("slice[object, object, object]", part) for part in parts if isinstance(part, slice)]
    if len(ranges) < len(parts) or any(r.start not in (None, 0) or r.step not in (None, 1) for r in ranges):
        return None
    if len(parts) > len(array.sizes) or not any(r.stop is None or (r.start is None and isinstance(r.stop, Index)) for r in ranges):
        return None
    view = array.view.owner
    if not isinstance(view, tile.ViewOp):
        return None
    ends = [r.stop for r in ranges] + [None] * (len(array.sizes) - len(ranges))
    sizes = [
        size if end is None else emit.index(emit.binary("minimum", size, emit.index(end)))
        for size, end in zip(array.sizes, ends, strict=True)
    ]
    part = tile.ViewOp(view.pointer, [size.value for size in sizes], view.stride_values(), align=view.align.value.data)
    return Array(array.name, array.number, emit.insert(part), tuple(sizes), array.dtype)


def _range(emit: Emitter, part: "slice[object, object, object]") -> tuple[Index, int]:
    """Start and length of a range. Raises Refusal where the length is not known."""
    if part.step not in (None, 1):
        raise Refusal("a range with a step", "read every element, or gather with tiles of indices")
    start, stop = 0 if part.start is None else part.start, part.stop
    extent = None
    if isinstance(start, int) and isinstance(stop, int):
        extent = stop - start
    elif isinstance(start, Index) and isinstance(stop, Index) and start.base is stop.base:
        extent = stop.shift - start.shift
    if extent is None:
        raise Refusal("the length of this range is not known when the kernel is compiled", _HINT)
    if extent < 1:
        raise Refusal(f"a range of {extent} elements", _HINT)
    return emit.index(start), extent


def _index_tiles(emit: Emitter, parts: Sequence[object]) -> tuple[Tile, ...]:
    """One tile of int32 an axis, all of one shape. A range becomes the numbers in it, along a new last axis."""
    tiles: list[Tile] = []
    for part in parts:
        if isinstance(part, slice):
            start, extent = _range(emit, cast("slice[object, object, object]", part))
            found = emit.binary("+", emit.arange(extent), start)
            tiles = [emit.permute(t, (*range(len(t.shape)), -1)) for t in tiles]
        else:
            found = emit.tile(part, dtypes.int32)
        tiles.append(emit.cast(emit.tile(found), dtypes.int32))
    shape = broadcast_shape(*(t.shape for t in tiles))
    if shape is None:
        raise Refusal("the index tiles have no common shape", "dimensions must be equal or 1: x[rows[:, None], columns[None, :]]")
    return tuple(emit.broadcast(t, shape) for t in tiles)


def load(emit: Emitter, call: Call, block: Block, other: Number = 0, *, is_streaming: bool = False) -> Tile:
    """The elements of a block; those outside of the array are `other` (gathered ones: the nearest inside).

    `is_streaming`: nobody reads them again.
    """
    array = block.array
    call.read.add(array.number)
    if block.tiles:
        if other:
            raise Refusal("gathered elements have no `other`", "an index outside means the nearest inside; choose with tl.where")
        if is_streaming:
            raise Refusal("gathered elements are not streaming", "leave `streaming` out: places that indices name may come again")
        return Tile(emit.insert(tile.GatherOp(array.view, [t.value for t in block.tiles])), block.tiles[0].shape, array.dtype)
    shape, axes = (block.shape, block.axes) if block.axes else ((1,), (len(array.sizes) - 1,))
    kind = builtin.TensorType(array.dtype.ir, list(shape))
    outside = element_attribute(other, array.dtype) if other else None
    starts = [start.value for start in block.starts]
    loaded = emit.insert(tile.LoadOp(array.view, starts, axes, kind, other=outside, is_streaming=is_streaming))
    return Tile(loaded, block.shape, array.dtype)


def store(emit: Emitter, call: Call, block: Block, value: object) -> None:
    """Write a tile to a block, converted to the array's type and extended to the block's shape; nothing is written outside of the array."""
    array = block.array
    if block.tiles:
        raise Refusal("a store to gathered elements", "write blocks: several threads could write to one element")
    call.written.add(array.number)
    found = emit.cast(emit.tile(value, array.dtype), array.dtype)
    if broadcast_shape(found.shape, block.shape) != block.shape:
        raise Refusal(f"{text_of(found)} is stored to a block of {list(block.shape)}", "give both one shape")
    full = emit.broadcast(found, block.shape)
    axes = block.axes or (len(array.sizes) - 1,)
    emit.add(tile.StoreOp(full.value, array.view, [start.value for start in block.starts], axes))
