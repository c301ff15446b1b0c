"""Operators that move or select elements: most change only how dimensions read what is stored."""

from collections.abc import Sequence
from math import prod

import sympy
import torch

from treadle.dialects.mlir_ext import CollapseShapeOp, ExpandShapeOp, PadOp
from treadle.ir import builtin
from treadle.ir.builtin import DenseArrayBase, TensorType, i64
from treadle.ir.core import DYNAMIC_INDEX, Block, Region, SSAValue
from treadle.ir.dialects import tensor
from treadle.ir.emitter import INDEX, Index
from treadle.ir.tensors import tensor_type
from treadle.torch.nests import Nests
from treadle.torch.sizes import Size, equal, product, same
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Uniform, Value, loops_of


def permute(value: Operand, order: Sequence[int]) -> Operand:
    """Dimension i of the result is dimension `order[i]`."""
    shape = tuple(value.shape[dim] for dim in order)
    if isinstance(value, Uniform):
        return Uniform(value.number, shape, value.dtype)
    return value.moved([list(order).index(axis) for axis in value.axes], shape)


def expand(value: Operand, shape: Sequence[Size]) -> Operand:
    """The value repeated along dimensions of size 1, and new ones in front."""
    if isinstance(value, Uniform):
        return Uniform(value.number, tuple(shape), value.dtype)
    return value.moved([axis + len(shape) - len(value.shape) for axis in value.axes], shape)


def reshape(nests: Nests, value: Operand, shape: Sequence[Size]) -> Operand:
    """The same elements in the same order in another shape. Raises Unsupported where sizes do not tell which dimensions belong together."""
    shape = tuple(shape)
    if isinstance(value, Uniform):
        return Uniform(value.number, shape, value.dtype)
    dims = loops_of(shape)
    whole = [value.shape[dim] for dim in value.loops]
    if equal(whole, [shape[dim] for dim in dims]):  # dimensions of size 1 come and go
        return value.moved([dims[value.loops.index(axis)] for axis in value.axes], shape)
    stored = nests.row_major(value)
    groups = _groups(whole, [shape[dim] for dim in dims])
    flat = _collapse(nests, stored.tensor, [len(old) for old, _ in groups])
    opened = _expand(nests, flat, [[shape[dims[position]] for position in new] for _, new in groups])
    return Value(opened, dims, shape, value.dtype, value.stored)


def _groups(old: Sequence[Size], new: Sequence[Size]) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions of both shapes with the same number of elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(a), j + len(b)
        while not same(left := product([old[p] for p in a]), right := product([new[p] for p in b])):
            take_old = _is_smaller(left, right)
            if take_old and i < len(old):
                a.append(i)
                i += 1
            elif not take_old and j < len(new):
                b.append(j)
                j += 1
            elif i < len(old):
                a.append(i)
                i += 1
            elif j < len(new):
                b.append(j)
                j += 1
            else:
                raise Unsupported(f"a view of {tuple(old)} as {tuple(new)}")
        groups.append((a, b))
    if any(not a or not b for a, b in groups):
        raise Unsupported(f"a view of {tuple(old)} as {tuple(new)}")
    return groups


