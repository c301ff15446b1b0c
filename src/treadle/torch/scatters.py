"""Operators that write at indices which are data, and scans: each element of the result looks at all that may concern it.

Work grows with the product of both sizes: what stays with PyTorch is faster where they are large.
"""

from collections.abc import Sequence

import torch

from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin, tensor
from treadle.ir.emitter import INDEX
from treadle.torch import views
from treadle.torch.elements import accumulator
from treadle.torch.gathers import loop_index, position
from treadle.torch.nests import Nests, element
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size, product
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Value, loops_of


def put(nests: Nests, target: Operand, indices: Sequence[Operand | None], values: Operand, *, accumulate: bool) -> Operand:
    """`target` with `values` at index tensors that are neighbours; of several at one place the last one, or the sum of all and `target`."""
    where = [dim for dim, value in enumerate(indices) if value is not None]
    given = [value for value in indices if value is not None]
    if where != list(range(where[0], where[-1] + 1)) or any(value.dtype == torch.bool for value in given):
        raise Unsupported("indices that are masks, or not neighbours")
    width = max(len(value.shape) for value in given)
    common = _broadcast([value.shape for value in given])
    first, rest = target.shape[: where[0]], target.shape[where[-1] + 1 :]
    count = product(common)
    flat = [views.reshape(nests, nests.row_major(views.expand(value, common)), (count,)) for value in given]
    placed = nests.row_major(views.expand(values, (*first, *common, *rest)))
    listed = views.reshape(nests, placed, (*first, count, *rest))
    if not isinstance(listed, Value) or len(common) != width:
        raise Unsupported("values without elements")
    return (_summed if accumulate else _replaced)(nests, target, flat, where, listed, count)


def _broadcast(shapes: Sequence[Sequence[Size]]) -> tuple[Size, ...]:
    rank = max(map(len, shapes))
    full = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*full, strict=True))


def _matches(
    nests: Nests, s: Scalars, numbers: Sequence[SSAValue], flat: Sequence[Operand], where: Sequence[int], shape: Sequence[Size]
) -> SSAValue:
    """Whether the indices name the place that the loops over `shape` are at."""
    found: SSAValue | None = None
    for number, value, dim in zip(numbers, flat, where, strict=True):
        at = position(s, number, value.dtype, nests.emit.value(nests.sizes.index(shape[dim])))
        hit = s.put(arith.CmpiOp(at, loop_index(s, loops_of(shape), dim), "eq"))
        found = hit if found is None else s.put(arith.AndIOp(found, hit))
    if found is None:
        raise Unsupported("no index")
    return found


def _summed(nests: Nests, target: Operand, flat: Sequence[Operand], where: Sequence[int], values: Value, count: Size) -> Operand:
    shape = (*target.shape, count)
    total = accumulator(target.dtype)
    last = len(target.shape)
    places = [*range(where[0]), last, *range(where[-1] + 1, last)]  # of the dimensions of `values` in `shape`
    sizes = [size if dim in places else 1 for dim, size in enumerate(shape)]
    seen = values.moved([places[axis] for axis in values.axes], sizes)

    def term(s: Scalars, given: list[SSAValue]) -> SSAValue:
        hit = _matches(nests, s, given[1:], flat, where, shape)
        value = s.cast(given[0], seen.stored, total)
        return s.select(hit, value, s.like(value, 0))

    terms = nests.elementwise([seen, *flat], shape, total, term)
    summed = nests.reduction(terms, [last], 0, total, lambda s, given: s.add(given[0], given[1]))

    def add(s: Scalars, given: list[SSAValue]) -> SSAValue:
        source = target.stored if isinstance(target, Value) else target.dtype
        return s.add(s.cast(given[0], source, total), given[1])

    return nests.cast(nests.elementwise([target, summed], target.shape, total, add), target.dtype)


def _replaced(nests: Nests, target: Operand, flat: Sequence[Operand], where: Sequence[int], values: Value, count: Size) -> Operand:
    """The last of the values at each place is looked up first, by its number."""
    inner = tuple(target.shape[dim] for dim in where)
    shape = (*inner, count)

    def number(s: Scalars, given: list[SSAValue]) -> SSAValue:
        hit = _matches(nests, s, given, flat, range(len(where)), shape)
        at = s.put(arith.IndexCastOp(loop_index(s, loops_of(shape), len(inner)), builtin.i64))
        return s.select(hit, at, s.like(at, -1))

    numbers = nests.elementwise(flat, shape, torch.int64, number)
    last = nests.reduction(numbers, [len(inner)], -1, torch.int64, lambda s, given: s.largest(given[0], given[1]))
    base, source = nests.row_major(nests.rounded(target)), nests.row_major(nests.cast(values, target.dtype))
    sizes = [target.shape[dim] if dim in where else 1 for dim in range(len(target.shape))]
    chosen = last.moved([where[axis] for axis in last.axes], sizes)
    dims = loops_of(target.shape)
    places: list[int | None] = [*range(where[0]), None, *range(where[-1] + 1, len(target.shape))]

    def pick(s: Scalars, given: list[SSAValue]) -> SSAValue:
        found = s.compare("ge", given[1], s.like(given[1], 0))
        at = s.put(arith.IndexCastOp(s.largest(given[1], s.like(given[1], 0)), INDEX))
        read = [at if (place := places[axis]) is None else loop_index(s, dims, place) for axis in source.axes]
        return s.select(found, s.put(tensor.ExtractOp(source.tensor, read, element(source.stored))), given[0])

    return nests.elementwise([base, chosen], target.shape, target.dtype, pick)


def cumulative_sum(nests: Nests, value: Operand, dim: int, dtype: torch.dtype) -> Operand:
    """Sums of all elements of `dim` up to each one."""
    total = accumulator(dtype)
    shape = (*value.shape[: dim + 1], value.shape[dim], *value.shape[dim + 1 :])
    stored = nests.row_major(value)
    sizes = [1 if at == dim else size for at, size in enumerate(shape)]
    seen = stored.moved([axis if axis < dim else axis + 1 for axis in stored.axes], sizes)

    def term(s: Scalars, given: list[SSAValue]) -> SSAValue:
        loops = loops_of(shape)
        before = s.put(arith.CmpiOp(loop_index(s, loops, dim + 1), loop_index(s, loops, dim), "ule"))
        number = s.cast(given[0], stored.stored, total)
        return s.select(before, number, s.constant(0, element(total)))

    terms = nests.elementwise([seen], shape, total, term)
    summed = nests.reduction(terms, [dim + 1], 0, total, lambda s, given: s.add(given[0], given[1]))
    return nests.cast(summed, dtype)
