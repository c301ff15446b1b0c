"""What each operation of a tile kernel computes: a function of its operands' values, in exact storage types.

Nothing here knows of control flow, of the order of execution or of when an asynchronous effect lands; the drivers bind these functions to
operands. Values: `index` is a Python int, other scalars 0-d arrays, register tiles arrays (never changed in place), shared buffers arrays
(changed in place), views and pointers objects of `memory.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dialects import pipe, stamp, sync, tile
from treadle.errors import NOT_EXECUTABLE, TreadleError
from treadle.ir.core import Block, Operation
from treadle.ir.locations import location_of
from treadle.layout.tile_layout import NEW_DIM
from treadle.sim.arrivals import arrival_function
from treadle.sim.contraction import matrix_product
from treadle.sim.element_types import Array, is_float, poison, storage_dtype
from treadle.sim.elementwise import Function, attribute_value, elementwise_function, unary
from treadle.sim.faults import SimulationFault
from treadle.sim.index_values import index_check, index_function, index_width_around
from treadle.sim.memory import FoldedView, Pointer, View, Window
from treadle.sim.updates import update_function


def straight_line(block: Block) -> Callable[[Sequence[Any]], list[Any]]:
    """A block of elementwise operations as a function from its arguments to its terminator's operands."""
    steps = [(op, operation_function(op)) for op in block.ops if op is not block.last_op]
    terminator = block.last_op

    def run(arguments: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(block.args, arguments, strict=True))
        for op, function in steps:
            values[op.results[0]] = function(*(values[v] for v in op.operands))
        return [values[v] for v in terminator.operands] if terminator is not None else []

    return run


def _groups(extent: int, mask: int) -> list[list[int]]:
    """Indices along an axis, by the value of their bits at the set bits of `mask` (in order)."""
    bits = [b for b in range(mask.bit_length()) if mask >> b & 1]
    groups: list[list[int]] = [[] for _ in range(1 << len(bits))]
    for i in range(extent):
        groups[sum((i >> b & 1) << n for n, b in enumerate(bits))].append(i)
    return groups


def _reduce(op: tile.ReduceOp) -> Function:
    """By halves, so that every combination rounds as the machine's does and the order is that of a tree."""
    combine = straight_line(op.combiner.block)
    axis = op.axis.value.data
    groups = _groups(tile.tile_type(op.inputs[0]).get_shape()[axis], op.group_mask.value.data if op.group_mask else 0)

    def part(array: Array, low: int, high: int) -> Array:
        return array[(slice(None),) * axis + (slice(low, high),)]

    def folded(values: list[Array]) -> list[Array]:
        while (extent := values[0].shape[axis]) > 1:
            half = extent // 2
            rest = [part(v, 2 * half, extent) for v in values]
            values = combine([*(part(v, 0, half) for v in values), *(part(v, half, 2 * half) for v in values)])
            if extent % 2:
                values = [np.concatenate([v, r], axis=axis) for v, r in zip(values, rest, strict=True)]
        return values

    def run(*values: Array) -> Any:
        if len(groups) == 1:
            results = folded(list(values))
        else:
            parts = [folded([np.take(v, group, axis=axis) for v in values]) for group in groups]
            results = [np.concatenate([p[i] for p in parts], axis=axis) for i in range(len(values))]
        return results[0] if len(results) == 1 else results

    return run


