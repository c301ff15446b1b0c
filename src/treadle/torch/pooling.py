"""Reductions over windows of an image: the largest element, or the mean."""

from collections.abc import Sequence

import torch

from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import arith, linalg
from treadle.records import Record
from treadle.torch import views
from treadle.torch.convolutions import Place, plain, read_at, sum_of
from treadle.torch.nests import Compute, Nests, element
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Value, loops_of


class Pool(Record):
    """A number for each of the last dimensions: the window's places, steps, what is put around the image, and how far places are apart."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def pool(nests: Nests, value: Operand, window: Pool, shape: Sequence[Size], start: float, dtype: torch.dtype, fold: Compute) -> Operand:
    """For each place of the result `fold` over its window, from `start` on, which is also what lies around the image, in `dtype`."""
    rank, lead = len(window.kernel), len(shape) - len(window.kernel)
    padded = views.pad(nests, value, [(0, 0)] * lead + _amounts(value.shape[lead:], window, shape[lead:]), start)
    outer, inner = [f"d{dim}" for dim in range(len(shape))], [f"w{i}" for i in range(rank)]
    sizes = dict(zip([*outer, *inner], [*shape, *window.kernel], strict=True))
    steps: list[Place] = [[(outer[lead + i], window.stride[i]), (inner[i], window.dilation[i])] for i in range(rank)]
    folded = [name for name in inner if sizes[name] != 1]
    if not folded:
        for i in range(rank):
            padded = views.piece(nests, padded, lead + i, 0, shape[lead + i], window.stride[i])
        return nests.cast(padded, dtype)
    loops = [*(name for name in outer if sizes[name] != 1), *folded]
    read, places = read_at(nests, padded, [*plain(outer[:lead]), *steps], loops, sizes)
    body = Block(arg_types=[element(read.stored), element(dtype), element(dtype)])
    scalars = Scalars(body)
    body.add_op(linalg.ops.YieldOp(fold(scalars, [scalars.cast(body.args[0], read.stored, dtype), body.args[2]])))
    extents = nests.empty([sizes[name] for name in folded], dtype)  # read by no one: says how large the window is
    inputs = [(read.tensor, [sum_of(places[axis], loops) for axis in read.axes]), (extents, [loops.index(name) for name in folded])]
    kept = [loops.index(name) for name in outer if name in loops]
    kinds = ["reduction" if name in folded else "parallel" for name in loops]
    made = nests.generic(inputs, (nests.filled(start, [shape[dim] for dim in loops_of(shape)], dtype), kept), kinds, body)
    return Value(made, loops_of(shape), tuple(shape), dtype, dtype)


def _amounts(image: Sequence[Size], window: Pool, result: Sequence[Size]) -> list[tuple[int, int]]:
    """What is put before and behind each dimension: the last window may reach farther than the padding says."""
    found: list[tuple[int, int]] = []
    for i, (size, places) in enumerate(zip(image, result, strict=True)):
        low = high = window.padding[i]
        if isinstance(size, int) and isinstance(places, int):
            high = max(high, (places - 1) * window.stride[i] + window.dilation[i] * (window.kernel[i] - 1) + 1 - size - low)
        found.append((low, high))
    return found


def mean_pool(nests: Nests, value: Operand, window: Pool, shape: Sequence[Size], dtype: torch.dtype, divisor: int | None) -> Operand:
    """The mean of each window, zeros around the image counted; sums are divided by `divisor` where it is given. Narrow floats in f32."""
    total = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if not dtype.is_floating_point:
        raise Unsupported("means of integers")
    count = divisor
    if count is None:
        count = 1
        for size in window.kernel:
            count *= size
    summed = pool(nests, value, window, shape, 0, total, lambda s, given: s.add(given[1], given[0]))

    def divide(s: Scalars, given: list[SSAValue]) -> SSAValue:
        return s.put(arith.DivfOp(given[0], s.like(given[0], count)))

    return nests.cast(nests.elementwise([summed], shape, total, divide), dtype)
