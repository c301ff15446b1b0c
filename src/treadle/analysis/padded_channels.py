"""Where a convolution's operands have its channels, for copies with zeros behind them."""

from treadle.analysis.convolution import padded_source
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, classify, loop_sizes, plain_dims, view_of
from treadle.ir.core import Operation, SSAValue
from treadle.ir.tensors import tensor_type
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Channels:
    """How many channels a convolution has, and the axis along which each operand has them, by its number. `filters`: that operand."""

    size: int
    axes: dict[int, int]
    filters: int
    filters_end_in_channels: bool


def value_bytes(value: SSAValue) -> int:
    """Bytes of an element of a tensor."""
    return element_bytes(tensor_type(value).element_type)


def channels_of(op: Operation) -> Channels | None:
    """The channels of a convolution of two operands of one type, whose image has them last, and no zeros around it along them; None for
    other operations, and where only the runtime knows how many there are.
    """
    kind = classify(op)
    if not isinstance(kind, Contraction) or kind.image < 0 or kind.scales:
        return None
    view, filters = view_of(op), kind.rhs if kind.image == kind.lhs else kind.lhs
    image = view.inputs[kind.image]
    if tensor_type(image).element_type != tensor_type(view.inputs[filters]).element_type or not _keeps_channels(image):
        return None
    (*_, dim), along = (plain_dims(view.input_maps[number]) for number in (kind.image, filters))
    size = None if dim is None else loop_sizes(view)[dim]
    if dim not in kind.k or dim not in along or size is None:
        return None
    axes = {kind.image: tensor_type(image).get_num_dims() - 1, filters: along.index(dim)}
    return Channels(size, axes, filters, along[-1] == dim)


def _keeps_channels(image: SSAValue) -> bool:
    """Whether there are no zeros around an image along its channels, whose place would have to move."""
    around, shape = padded_source(image), tensor_type(image).get_shape()
    return around is None or (around[1][-1] == 0 and tensor_type(around[0]).get_shape()[-1] == shape[-1])