def _round_to_tf32(array: Array) -> Array:
    """f32 values with 10 bits of mantissa, to nearest, ties to even (infinities and NaN stay)."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(array), rounded.view(np.float32), array)


def _contract(op: tile.ContractOp) -> Function:
    dtype, columns = storage_dtype(tile.tile_type(op.accumulator).element_type), op.defined_columns()
    if not is_float(tile.tile_type(op.accumulator).element_type):

        def add(a: Array, b: Array, accumulator: Array) -> Array:
            total = accumulator + matrix_product(a.astype(dtype), b.astype(dtype))
            total[:, columns:] = np.iinfo(dtype).min
            return total

        return add
    compute = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    tf32 = "tf32" in op.instruction.data

    def run(a: Array, b: Array, accumulator: Array) -> Array:
        left, right = (a, b) if a.dtype == b.dtype == compute else (a.astype(compute), b.astype(compute))
        if tf32:
            left, right = _round_to_tf32(left), _round_to_tf32(right)
        total = left @ right
        total += accumulator
        total[:, columns:] = np.nan
        return total if total.dtype == dtype else total.astype(dtype)

    return run


def _view(op: tile.ViewOp) -> Function:
    sizes, strides, folding = op.size_values(), op.stride_values(), op.folding
    offset, align, in_range = op.offset.value.data, op.align.value.data, index_check(op)
    for size in sizes:
        if isinstance(size, int):
            in_range(size)  # strides are 64 bits wide in addresses whatever an index is

    def run(pointer: Pointer, *dynamic: int) -> View:
        values = iter(dynamic)
        found = [[v if isinstance(v, int) else next(values) for v in group] for group in (sizes, strides)]
        if folding is not None:
            return FoldedView(pointer, offset, found[0], found[1], align, folding)
        return View(pointer, offset, found[0], found[1], align)

    return run


def _load(op: tile.LoadOp) -> Function:
    shape, edges = tile.tile_type(op.result).get_shape(), op.edges is not None
    vector = 1 if op.shifted is not None else op.vector.value.data  # nothing is promised of what is shifted
    window = Window(tile.ints(op.dims), shape, len(op.offsets), vector, edges=edges)
    other = 0 if op.other is None else attribute_value(op.other, storage_dtype)

    def run(view: View, *offsets: int) -> Array:
        return window.read(view, offsets, other)

    return run


def _gather(_: tile.GatherOp) -> Function:
    def run(view: View, *indices: Array) -> Array:
        return view.array[tuple(np.clip(index, 0, size - 1) for index, size in zip(indices, view.sizes, strict=True))]

    return run


def _store(op: tile.StoreOp) -> Function:
    shape, edges = tile.tile_type(op.value).get_shape(), op.edges is not None
    window = Window(tile.ints(op.dims), shape, len(op.offsets), op.vector.value.data, edges=edges)

    def run(value: Array, view: View, *offsets: int) -> None:
        window.write(view, offsets, value)

    return run


def _copy(op: tile.CopyOp) -> Function:
    window = Window(tile.ints(op.dims), tile.memref_type(op.destination).get_shape(), len(op.offsets), 1, repeats=op.repeated)
    rank = len(op.offsets)

    def run(view: View, *rest: Any) -> None:
        rest[rank][...] = window.read(view, rest[:rank], 0)

    return run


def _slot(op: pipe.SlotOp) -> Function:
    def run(buffer: Array, *indices: int) -> Array:
        if any(not 0 <= i < n for i, n in zip(indices, buffer.shape, strict=False)):
            raise SimulationFault(f"pipe.slot {list(indices)} of {list(buffer.shape[: len(indices)])} slots")
        return buffer[indices]

    return run


def _part(op: pipe.PartOp) -> Function:
    axis, count = op.axis.value.data, op.count.value.data

    def run(buffer: Array, index: int) -> Array:
        if not 0 <= index < count:
            raise SimulationFault(f"pipe.part {index} of {count}")
        rows = buffer.shape[axis] // count
        return buffer[(*[slice(None)] * axis, slice(index * rows, (index + 1) * rows))]

    return run


def _copy_out(op: tile.CopyOutOp) -> Function:
    window = Window(tile.ints(op.dims), tile.memref_type(op.source).get_shape(), len(op.offsets), 1)

    def run(buffer: Array, view: View, *offsets: int) -> None:
        window.write(view, offsets, buffer)

    return run


def _local(offsets: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))


def _splat(op: tile.SplatOp) -> Function:
    kind = tile.tile_type(op.result)
    shape, dtype = kind.get_shape(), storage_dtype(kind.element_type)
    return unary(lambda scalar: np.full(shape, scalar, dtype=dtype))


def _iota(op: tile.IotaOp) -> Function:
    kind = tile.tile_type(op.result)
    shape, axis = kind.get_shape(), op.axis.value.data
    along = np.arange(shape[axis], dtype=storage_dtype(kind.element_type)).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    whole = np.array(np.broadcast_to(along, shape))
    return lambda: whole


def _extract(op: tile.ExtractOp) -> Function:
    limit = 1 << (index_width_around(op) - 1)
    return unary(lambda value: min(max(int(value.reshape(-1)[0]), -limit), limit - 1))


def _lookup(op: tile.LookupOp) -> Function:
    table = op.table

    def run(index: int) -> int:
        if not 0 <= index < len(table):
            raise SimulationFault(f"tile.lookup at {location_of(op)} of entry {index} in a table of {len(table)}")
        return table[index]

    return unary(run)


def _store_local(op: tile.LocalStoreOp) -> Function:
    where = _local(tile.ints(op.offsets), tile.tile_type(op.value).get_shape())

    def run(value: Array, buffer: Array) -> None:
        buffer[where] = value

    return run


def _tile_function(op: Operation) -> Function | None:
    match op:
        case tile.CounterOp() | tile.LocalFlagOp():
            return arrival_function(op)
        case tile.ViewOp():
            return _view(op)
        case tile.LoadOp():
            return _load(op)
        case tile.GatherOp():
            return _gather(op)
        case tile.AtomicOp():
            return update_function(op)
        case tile.StoreOp():
            return _store(op)
        case tile.AllocOp():
            kind = tile.memref_type(op.result)
            shape, dtype = tuple(kind.get_shape()), storage_dtype(kind.element_type)
            return lambda: poison(shape, dtype)
        case tile.CopyOp():
            return _copy(op)
        case tile.CopyOutOp():
            return _copy_out(op)
        case pipe.SlotOp():
            return _slot(op)
        case pipe.PartOp():
            return _part(op)
        case tile.LocalLoadOp():  # of the memory that it is given: whose that is, a `peer` says
            where = _local(tile.ints(op.offsets), tile.tile_type(op.result).get_shape())
            return unary(lambda buffer: buffer[where].copy())
        case tile.LocalStoreOp():
            return _store_local(op)
        case tile.ContractOp():
            return _contract(op)
        case tile.ReduceOp():
            return _reduce(op)
        case tile.BroadcastOp():
            shape = tile.tile_type(op.result).get_shape()
            return unary(lambda value: np.broadcast_to(value, shape))
        case tile.ConvertLayoutOp():
            return unary(lambda value: value)
        case tile.PermuteOp():
            return _permute(op)
        case tile.ReshapeOp():
            sides = tile.tile_type(op.result).get_shape()
            return unary(lambda value: value.reshape(sides))
        case tile.ExtractOp() | tile.LookupOp():
            return _extract(op) if isinstance(op, tile.ExtractOp) else _lookup(op)
        case tile.OpaqueOp():
            return unary(lambda value: value)
        case tile.PrintOp():
            return lambda *_: None  # shown by what executes whole workgroups, which knows which one it is
        case tile.SliceOp():
            box = _local(tile.ints(op.offsets), tile.tile_type(op.result).get_shape())
            return unary(lambda value: value[box])
        case tile.SplatOp():
            return _splat(op)
        case tile.IotaOp():
            return _iota(op)
        case _:
            return None


def _permute(op: tile.PermuteOp) -> Function:
    kept = [axis for axis in tile.ints(op.order) if axis != NEW_DIM]
    shape = tile.tile_type(op.result).get_shape()
    first = (*kept, *(axis for axis in range(len(tile.tile_type(op.source).get_shape())) if axis not in kept))
    return unary(lambda value: value.transpose(first).reshape(shape))


_SYNC = frozenset(kind.name for dialect in (sync.SYNC, stamp.STAMP) for kind in dialect.operations)


def operation_function(op: Operation) -> Function:
    """What an operation without regions of control flow computes: its result, a sequence of results, or None.

    `sync` operations have no values: at this level every effect is complete when the next operation starts. Stamps are left out.
    Raises TreadleError TR321.
    """
    if op.name in _SYNC:
        return lambda *_: None
    function = index_function(op) or _tile_function(op) or elementwise_function(op, storage_dtype)
    if function is not None:
        return function
    raise TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason="the simulator does not define it")
