"""Evaluation of `tensor` operations: moving, cutting and joining arrays. Value and error bound move alike."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from treadle.dialects.mlir_ext.shapes import RankOp
from treadle.errors import UNWRITTEN, TreadleError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin, tensor
from treadle.ir.locations import location_of
from treadle.sim.element_types import Array, poison, reference_dtype
from treadle.sim.error_analysis import Tracked

Lookup = Callable[[SSAValue], Tracked]


def scalar(lookup: Lookup, value: SSAValue) -> Array:
    """A value that decides what is executed or where; TR322 where it is the contents of uninitialised memory."""
    found = lookup(value)
    if found.unwritten is not None and bool(np.any(found.unwritten)):
        owner = value.owner
        name, place = (owner.name, location_of(owner)) if isinstance(owner, Operation) else ("an argument", None)
        raise TreadleError(UNWRITTEN, place, name=name)
    return found.value


def index(lookup: Lookup, value: SSAValue | int) -> int:
    """The value of an index."""
    return value if isinstance(value, int) else int(scalar(lookup, value))


def indices(lookup: Lookup, values: Sequence[SSAValue | int]) -> tuple[int, ...]:
    """The values of several."""
    return tuple(index(lookup, value) for value in values)


def mixed(lookup: Lookup, static: Sequence[int], dynamic: Sequence[SSAValue]) -> tuple[int, ...]:
    """A list of static values in which the marker stands for the next dynamic one."""
    following = iter(dynamic)
    return tuple(index(lookup, next(following)) if s == builtin.DYNAMIC_INDEX else s for s in static)


def runtime_shape(value: SSAValue, dynamic: Sequence[int]) -> tuple[int, ...]:
    """The shape of a tensor type with its dynamic sizes filled in."""
    sizes = iter(dynamic)
    return tuple(next(sizes) if s == builtin.DYNAMIC_INDEX else s for s in _declared(value))


def _declared(value: SSAValue) -> tuple[int, ...]:
    kind: Any = value.type  # element types are free parameters of tensor types
    return tuple(kind.get_shape()) if isinstance(value.type, builtin.TensorType) else ()


def _window(lookup: Lookup, op: Any) -> tuple[slice, ...]:
    offsets = mixed(lookup, op.static_offsets.get_values(), op.offsets)
    sizes = mixed(lookup, op.static_sizes.get_values(), op.sizes)
    strides = mixed(lookup, op.static_strides.get_values(), op.strides)
    return tuple(slice(o, o + (n - 1) * s + 1 if n else o, s) for o, n, s in zip(offsets, sizes, strides, strict=True))


def extract(lookup: Lookup, op: Any) -> Tracked:
    """`tensor.extract_slice`, dropping the dimensions of extent 1 that the result type leaves out."""
    window = _window(lookup, op)
    cut = lookup(op.source).spread().map(lambda a: a[window])
    return _with_rank(cut, op.result)


def _with_rank(cut: Tracked, like: SSAValue) -> Tracked:
    wanted = _declared(like)
    extra = cut.value.ndim - len(wanted)
    dropped: list[int] = []
    position = 0
    for axis, extent in enumerate(cut.value.shape):
        matches = position < len(wanted) and wanted[position] in (extent, builtin.DYNAMIC_INDEX)
        must_drop = extent == 1 and extra > len(dropped) and (not matches or (position < len(wanted) and wanted[position] != 1))
        if must_drop:
            dropped.append(axis)
        else:
            position += 1
    return cut.map(lambda a: a.reshape([n for axis, n in enumerate(cut.value.shape) if axis not in dropped]))


def insert(lookup: Lookup, op: Any, into: Tracked, *, in_place: bool = False) -> Tracked:
    """`tensor.insert_slice` (and the parallel one) into `into`, whose arrays are the caller's own where `in_place`."""
    window = _window(lookup, op)
    source = lookup(op.source)
    shape = into.value[window].shape
    value = into.value if in_place else into.value.copy()
    value[window] = source.value.reshape(shape)

    def inserted(old: Array | None, new: Array | None, nothing: Any) -> Array | None:
        if old is None and new is None:
            return None
        if old is None or not in_place:
            old = np.array(np.broadcast_to(nothing if old is None else old, value.shape))
        old[window] = nothing if new is None else np.broadcast_to(new, source.value.shape).reshape(shape)
        return old

    return Tracked(value, inserted(into.error, source.error, 0.0), inserted(into.unwritten, source.unwritten, False))


def _reassociated(lookup: Lookup, op: Any) -> tuple[int, ...]:
    if isinstance(op, tensor.ExpandShapeOp):
        return mixed(lookup, op.static_output_shape.get_values(), op.dynamic_output_shape)
    source = lookup(op.src).value.shape
    groups = [[int(i.value.data) for i in group] for group in op.reassociation]
    return tuple(prod(source[i] for i in group) for group in groups)


