"""Convolutions, their transposes and gradients, as loop nests: one operand, the image, is read at windows.

Three products share one relation of places, `image = pixel * stride + window * dilation - padding`: an image and filters make pixels (a
convolution), pixels and filters make an image (a transposed one, and the gradient of the image), an image and pixels make filters (their
gradient). Dimensions are batch, group, channels of the group, places; groups of one channel and windows of one place cost no loop.
"""

from collections.abc import Mapping, Sequence

import torch

from treadle.ir.core import AffineExpr, Block, SSAValue
from treadle.ir.dialects import arith, linalg, tensor
from treadle.ir.emitter import INDEX
from treadle.records import Record
from treadle.torch import views
from treadle.torch.elements import accumulator
from treadle.torch.nests import Nests, element
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size, same
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Uniform, Value, loops_of

Place = Sequence[tuple[str, int]]
"""Where a dimension is read: loops by name, with factors."""


class Window(Record):
    """How pixels see an image: a number each for every dimension of places, and how many groups the channels are in. `channels_last`: so
    the filters lie in memory; sums are in the order in which these lie.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels_last: bool = False

    @property
    def rank(self) -> int:
        """How many dimensions places have."""
        return len(self.stride)

    @property
    def image(self) -> list[Place]:
        """Where an image with its padding is read."""
        places = [[(f"o{i}", self.stride[i]), (f"w{i}", self.dilation[i])] for i in range(self.rank)]
        return [*plain("ngc"), *places]

    @property
    def pixels(self) -> list[Place]:
        """Where pixels are read."""
        return [*plain("ngf"), *plain([f"o{i}" for i in range(self.rank)])]

    @property
    def filters(self) -> list[Place]:
        """Where filters are read."""
        return [*plain("gfc"), *plain([f"w{i}" for i in range(self.rank)])]


def plain(names: Sequence[str]) -> list[Place]:
    """Dimensions that are read at one loop each."""
    return [[(name, 1)] for name in names]


def convolve(nests: Nests, image: Operand, filters: Operand, window: Window, shape: Sequence[Size], dtype: torch.dtype) -> Operand:
    """The pixels, of `shape` (batch, filters, places), accumulated in f32 for narrow floats and seen as `dtype`."""
    padded = views.pad(nests, _grouped(nests, nests.rounded(image), 1, window.groups), [(0, 0)] * 3 + [(p, p) for p in window.padding], 0)
    weights = _grouped(nests, filters, 0, window.groups)
    sizes = _sizes(window, image.shape, filters.shape, shape)
    made = _multiplied(nests, [(padded, window.image), (weights, window.filters)], window.pixels, sizes, dtype)
    return views.reshape(nests, made, shape)


def spread(nests: Nests, pixels: Operand, filters: Operand, window: Window, shape: Sequence[Size], dtype: torch.dtype) -> Operand:
    """The image of `shape` (batch, channels, places) to which each pixel adds its window: a convolution of the pixels, `stride` apart
    among zeros, with the filters backwards. Raises Unsupported for a padding beyond the window.
    """
    reach = [d * (int(k) - 1) for d, k in zip(window.dilation, _numbers(filters.shape[2:]), strict=True)]
    before = [r - p for r, p in zip(reach, window.padding, strict=True)]
    if min(before) < 0:
        raise Unsupported("a padding beyond the window")
    given = _grouped(nests, nests.rounded(pixels), 1, window.groups)
    extents = [size + r for size, r in zip(shape[2:], reach, strict=True)]
    if all(stride == 1 for stride in window.stride):
        amounts = [(b, _number(e - p - b)) for b, e, p in zip(before, extents, pixels.shape[2:], strict=True)]
        placed: Operand = views.pad(nests, given, [(0, 0)] * 3 + amounts, 0)
    else:
        placed = views.among_zeros(nests, given, (*given.shape[:3], *extents), [0, 0, 0, *before], [1, 1, 1, *window.stride])
    backwards = _backwards(nests, _grouped(nests, nests.rounded(filters), 0, window.groups))
    apart = Window((1,) * window.rank, (0,) * window.rank, window.dilation, window.groups, channels_last=True)
    swapped = [[("f", 1) if name == ("c", 1) else ("c", 1) if name == ("f", 1) else name for name in place] for place in apart.filters]
    sizes = _sizes(apart, pixels.shape, (pixels.shape[1], shape[1], *filters.shape[2:]), shape)
    sizes.update(f=_divided(shape[1], window.groups), c=_divided(pixels.shape[1], window.groups))
    made = _multiplied(nests, [(placed, apart.image), (backwards, swapped)], apart.pixels, sizes, dtype)
    return views.reshape(nests, made, shape)


def correlate(nests: Nests, image: Operand, pixels: Operand, window: Window, shape: Sequence[Size], dtype: torch.dtype) -> Operand:
    """The filters of `shape` (filters, channels of a group, places): for each place of the window the sum over all pixels."""
    padded = views.pad(nests, _grouped(nests, nests.rounded(image), 1, window.groups), [(0, 0)] * 3 + [(p, p) for p in window.padding], 0)
    given = _grouped(nests, pixels, 1, window.groups)
    sizes = _sizes(window, image.shape, shape, pixels.shape)
    made = _multiplied(nests, [(padded, window.image), (given, window.pixels)], window.filters, sizes, dtype)
    return views.reshape(nests, made, shape)


def _backwards(nests: Nests, filters: Operand) -> Operand:
    """Filters in groups with their places backwards, stored with those of a group side by side: what is summed lies together."""
    order = [0, *range(2, len(filters.shape)), 1]
    turned = flipped(nests, views.permute(filters, order), range(2, len(order) - 1))
    return views.permute(turned, [order.index(dim) for dim in range(len(order))])


def flipped(nests: Nests, value: Operand, dims: Sequence[int]) -> Operand:
    """A value with dimensions backwards."""
    if isinstance(value, Uniform) or all(value.shape[dim] == 1 for dim in dims):
        return value
    stored = nests.row_major(value)
    loops = stored.loops
    ends = {dim: nests.emit.value(nests.sizes.index(value.shape[dim] - 1)) for dim in dims}

    def read(s: Scalars, _: list[SSAValue]) -> SSAValue:
        at: list[SSAValue] = [s.put(linalg.ops.IndexOp(place)) for place in range(len(loops))]
        for place, dim in enumerate(loops):
            if dim in ends:
                at[place] = s.put(arith.SubiOp(ends[dim], at[place], INDEX))
        return s.put(tensor.ExtractOp(stored.tensor, at, element(stored.stored)))

    return nests.elementwise([], value.shape, value.dtype, read, stored.stored)


def _sizes(window: Window, image: Sequence[Size], filters: Sequence[Size], pixels: Sequence[Size]) -> dict[str, Size]:
    """The sizes of the loops by name."""
    places = {f"o{i}": pixels[2 + i] for i in range(window.rank)} | {f"w{i}": filters[2 + i] for i in range(window.rank)}
    channels: dict[str, Size] = {"c": filters[1]}
    summed = places | channels if window.channels_last else channels | places
    return {"n": image[0], "g": window.groups, "f": _divided(filters[0], window.groups), **summed}


def _divided(size: Size, count: int) -> Size:
    return size if count == 1 else _number(size) // count


def _numbers(sizes: Sequence[Size]) -> list[int]:
    return [_number(size) for size in sizes]


def _number(size: Size) -> int:
    if not isinstance(size, int):
        if not (found := size.simplify()).is_Integer:
            raise Unsupported(f"{size}, which is to be a number")
        return int(found)
    return size


def _grouped(nests: Nests, value: Operand, dim: int, groups: int) -> Operand:
    """A value with dimension `dim` taken apart into groups and what they hold."""
    shape = value.shape
    if groups == 1:
        return views.reshape(nests, value, (*shape[:dim], 1, *shape[dim:]))
    return views.reshape(nests, value, (*shape[:dim], groups, _divided(shape[dim], groups), *shape[dim + 1 :]))


def _multiplied(
    nests: Nests, reads: Sequence[tuple[Operand, Sequence[Place]]], result: Sequence[Place], sizes: Mapping[str, Size], dtype: torch.dtype
) -> Value:
    """The sum of the products of two operands over the loops that the result lacks."""
    total = accumulator(dtype)
    kept = [place[0][0] for place in result]
    shape = tuple(sizes[name] for name in kept)
    loops = [name for name in (*kept, *(name for name in sizes if name not in kept)) if sizes[name] != 1]
    read = [read_at(nests, value, places, loops, sizes) for value, places in reads]
    if all(name in kept for name in loops):
        return _single_terms(nests, read, kept, shape, loops, sizes, dtype)
    body = Block(arg_types=[*(element(value.stored) for value, _ in read), element(total)])
    scalars = Scalars(body)
    a, b = (scalars.cast(arg, value.stored, total) for arg, (value, _) in zip(body.args, read, strict=False))
    body.add_op(linalg.ops.YieldOp(scalars.add(body.args[2], scalars.multiply(a, b))))
    inputs = [(value.tensor, [sum_of(places[axis], loops) for axis in value.axes]) for value, places in read]
    start = nests.filled(0, [sizes[name] for name in kept if name in loops], total)
    kinds = ["parallel" if name in kept else "reduction" for name in loops]
    made = nests.generic(inputs, (start, [loops.index(name) for name in kept if name in loops]), kinds, body)
    return Value(made, loops_of(shape), shape, dtype, total)


def read_at(
    nests: Nests, value: Operand, places: Sequence[Place], loops: Sequence[str], sizes: Mapping[str, Size]
) -> tuple[Value, list[Place]]:
    """An operand with each dimension stored that loops read, as far as a single one reads it, and no other; and where that is, by those
    loops alone.
    """
    value = nests.rounded(value)
    read: list[Place] = [[(name, factor) for name, factor in place if name in loops] for place in places]
    if isinstance(value, Uniform) or any(terms and dim not in value.axes for dim, terms in enumerate(read)):
        value = nests.row_major(value)
    for dim, terms in enumerate(read):
        length = 1 if not terms else sizes[terms[0][0]] if len(terms) == 1 and terms[0][1] == 1 else value.shape[dim]
        if dim in value.axes and not same(length, value.shape[dim]):
            part = views.piece(nests, value, dim, 0, length)
            value = part if isinstance(part, Value) else nests.row_major(part)
    return value, read


def sum_of(place: Place, loops: Sequence[str]) -> AffineExpr:
    """Where an axis is read, as an expression over the loops."""
    loop_of = [AffineExpr.dimension(loops.index(name)) for name, _ in place]
    terms = [loop if factor == 1 else loop * factor for loop, (_, factor) in zip(loop_of, place, strict=True)]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _single_terms(
    nests: Nests,
    read: Sequence[tuple[Value, Sequence[Place]]],
    kept: Sequence[str],
    shape: tuple[Size, ...],
    loops: Sequence[str],
    sizes: Mapping[str, Size],
    dtype: torch.dtype,
) -> Value:
    """A product that sums one term an element: each dimension is read along one loop at most."""
    total = accumulator(dtype)
    placed: list[Value] = []
    for value, places in read:
        given: Operand = value
        for dim, place in enumerate(places):
            if place and not (place[0][1] == 1 and same(given.shape[dim], sizes[place[0][0]])):
                given = views.piece(nests, given, dim, 0, sizes[place[0][0]], place[0][1])
        stored = nests.row_major(given) if isinstance(given, Uniform) else given
        axes = tuple(kept.index(places[axis][0][0]) for axis in stored.axes)
        placed.append(stored.moved(axes, [size if dim in axes else 1 for dim, size in enumerate(shape)]))

    def multiply(s: Scalars, elements: list[SSAValue]) -> SSAValue:
        a, b = (s.cast(e, value.stored, total) for e, value in zip(elements, placed, strict=True))
        return s.multiply(a, b)

    return nests.elementwise(placed, shape, dtype, multiply, total)
