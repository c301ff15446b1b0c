"""pad-channels: convolutions that are marked read copies of image and filters with zeros behind the channels.

Level: tensor, after set-channel-padding. Reads: `treadle.padded_channels` of convolutions. Writes: for each operand a generic that copies
it and is zero behind its channels, in front of the zeros around an image; the contraction over the channels of the copies. Descriptors
reach both, while threads would bring an operand as it is to shared memory element by element, each element once for every place of the
window. Leaves alone: what is not marked, and what is no such convolution or has as many channels (the mark is taken off).
"""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.convolution import padded_source
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import view_of
from treadle.analysis.operation_marks import ORIGIN, PADDED_CHANNELS
from treadle.analysis.padded_channels import channels_of
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.emitter import Emitter
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, clone_body, elementwise, generics, replace, scalar_body

NAME = "pad-channels"


def with_zeros(value: SSAValue, axis: int, padded: int, anchor: Operation) -> SSAValue:
    """A copy of a tensor, in front of `anchor`, with `padded` places along an axis of known size, zeros behind those of the tensor."""
    emit, kind = TensorEmitter(anchor), tensor_type(value).element_type
    sizes, size = emit.sizes(value), tensor_type(value).get_shape()[axis]
    out = emit.empty([*sizes[:axis], padded, *sizes[axis + 1 :]], kind)
    zero = builtin.FloatAttr(0.0, kind) if isinstance(kind, builtin.AnyFloat) else builtin.IntegerAttr(0, 8 * element_bytes(kind))

    def number(inside: Emitter, value: int) -> SSAValue:
        return inside.insert(arith.ConstantOp(builtin.IntegerAttr.from_index_int_value(value)))

    def element(inside: Emitter, _: Sequence[SSAValue]) -> list[SSAValue]:
        places: list[SSAValue] = [inside.insert(linalg.ops.IndexOp(d)) for d in range(len(sizes))]
        within = inside.insert(arith.CmpiOp(places[axis], number(inside, size), "ult"))
        places[axis] = inside.insert(arith.MinUIOp(places[axis], number(inside, size - 1)))
        found = inside.insert(tensor.ExtractOp(value, places, kind))
        return [inside.insert(arith.SelectOp(within, found, inside.insert(arith.ConstantOp(zero))))]

    made = elementwise([], [out], scalar_body([kind], element), anchor)
    made.attributes.clear()
    made.attributes[ORIGIN] = builtin.StringAttr("padded_channels")
    emit.insert(made)
    return made.results[0]


def _padded_operand(value: SSAValue, axis: int, padded: int, anchor: Operation) -> SSAValue:
    """An operand with zeros behind its channels; those around an image stay a generic that is computed where it is read."""
    around, owner = padded_source(value), value.owner
    if around is None or not isinstance(owner, linalg.ops.GenericOp):
        return with_zeros(value, axis, padded, anchor)
    source, copy = around[0], with_zeros(around[0], axis, padded, anchor)
    emit, view = TensorEmitter(anchor), view_of(owner)
    sizes = emit.sizes(value)
    out = emit.empty([*sizes[:axis], padded, *sizes[axis + 1 :]], tensor_type(value).element_type)
    made = build_generic([], [out], view.output_maps, view.iterators, clone_body(view), owner)
    for inner in made.walk():
        if isinstance(inner, tensor.ExtractOp) and inner.tensor is source:
            inner.operands[0] = copy
    emit.insert(made)
    return made.results[0]


@register_pass
@dataclass(frozen=True)
class PadChannelsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Rewrite one function."""
        for op in generics(function):
            mark, found = op.attributes.pop(PADDED_CHANNELS, None), channels_of(op)
            if not isinstance(mark, builtin.IntegerAttr) or found is None or mark.value.data <= found.size:
                continue
            view = view_of(op)
            inputs = list(view.inputs)
            for number, axis in found.axes.items():
                inputs[number] = _padded_operand(inputs[number], axis, mark.value.data, op)
            maps = (*view.input_maps, *view.output_maps)
            replace(op, build_generic(inputs, view.outputs, maps, view.iterators, clone_body(view), op))