def _pad(lookup: Lookup, op: tensor.PadOp) -> Tracked:
    low = mixed(lookup, op.static_low.get_values(), op.low)
    high = mixed(lookup, op.static_high.get_values(), op.high)
    last = op.region.block.last_op
    filler = lookup(last.operands[0]) if last is not None else Tracked(np.zeros(()))
    source = lookup(op.source).spread()
    shape = tuple(n + a + b for n, a, b in zip(source.value.shape, low, high, strict=True))
    window = tuple(slice(a, a + n) for n, a in zip(source.value.shape, low, strict=True))

    def padded(array: Array, fill: Any) -> Array:
        out = np.full(shape, fill, dtype=array.dtype)
        out[window] = array
        return out

    def padded_like(inner: Array | None, fill: Array | None, nothing: Any) -> Array | None:
        if inner is None and fill is None:
            return None
        whole = np.broadcast_to(np.asarray(nothing), source.value.shape) if inner is None else inner
        return padded(whole, nothing if fill is None else fill)

    errors, masks = (source.error, filler.error), (source.unwritten, filler.unwritten)
    return Tracked(padded(source.value, filler.value), padded_like(*errors, 0.0), padded_like(*masks, False))


def _joined(parts: Sequence[Tracked], join: Callable[[list[Array]], Array]) -> Tracked:
    def joined(given: Sequence[Array | None], nothing: Any) -> Array | None:
        if all(one is None for one in given):
            return None
        shapes = [p.value.shape for p in parts]
        return join([np.broadcast_to(nothing if g is None else g, shape) for g, shape in zip(given, shapes, strict=True)])

    errors, masks = [p.error for p in parts], [p.unwritten for p in parts]
    return Tracked(join([p.value for p in parts]), joined(errors, 0.0), joined(masks, False))


def evaluate_tensor(op: Operation, lookup: Lookup) -> Tracked | None:
    """The result of a `tensor` operation; None for one without a definition here."""
    match op:
        case tensor.EmptyOp():
            sizes = indices(lookup, list(op.dynamic_sizes))
            contents = poison(runtime_shape(op.tensor, sizes), reference_dtype(op.tensor.type.get_element_type()))
            return Tracked(contents, unwritten=np.ones((), dtype=np.bool_))
        case tensor.DimOp():
            return Tracked(np.asarray(lookup(op.source).value.shape[index(lookup, op.index)], dtype=np.int64))
        case tensor.CastOp():
            return lookup(op.source)
        case RankOp():
            return Tracked(np.asarray(lookup(op.source).value.ndim, dtype=np.int64))
        case tensor.ExtractSliceOp():
            return extract(lookup, op)
        case tensor.InsertSliceOp():
            return insert(lookup, op, lookup(op.dest))
        case tensor.ExpandShapeOp() | tensor.CollapseShapeOp():
            shape = _reassociated(lookup, op)
            return lookup(op.src).spread().map(lambda a: a.reshape(shape))
        case tensor.ReshapeOp():
            wanted = tuple(int(n) for n in scalar(lookup, op.shape))
            return lookup(op.source).spread().map(lambda a: a.reshape(wanted))
        case tensor.ConcatOp():
            axis = op.dim.value.data
            return _joined([lookup(v) for v in op.inputs], lambda parts: np.concatenate(parts, axis=axis))
        case tensor.ExtractOp():
            place = indices(lookup, list(op.indices))
            return lookup(op.tensor).spread().map(lambda a: np.asarray(a[place]))
        case tensor.InsertOp():
            return _insert_element(lookup, op)
        case tensor.FromElementsOp():
            shape = runtime_shape(op.result, ())
            return _joined([lookup(v) for v in op.elements], lambda parts: np.stack(parts).reshape(shape))
        case tensor.SplatOp():
            shape = runtime_shape(op.result, indices(lookup, list(op.dynamicSizes)))
            return lookup(op.input).spread().map(lambda a: np.broadcast_to(a, shape))
        case tensor.PadOp():
            return _pad(lookup, op)
        case _:
            return None


def _insert_element(lookup: Lookup, op: tensor.InsertOp) -> Tracked:
    place = indices(lookup, list(op.indices))
    element, into = lookup(op.scalar), lookup(op.dest)

    def placed(whole: Array | None, one: Array | None, nothing: Any) -> Array | None:
        if whole is None and one is None:
            return None
        found = np.array(np.broadcast_to(nothing if whole is None else whole, into.value.shape))
        found[place] = nothing if one is None else one
        return found

    value = into.value.copy()
    value[place] = element.value
    return Tracked(value, placed(into.error, element.error, 0.0), placed(into.unwritten, element.unwritten, False))
