"""pad-channels: convolutions whose channels are no whole 16 bytes read copies of image and filters with zeros behind the channels.

Level: tensor, after fold-data-movement. Reads: contractions with an image (`analysis/convolution.py`) whose last axis is reduced channels,
the machine's rates. Writes: for each operand a generic that copies it and is zero behind its channels, in front of the zeros around an
image; the contraction over the channels of the copies. Descriptors reach both, while threads would bring an operand as it is to shared
memory element by element, each element once for every place of the window.
Leaves alone: machines without descriptor copies, and convolutions that `plan/channel_padding.py` has faster as they are.
"""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from treadle.analysis.convolution import padded_source
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, StructuredOp, classify, loop_sizes, plain_dims, total_size, view_of
from treadle.analysis.operation_marks import ORIGIN, origin_of
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.emitter import Emitter
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.channel_padding import PaddedConvolution
from treadle.plan.tile_config import UNKNOWN_EXTENT
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, clone_body, elementwise, generics, replace, scalar_body

NAME = "pad-channels"


@dataclass(frozen=True, slots=True)
class _Channels:
    """The reduced loop of a convolution's channels, how many there are, and the axis along which each operand has them, by its number."""

    size: int
    axes: dict[int, int]


def _channels(view: StructuredOp, kind: Contraction, align: int) -> _Channels | None:
    """The channels that are an image's last axis and no whole `align` bytes; None where there are none, or the filter's rows are odd."""
    filters = kind.rhs if kind.image == kind.lhs else kind.lhs
    (*_, dim), along = (plain_dims(view.input_maps[number]) for number in (kind.image, filters))
    size = None if dim is None else loop_sizes(view)[dim]
    if dim not in kind.k or dim not in along or size is None or size * _bytes(view.inputs[kind.image]) % align == 0:
        return None
    row = tensor_type(view.inputs[filters]).get_shape()[-1]
    if along[-1] != dim and (row == DYNAMIC_INDEX or row * _bytes(view.inputs[filters]) % align):
        return None
    return _Channels(size, {kind.image: tensor_type(view.inputs[kind.image]).get_num_dims() - 1, filters: along.index(dim)})


def _bytes(value: SSAValue) -> int:
    return element_bytes(tensor_type(value).element_type)


def _elements(value: SSAValue) -> int:
    return prod(UNKNOWN_EXTENT if size == DYNAMIC_INDEX else size for size in tensor_type(value).get_shape())


def _sizes(view: StructuredOp, kind: Contraction, channels: int, padded: int) -> PaddedConvolution:
    m, n, k = (total_size(loop_sizes(view), dims) or UNKNOWN_EXTENT for dims in (kind.m, kind.n, kind.k))
    left, right = (_elements(view.inputs[number]) for number in (kind.lhs, kind.rhs))
    return PaddedConvolution(m, n, k, left, right, channels, padded, _bytes(view.inputs[kind.lhs]))


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
    """`target`: the machine whose rates decide."""

    name: ClassVar[str] = NAME
    target: str

    def run(self, function: func.FuncOp) -> None:
        """Decide and rewrite one function."""
        spec = target_spec(self.target)
        if spec.bulk_tensor is None:
            return
        for op in generics(function):
            kind = classify(op)
            if isinstance(kind, Contraction) and kind.image >= 0 and not kind.scales:
                self._pad(op, kind, spec, spec.bulk_tensor.pitch_align_bytes)

    def _pad(self, op: linalg.ops.GenericOp, kind: Contraction, spec: TargetSpec, align: int) -> None:
        view, (left, right) = view_of(op), (kind.lhs, kind.rhs)
        types = [str(tensor_type(value).element_type) for value in (view.inputs[left], view.inputs[right], view.outputs[0])]
        found = _channels(view, kind, align)
        if found is None or types[0] != types[1] or not _keeps_channels(view.inputs[kind.image]):
            return
        step = align // _bytes(view.inputs[left])
        padded = -(-found.size // step) * step
        sizes = _sizes(view, kind, found.size, padded)
        before, after = sizes.seconds_as_is(spec), sizes.seconds_padded(spec, types[0], types[2])
        times = f"{1e6 * after:.0f} us are modelled with {padded} channels, {1e6 * before:.0f} us with {found.size}"
        if after >= before:
            emit("refusal", NAME, origin_of(op), f"no zeros behind the channels: {times}", location_of(op))
            return
        inputs = list(view.inputs)
        for number, axis in found.axes.items():
            inputs[number] = _padded_operand(inputs[number], axis, padded, op)
        made = build_generic(inputs, view.outputs, (*view.input_maps, *view.output_maps), view.iterators, clone_body(view), op)
        replace(op, made)
        emit("decision", NAME, origin_of(made), f"copies of both operands with zeros behind the channels: {times}", location_of(made))


def _keeps_channels(image: SSAValue) -> bool:
    """Whether there are no zeros around an image along its channels, whose place would have to move."""
    around = padded_source(image)
    shape = tensor_type(image).get_shape()
    return around is None or (around[1][-1] == 0 and tensor_type(around[0]).get_shape()[-1] == shape[-1])
