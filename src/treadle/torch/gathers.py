"""Operators that read at indices which are data: `tensor.extract` in an elementwise body."""

from collections.abc import Sequence

import torch

from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.ir.emitter import INDEX
from treadle.torch.nests import Nests
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Uniform, Value, loops_of


def gather(
    nests: Nests, source: Operand, indices: Sequence[tuple[int, Operand]], places: Sequence[int | None], shape: Sequence[Size]
) -> Value:
    """Elements of `source`: along dimension d of `indices` as data say, along the others as dimension `places[d]` of the result says.

    Index tensors are broadcast to `shape` as they are; negative ones count from the end. One outside is the nearest inside.
    """
    stored = nests.row_major(nests.rounded(source))
    by_data = dict(indices)
    tensors = [value for _, value in indices]
    dims = loops_of(shape)
    extents = {dim: nests.emit.value(nests.sizes.index(stored.shape[dim])) for dim in by_data}

    def read(s: Scalars, given: list[SSAValue]) -> SSAValue:
        found: dict[int, SSAValue] = {}
        for (dim, value), number in zip(indices, given, strict=True):
            found[dim] = position(s, number, value.dtype, extents[dim])
        at = [found[dim] if dim in found else loop_index(s, dims, places[dim]) for dim in stored.axes]
        return s.put(tensor.ExtractOp(stored.tensor, at, stored.tensor.type.element_type))  # pyright: ignore

    return nests.elementwise(tensors, shape, stored.dtype, read)


def position(s: Scalars, number: SSAValue, dtype: torch.dtype, extent: SSAValue) -> SSAValue:
    """An index as data have it, from the start."""
    if dtype not in (torch.int64, torch.int32):
        raise Unsupported(f"indices of type {dtype}")
    index = s.put(arith.IndexCastOp(number, INDEX))
    is_negative = s.compare("lt", number, s.like(number, 0))
    return s.select(is_negative, s.put(arith.AddiOp(index, extent, result_type=INDEX)), index)


def loop_index(s: Scalars, dims: Sequence[int], place: int | None) -> SSAValue:
    """Where the loop over dimension `place` is; `dims`: those that have loops."""
    if place is None or place not in dims:
        return s.put(arith.ConstantOp(builtin.IntegerAttr(0, INDEX)))
    return s.put(linalg.ops.IndexOp(dims.index(place)))


def take(nests: Nests, source: Operand, dim: int, index: Operand, shape: Sequence[Size]) -> Value:
    """`index_select`, and `embedding` along dimension 0: the dimensions of `index` in the place of `dim`."""
    behind = len(source.shape) - dim - 1
    width = len(index.shape)
    placed = _with_trailing(index, behind)
    places = [d if d < dim else None if d == dim else d + width - 1 for d in range(len(source.shape))]
    return gather(nests, source, [(dim, placed)], places, shape)


def gather_along(nests: Nests, source: Operand, dim: int, index: Operand, shape: Sequence[Size]) -> Value:
    """`gather`: the element whose index along `dim` is given for each element of the result."""
    places = [None if d == dim else d for d in range(len(source.shape))]
    return gather(nests, source, [(dim, index)], places, shape)


def index_tensors(nests: Nests, source: Operand, indices: Sequence[Operand | None], shape: Sequence[Size]) -> Value:
    """`x[i, :, j]`: the index tensors, broadcast together, where the first of them stands; they must be neighbours."""
    where = [d for d, value in enumerate(indices) if value is not None]
    if where != list(range(where[0], where[-1] + 1)):
        raise Unsupported("index tensors that are not neighbours")
    given = [value for value in indices if value is not None]
    if any(value.dtype == torch.bool for value in given):
        raise Unsupported("a mask as an index: its result has as many elements as the mask has true ones")
    width = max(len(value.shape) for value in given)
    behind = len(source.shape) - where[-1] - 1
    placed = [(d, _with_trailing(value, behind)) for d, value in zip(where, given, strict=True)]
    places: list[int | None] = []
    for d in range(len(source.shape)):
        places.append(d if d < where[0] else None if d <= where[-1] else d - len(where) + width)
    return gather(nests, source, placed, places, shape)


def _with_trailing(index: Operand, count: int) -> Operand:
    """An index tensor with dimensions of size 1 behind its own."""
    shape = (*index.shape, *([1] * count))
    if isinstance(index, Uniform):
        return Uniform(index.number, shape, index.dtype)
    return index.moved(index.axes, shape)
