"""Operators on images, written: convolutions and their gradients, pooling, borders, places backwards."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from treadle.torch import convolutions, reductions, views
from treadle.torch.convolutions import Window
from treadle.torch.memory import channels_last_order, memory_order
from treadle.torch.operators import OPERATORS, argument, may_stay_wide, result_dtype, result_shape
from treadle.torch.pooling import Pool, mean_pool, pool
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import size_of
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Value

if TYPE_CHECKING:
    from treadle.ir.core import SSAValue
    from treadle.torch.nests import Nests
    from treadle.torch.writer import Context


def _window(node: fx.Node, first: int, rank: int) -> Window:
    """The window that the arguments from place `first` on say: stride, padding, dilation, whether transposed, padding of that, groups."""
    numbers = [_each(node.args[first + place], rank) for place in range(3)]
    filters = node.args[2 if first == 4 else 1].meta["val"]
    return Window(*numbers, groups=int(node.args[first + 5]), channels_last=memory_order(filters) == channels_last_order(rank + 2))


def _each(given: Any, rank: int) -> tuple[int, ...]:
    """A number for each dimension of places. Raises Unsupported for sizes."""
    if not all(isinstance(number, int) for number in given):
        raise Unsupported("a window that is a size")
    return tuple(given) if len(given) == rank else tuple(given) * rank


@OPERATORS("aten::convolution")
def write_convolution(context: "Context", node: fx.Node) -> Operand:
    """A convolution or a transposed one, with a bias for each filter."""
    image, filters = (context.value(given) for given in node.args[:2])
    shape, dtype = result_shape(node), result_dtype(node)
    compute = convolutions.spread if node.args[6] else convolutions.convolve
    made = compute(context.nests, image, filters, _window(node, 3, len(shape) - 2), shape, dtype)
    if node.args[2] is not None:
        made = _biased(context.nests, made, context.value(node.args[2]))
    return made if isinstance(made, Value) and may_stay_wide(made) else context.nests.cast(made, dtype)


def _biased(nests: "Nests", value: Operand, bias: Operand) -> Value:
    """A number for each channel added."""
    column = bias.moved([1] if bias.axes else [], [1, bias.shape[0], *([1] * (len(value.shape) - 2))]) if isinstance(bias, Value) else bias
    stored = value.stored if isinstance(value, Value) else value.dtype

    def add(s: Scalars, given: "list[SSAValue]") -> "SSAValue":
        source = bias.stored if isinstance(bias, Value) else bias.dtype
        return s.add(given[0], s.cast(given[1], source, stored))

    return nests.elementwise([value, column], value.shape, value.dtype, add, stored)


@OPERATORS("aten::convolution_backward")
def write_convolution_gradients(context: "Context", node: fx.Node) -> "Sequence[Operand | None]":
    """The gradients of the image, the filters and the bias, those of them that are asked for."""
    nests = context.nests
    gradient, image, filters = (context.value(given) for given in node.args[:3])
    window, is_transposed, wanted = _window(node, 4, len(image.shape) - 2), bool(node.args[7]), node.args[10]
    shapes = [None if value is None else tuple(size_of(size) for size in value.shape) for value in node.meta["val"]]
    dtype = gradient.dtype
    made: list[Operand | None] = [None, None, None]
    if wanted[0] and shapes[0] is not None:
        compute = convolutions.convolve if is_transposed else convolutions.spread
        made[0] = compute(nests, gradient, filters, window, shapes[0], dtype)
    if wanted[1] and shapes[1] is not None:
        sides = (gradient, image) if is_transposed else (image, gradient)
        made[1] = convolutions.correlate(nests, *sides, window, shapes[1], dtype)
    if wanted[2]:
        made[2] = reductions.reduce(nests, "aten::sum", gradient, [0, *range(2, len(gradient.shape))], keepdim=False, dtype=dtype)
    return [value if value is None or (isinstance(value, Value) and may_stay_wide(value)) else nests.cast(value, dtype) for value in made]


@OPERATORS("aten::constant_pad_nd")
def write_border(context: "Context", node: fx.Node) -> Operand:
    """A number around a tensor; the amounts are given from the last dimension on."""
    value, given = context.value(node.args[0]), list(node.args[1])
    number = argument(node, 2, "value", 0)
    if not all(isinstance(amount, int) for amount in given) or not isinstance(number, int | float):
        raise Unsupported("a border that is a size")
    pairs = [(given[place], given[place + 1]) for place in range(0, len(given), 2)]
    amounts = [(0, 0)] * (len(value.shape) - len(pairs)) + pairs[::-1]
    return views.pad(context.nests, context.nests.rounded(value), amounts, number)


@OPERATORS("aten::flip")
def write_flip(context: "Context", node: fx.Node) -> Operand:
    """Dimensions backwards."""
    value = context.value(node.args[0])
    return convolutions.flipped(context.nests, value, [dim % len(value.shape) for dim in node.args[1]])


def _pool(node: fx.Node, rank: int, dilated: bool) -> Pool:
    kernel = _each(node.args[1], rank)
    stride = _each(argument(node, 2, "stride") or kernel, rank)
    dilation = _each(argument(node, 4, "dilation", [1]), rank) if dilated else (1,) * rank
    return Pool(kernel, stride, _each(argument(node, 3, "padding", [0]), rank), dilation)


@OPERATORS("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices")
def write_largest_of_windows(context: "Context", node: fx.Node) -> "Sequence[Operand | None]":
    """The largest element of each window; where it stands is not written."""
    value, result = context.nests.rounded(context.value(node.args[0])), node.meta["val"][0]
    rank = 3 if "3d" in str(node.target) else 2
    shape = tuple(size_of(size) for size in result.shape)
    if argument(node, 5, "ceil_mode", False) and not all(isinstance(size, int) for size in (*shape, *value.shape)[-rank:]):
        raise Unsupported("windows that reach beyond an image of unknown size")
    start = reductions.extreme(result.dtype, largest=False)
    window = _pool(node, rank, dilated=True)
    return [pool(context.nests, value, window, shape, start, result.dtype, lambda s, given: s.largest(given[1], given[0])), None]


@OPERATORS("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d")
def write_mean_of_windows(context: "Context", node: fx.Node) -> Operand:
    """The mean of each window."""
    rank = int(str(node.target).split("avg_pool")[1][0])
    window, shape = _pool(node, rank, dilated=False), result_shape(node)
    ceil, counted = argument(node, 4, "ceil_mode", False), argument(node, 5, "count_include_pad", True)
    if ceil or (not counted and any(window.padding)):
        raise Unsupported("windows that count only what lies in the image")
    return mean_pool(context.nests, context.value(node.args[0]), window, shape, result_dtype(node), argument(node, 6, "divisor_override"))
