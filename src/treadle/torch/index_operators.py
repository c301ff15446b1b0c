"""Operators with indices that are data, written: gathers, scatters, scans and the places of extrema."""

from typing import TYPE_CHECKING

from torch import fx

from treadle.torch import gathers, reductions, scatters
from treadle.torch.operators import OPERATORS, argument, result_dtype, result_shape
from treadle.torch.values import Operand

if TYPE_CHECKING:
    from treadle.torch.writer import Context


@OPERATORS("aten::embedding")
def write_embedding(context: "Context", node: fx.Node) -> Operand:
    """Rows of a table."""
    table, index = (context.value(given) for given in node.args[:2])
    return gathers.take(context.nests, table, 0, index, result_shape(node))


@OPERATORS("aten::index_select")
def write_index_select(context: "Context", node: fx.Node) -> Operand:
    """Elements of a dimension by their indices."""
    value, index = context.value(node.args[0]), context.value(node.args[2])
    return gathers.take(context.nests, value, node.args[1] % len(value.shape), index, result_shape(node))


@OPERATORS("aten::gather")
def write_gather(context: "Context", node: fx.Node) -> Operand:
    """The element whose index is given, for each element of the result."""
    value, index = context.value(node.args[0]), context.value(node.args[2])
    return gathers.gather_along(context.nests, value, node.args[1] % len(value.shape), index, result_shape(node))


@OPERATORS("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def write_index(context: "Context", node: fx.Node) -> Operand:
    """Elements by index tensors."""
    indices = [None if given is None else context.value(given) for given in node.args[1]]
    return gathers.index_tensors(context.nests, context.value(node.args[0]), indices, result_shape(node))


@OPERATORS("aten::index_put", "aten::_unsafe_index_put")
def write_index_put(context: "Context", node: fx.Node) -> Operand:
    """Elements written by index tensors."""
    target, values = context.value(node.args[0]), context.value(node.args[2])
    indices = [None if given is None else context.value(given) for given in node.args[1]]
    return scatters.put(context.nests, target, indices, values, accumulate=bool(argument(node, 3, "accumulate", False)))


@OPERATORS("aten::cumsum")
def write_cumulative_sum(context: "Context", node: fx.Node) -> Operand:
    """Sums up to each element of a dimension."""
    value = context.value(node.args[0])
    if not value.shape:
        return context.nests.cast(value, result_dtype(node))
    return scatters.cumulative_sum(context.nests, value, node.args[1] % len(value.shape), result_dtype(node))


@OPERATORS("aten::argmax", "aten::argmin")
def write_place_of_extremum(context: "Context", node: fx.Node) -> Operand:
    """The first place of the largest or smallest element of a dimension."""
    value, dim = context.value(node.args[0]), argument(node, 1, "dim")
    return reductions.place_of_extremum(context.nests, value, dim, bool(argument(node, 2, "keepdim", False)), "max" in str(node.target))