def _is_smaller(left: Size, right: Size) -> bool:
    """Whether the left product has to grow: the right one holds it as a factor, or is the larger number."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    return (sympy.sympify(right) / left).as_numer_denom()[1] == 1


def _collapse(nests: Nests, value: SSAValue, lengths: Sequence[int]) -> SSAValue:
    """Neighbouring axes merged, so many for each axis of the result."""
    if all(length == 1 for length in lengths):
        return value
    old, place = tensor_type(value), 0
    groups: list[list[int]] = []
    shape: list[int] = []
    for length in lengths:
        group = list(range(place, place + length))
        extents = [old.get_shape()[axis] for axis in group]
        shape.append(DYNAMIC_INDEX if DYNAMIC_INDEX in extents else prod(extents))
        groups.append(group)
        place += length
    return collapse(nests, value, groups, shape)


def collapse(nests: Nests, value: SSAValue, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> SSAValue:
    """`tensor.collapse_shape`"""
    result = TensorType(tensor_type(value).element_type, list(shape))
    op = CollapseShapeOp(operands=[value], result_types=[result], properties={"reassociation": _reassociation(groups)})
    return nests.emit.insert(op)


def _expand(nests: Nests, value: SSAValue, sizes: Sequence[Sequence[Size]]) -> SSAValue:
    """Each axis split into axes of these sizes."""
    if all(len(group) == 1 for group in sizes):
        return value
    groups: list[list[int]] = []
    for group in sizes:
        start = sum(map(len, groups))
        groups.append(list(range(start, start + len(group))))
    return expand_shape(nests, value, groups, [size for group in sizes for size in group])


def expand_shape(nests: Nests, value: SSAValue, groups: Sequence[Sequence[int]], shape: Sequence[Size]) -> SSAValue:
    """`tensor.expand_shape`"""
    indices: list[Index] = [nests.sizes.index(size) for size in shape]
    static = [index if isinstance(index, int) else DYNAMIC_INDEX for index in indices]
    dynamic = [index for index in indices if not isinstance(index, int)]
    result = TensorType(tensor_type(value).element_type, static)
    return nests.emit.insert(ExpandShapeOp(value, dynamic, _reassociation(groups), DenseArrayBase.from_list(i64, static), result))


def _reassociation(groups: Sequence[Sequence[int]]) -> builtin.ArrayAttr[builtin.ArrayAttr[builtin.IntegerAttr]]:
    return builtin.ArrayAttr([builtin.ArrayAttr([builtin.IntegerAttr(dim, i64) for dim in group]) for group in groups])


def without_units(nests: Nests, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
    """A tensor of this shape without its axes of size 1."""
    dims = loops_of(shape)
    if len(dims) == len(shape):
        return value
    known = tensor_type(value).get_shape()
    return collapse(nests, value, _around(dims, len(shape)), [known[dim] for dim in dims])


def with_units(nests: Nests, value: Value) -> SSAValue:
    """All of a value in its own shape."""
    stored = nests.row_major(value)
    dims = loops_of(value.shape)
    if len(dims) == len(value.shape):
        return stored.tensor
    return expand_shape(nests, stored.tensor, _around(dims, len(value.shape)), value.shape)


def _around(dims: Sequence[int], rank: int) -> list[list[int]]:
    """For each of the dimensions, itself with those of size 1 behind it; the first takes those in front too."""
    if not dims:
        return []
    starts = [0, *dims[1:]]
    return [list(range(start, end)) for start, end in zip(starts, [*starts[1:], rank], strict=True)]


def piece(nests: Nests, value: Operand, dim: int, start: Size, length: Size, step: int = 1) -> Operand:
    """`length` elements of a dimension, from `start` on, every `step`th."""
    shape = tuple(length if number == dim else size for number, size in enumerate(value.shape))
    if isinstance(value, Uniform):
        return Uniform(value.number, shape, value.dtype)
    if dim not in value.axes:
        if length == 0:
            raise Unsupported("an empty slice of a dimension of size 1")
        return value.moved(value.axes, shape)
    place = value.axes.index(dim)
    sizes: list[Index] = [nests.sizes.index(value.shape[axis]) for axis in value.axes]
    offsets: list[Index] = [0] * len(sizes)
    strides: list[Index] = [1] * len(sizes)
    sizes[place], offsets[place], strides[place] = nests.sizes.index(length), nests.sizes.index(start), step
    kept = [axis for axis in range(len(sizes)) if axis != place or length != 1]
    part = nests.emit.extract_slice(value.tensor, sizes, offsets, strides, kept=kept)
    return Value(part, tuple(value.axes[axis] for axis in kept), shape, value.dtype, value.stored)


def pad(nests: Nests, value: Operand, amounts: Sequence[tuple[int, int]], number: float) -> Operand:
    """The value with so many elements that are `number` before and behind along each dimension; negative amounts take elements away."""
    for dim, (low, high) in enumerate(amounts):
        if min(low, high) < 0:
            cut = max(0, -low)
            value = piece(nests, value, dim, cut, value.shape[dim] - cut - max(0, -high))
    amounts = [(max(0, low), max(0, high)) for low, high in amounts]
    if all(amount == (0, 0) for amount in amounts):
        return value
    if any(size == 0 for size in value.shape):
        raise Unsupported("a border around nothing")
    shape = value.shape
    is_stored = isinstance(value, Value) and all(
        dim in value.axes for dim, size in enumerate(shape) if size != 1 and amounts[dim] != (0, 0)
    )
    stored = value if is_stored and isinstance(value, Value) else nests.row_major(value)
    units = [dim for dim, size in enumerate(shape) if size == 1 and amounts[dim] != (0, 0)]
    source = _with_units_behind(nests, stored, len(units))
    dims = (*stored.axes, *units)
    made = nests.emit.insert(_pad_op(nests, source, [amounts[dim] for dim in dims], number, stored.stored))
    wider = tuple(size + low + high for size, (low, high) in zip(shape, amounts, strict=True))
    return Value(made, dims, wider, value.dtype, stored.stored)


def _with_units_behind(nests: Nests, stored: Value, count: int) -> SSAValue:
    """What is stored, with so many axes of size 1 behind the others."""
    if not count:
        return stored.tensor
    rank = len(stored.axes)
    groups = [[axis] for axis in range(rank - 1)] + ([[*range(rank - 1, rank + count)]] if rank else [])
    return expand_shape(nests, stored.tensor, groups, [*(stored.shape[axis] for axis in stored.axes), *([1] * count)])


def _pad_op(nests: Nests, source: SSAValue, amounts: Sequence[tuple[int, int]], number: float, dtype: torch.dtype) -> tensor.PadOp:
    kind = tensor_type(source)
    block = Block(arg_types=[INDEX] * len(amounts))
    zero = nests.constant(number, dtype)
    block.add_op(tensor.YieldOp(zero))
    shape = [
        DYNAMIC_INDEX if size == DYNAMIC_INDEX else size + low + high for size, (low, high) in zip(kind.get_shape(), amounts, strict=True)
    ]
    low, high = (builtin.DenseArrayBase.from_list(i64, list(side)) for side in zip(*amounts, strict=True))
    return PadOp(source, [], [], Region(block), low, high, TensorType(kind.element_type, shape))


def among_zeros(nests: Nests, value: Operand, shape: Sequence[Size], starts: Sequence[int], steps: Sequence[int]) -> Value:
    """Zeros of `shape`, with the elements of `value` from `starts` on, every `steps`th along each dimension."""
    stored = nests.row_major(nests.rounded(value))
    units = [dim for dim in loops_of(shape) if dim not in stored.axes]
    source = _with_units_behind(nests, stored, len(units))
    dims = (*stored.axes, *units)
    zeros = nests.filled(0, [shape[dim] for dim in dims], stored.dtype)
    sizes: list[Index] = [nests.sizes.index(stored.shape[dim]) for dim in dims]
    offsets: list[Index] = [starts[dim] for dim in dims]
    strides: list[Index] = [steps[dim] for dim in dims]
    made = nests.emit.insert_slice(source, zeros, offsets, sizes, strides)
    return Value(made, dims, tuple(shape), stored.dtype, stored.dtype)


def join(nests: Nests, parts: Sequence[Operand], dim: int, shape: Sequence[Size]) -> Value:
    """The parts one after the other along a dimension."""
    dtype = parts[0].dtype
    made = [nests.row_major(nests.cast(part, dtype)) for part in parts if part.shape[dim] != 0]
    if len(made) == 1:
        return made[0].moved(made[0].axes, shape)
    dims = loops_of(shape)
    place = dims.index(dim)
    start: Index = 0
    result = nests.empty([shape[d] for d in dims], dtype)
    for part in made:
        sizes: list[Index] = [nests.sizes.index(part.shape[d]) for d in dims]
        offsets: list[Index] = [0] * len(dims)
        offsets[place] = start
        result = nests.emit.insert_slice(part.tensor, result, offsets, sizes)
        behind = nests.emit.add(start, sizes[place])
        start = behind if (known := nests.emit.static(behind)) is None else known
    return Value(result, dims, tuple(shape), dtype, dtype)


def write_into(nests: Nests, value: Operand, part: Operand, dim: int, start: Size, step: int = 1) -> Value:
    """A copy of `value` with `part` along a dimension from `start` on, at every `step`th place."""
    base = nests.row_major(nests.rounded(value))
    dims = base.loops
    source = nests.row_major(nests.cast(part, base.dtype))
    sizes: list[Index] = [nests.sizes.index(part.shape[d]) for d in dims]
    offsets: list[Index] = [0] * len(dims)
    if dim not in dims:
        return source
    offsets[dims.index(dim)] = nests.sizes.index(start)
    steps: list[Index] = [step if d == dim else 1 for d in dims]
    return Value(nests.emit.insert_slice(source.tensor, base.tensor, offsets, sizes, steps), dims, base.shape, base.dtype, base.dtype)
