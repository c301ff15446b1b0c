"""set-channel-padding: which convolutions read copies of their operands with zeros behind the channels.

Level: tensor, after fold-data-movement. Reads: contractions with an image (`analysis/convolution.py`) whose last axis is reduced channels
that are no whole 16 bytes, the machine's rates. Writes: `treadle.padded_channels`, how many channels the copies have, where
`plan/channel_padding.py` has that faster; a remark tells of each other one. 0, which a user may write, asks for none.
Leaves alone: machines without descriptor copies, for threads load at any pitch, and operations that have the attribute.
"""

from math import prod
from typing import ClassVar

from treadle.analysis.indexing import Contraction, StructuredOp, classify, loop_sizes, total_size, view_of
from treadle.analysis.operation_marks import PADDED_CHANNELS, origin_of
from treadle.analysis.padded_channels import channels_of, value_bytes
from treadle.ir.core import DYNAMIC_INDEX, SSAValue
from treadle.ir.dialects import builtin, func, linalg
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import tensor_type
from treadle.machine import TargetSpec, target_spec
from treadle.plan.channel_padding import PaddedConvolution
from treadle.plan.tile_config import UNKNOWN_EXTENT
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics

NAME = "set-channel-padding"


def _elements(value: SSAValue) -> int:
    return prod(UNKNOWN_EXTENT if size == DYNAMIC_INDEX else size for size in tensor_type(value).get_shape())


def _sizes(view: StructuredOp, kind: Contraction, channels: int, padded: int) -> PaddedConvolution:
    found = loop_sizes(view)
    groups, m, n, k = (total_size(found, dims) or UNKNOWN_EXTENT for dims in (kind.batch, kind.m, kind.n, kind.k))
    pixels, filters = (m, n) if kind.image == kind.lhs else (n, m)
    operands = sum(_elements(view.inputs[number]) for number in (kind.lhs, kind.rhs))
    return PaddedConvolution(groups, pixels, filters, k, operands, channels, padded, value_bytes(view.inputs[kind.lhs]))


@register_pass
@dataclass(frozen=True)
class SetChannelPaddingPass(FunctionPass):
    """`target`: the machine whose rates decide."""

    name: ClassVar[str] = NAME
    target: str

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        spec = target_spec(self.target)
        if spec.bulk_tensor is None:
            return
        for op in generics(function):
            if PADDED_CHANNELS not in op.attributes:
                self._decide(op, spec, spec.bulk_tensor.pitch_align_bytes)

    def _decide(self, op: linalg.ops.GenericOp, spec: TargetSpec, align: int) -> None:
        view, kind = view_of(op), classify(op)
        if not isinstance(kind, Contraction) or (found := channels_of(op)) is None:
            return
        step = align // value_bytes(view.inputs[kind.lhs])
        padded = -(-found.size // step) * step
        row = tensor_type(view.inputs[found.filters]).get_shape()[-1]
        if padded == found.size or (not found.filters_end_in_channels and (row == DYNAMIC_INDEX or row % step)):
            return
        sizes = _sizes(view, kind, found.size, padded)
        types = [str(tensor_type(value).element_type) for value in (view.inputs[kind.lhs], view.outputs[0])]
        before, after = sizes.seconds_as_is(spec), sizes.seconds_padded(spec, *types)
        times = f"{1e6 * after:.0f} us are modelled with {padded} channels, {1e6 * before:.0f} us with {found.size}"
        if after >= before:
            emit("refusal", NAME, origin_of(op), f"no zeros behind the channels: {times}", location_of(op))
            return
        op.attributes[PADDED_CHANNELS] = builtin.IntegerAttr(padded, builtin.i64)
        emit("decision", NAME, origin_of(op), f"copies of both operands with zeros behind the channels: {times}", location_of(op))
