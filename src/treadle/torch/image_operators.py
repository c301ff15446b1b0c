"""Operators on images, written: convolutions and their gradients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from treadle.torch import convolutions, reductions
from treadle.torch.convolutions import Window
from treadle.torch.operators import OPERATORS, argument, may_stay_wide, result_dtype, result_shape
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import size_of
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Value

if TYPE_CHECKING:
    from treadle.ir.core import SSAValue
    from treadle.torch.nests import Nests
    from treadle.torch.writer import Context

__all__ = ["OPERATORS"]


def _window(node: fx.Node, first: int, rank: int) -> Window:
    """The window that a convolution's arguments from place `first` on say: stride, padding, dilation, (transposed, output padding,) groups."""
    numbers = [_each(node.args[first + place], rank) for place in range(3)]
    return Window(*numbers, groups=int(node.args[first + 5]))


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
