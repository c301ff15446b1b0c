"""Sums, means, extrema and truth over dimensions: sums of narrow floats in f32, rounded once."""

from collections.abc import Sequence
from typing import Any, Final

import torch

from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.torch import views
from treadle.torch.elements import accumulator
from treadle.torch.gathers import loop_index
from treadle.torch.nests import Nests, element
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size, product
from treadle.torch.values import Operand, Uniform, Value

FOLDS: Final = {
    "aten::sum": (0, Scalars.add),
    "aten::mean": (0, Scalars.add),
    "aten::prod": (1, Scalars.multiply),
    "aten::amax": ("-inf", Scalars.largest),
    "aten::amin": ("inf", Scalars.smallest),
    "aten::any": (0, Scalars.largest),
    "aten::all": (1, Scalars.smallest),
}
"""What a fold starts from, and one step of it."""


def reduce(nests: Nests, name: str, value: Operand, dims: Sequence[int], keepdim: bool, dtype: torch.dtype) -> Operand:
    """The reduction `name` over `dims`, seen as `dtype`."""
    start, fold = FOLDS[name]
    if name in ("aten::any", "aten::all"):
        value = nests.cast(value, torch.bool)
    total = accumulator(dtype) if name in ("aten::sum", "aten::mean", "aten::prod") else _stored(value)
    first = extreme(total, start == "inf") if isinstance(start, str) else start
    made = nests.reduction(value, dims, first, total, lambda s, given: fold(s, given[1], given[0]))
    if name == "aten::mean":
        made = _divided(nests, made, product([value.shape[dim] for dim in dims]))
    seen = Value(made.tensor, made.axes, made.shape, dtype, made.stored)
    if dtype.is_floating_point != total.is_floating_point or not dtype.is_floating_point:
        return kept_dims(nests.cast(seen, dtype), dims, value.shape, keepdim)
    return kept_dims(seen, dims, value.shape, keepdim)


def place_of_extremum(nests: Nests, value: Operand, dim: int | None, keepdim: bool, largest: bool) -> Operand:
    """The first place of the largest (smallest) element along a dimension, of all elements in order where it is None; NaN is both."""
    if dim is None:
        flat = views.reshape(nests, nests.row_major(value), (product(value.shape),))
        found = place_of_extremum(nests, flat, 0, False, largest)
        return views.reshape(nests, found, (1,) * len(value.shape)) if keepdim else found
    if not value.shape:
        return Uniform(0, (), torch.int64)
    dim %= len(value.shape)
    stored = nests.row_major(nests.rounded(value))
    best = reduce(nests, "aten::amax" if largest else "aten::amin", stored, [dim], True, stored.dtype)
    loops = stored.loops
    behind = torch.iinfo(torch.int64).max

    def place(s: Scalars, given: list[SSAValue]) -> SSAValue:
        at = s.put(arith.IndexCastOp(loop_index(s, loops, dim), builtin.i64))
        hit = s.put(arith.OrIOp(s.compare("eq", given[0], given[1]), s.compare("ne", given[0], given[0])))
        return s.select(hit, at, s.like(at, behind))

    places = nests.elementwise([stored, best], stored.shape, torch.int64, place)
    return kept_dims(nests.reduction(places, [dim], behind, torch.int64, _least), [dim], stored.shape, keepdim)


def _least(s: Scalars, given: list[SSAValue]) -> SSAValue:
    return s.smallest(given[0], given[1])


def kept_dims(value: Operand, dims: Sequence[int], before: Sequence[Size], keepdim: bool) -> Operand:
    """The reduced value, with dimensions of size 1 in the places of those that went where these are kept."""
    if not keepdim or not isinstance(value, Value):
        return value
    shape = tuple(1 if dim in dims else size for dim, size in enumerate(before))
    places = [dim for dim in range(len(before)) if dim not in dims]
    return value.moved([places[axis] for axis in value.axes], shape)


def _stored(value: Operand) -> torch.dtype:
    return value.stored if isinstance(value, Value) else value.dtype


def extreme(dtype: torch.dtype, largest: bool) -> float:
    """What is at least as large (or as small) as every element."""
    if dtype == torch.bool:
        return largest
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return info.max if largest else info.min
    return float("inf") if largest else float("-inf")


def _divided(nests: Nests, total: Value, count: Size) -> Value:
    """Sums divided by how many they are of."""
    index = nests.sizes.index(count)
    kind = element(total.stored)

    def divide(s: Scalars, given: list[SSAValue]) -> SSAValue:
        if isinstance(index, int):
            return s.put(arith.DivfOp(given[0], s.constant(index, kind)))
        number = s.put(arith.IndexCastOp(index, builtin.i64))
        return s.put(arith.DivfOp(given[0], s.put(arith.SIToFPOp(number, kind))))

    return nests.elementwise([total], total.shape, total.dtype, divide, total.stored)


def dims_of(given: Any, rank: int) -> list[int]:
    """Dimensions as operators take them: one, several, or none for all of them."""
    if given is None or given == []:
        return list(range(rank))
    dims: list[int] = [given] if isinstance(given, int) else list(given)
    return [dim % rank for dim in dims] if rank else []
