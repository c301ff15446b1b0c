"""`tensor.pad` with zeros in front of convolutions: a generic that gathers inside and is zero outside, for the kernel that reads it."""

from collections.abc import Sequence

from treadle.analysis.convolution import PADDED
from treadle.analysis.indexing import Contraction, classify
from treadle.analysis.shares import SHARE
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.ir.emitter import Emitter
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.transforms.tensor.generics import elementwise, generics, scalar_body


def unmark(function: Operation) -> None:
    """Take the marks of what passes make off what others made."""
    for op in generics(function):
        op.attributes.pop(PADDED, None)
        op.attributes.pop(SHARE, None)


def _pad_value(op: tensor.PadOp) -> builtin.IntegerAttr | builtin.FloatAttr | None:
    """The number that is padded with, where it is a constant."""
    last = op.region.block.last_op
    value = last.operands[0].owner if isinstance(last, tensor.YieldOp) and len(last.operands) == 1 else None
    attr = value.value if isinstance(value, arith.ConstantOp) else None
    return attr if isinstance(attr, builtin.IntegerAttr | builtin.FloatAttr) else None


def _amounts(op: tensor.PadOp) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(op.static_low.get_values(), op.static_high.get_values(), strict=True)]


def is_image_of_convolutions(op: tensor.PadOp) -> bool:
    """Whether zeros are put around a tensor, along axes of known sizes, that only convolutions read, as their image."""
    value, shape = _pad_value(op), tensor_type(op.source).get_shape()
    if value is None or value.value.data != 0 or str(value.value.data).startswith("-") or op.result.first_use is None:
        return False
    padded = [size for size, amounts in zip(shape, _amounts(op), strict=True) if amounts != (0, 0)]
    if DYNAMIC_INDEX in padded or any(min(amounts) < 0 for amounts in _amounts(op)):
        return False
    return all(isinstance(kind := classify(use.operation), Contraction) and kind.image == use.index for use in op.result.uses)


def padded_image(op: tensor.PadOp) -> linalg.ops.GenericOp:
    """The padded tensor as a generic; not inserted."""
    emit, amounts, shape = TensorEmitter(op), _amounts(op), tensor_type(op.source).get_shape()
    sizes = [emit.size(op.source, axis) if pads == (0, 0) else emit.constant(shape[axis] + sum(pads)) for axis, pads in enumerate(amounts)]
    kind = tensor_type(op.result)
    out = emit.empty(sizes, kind.element_type, kind.get_shape())
    value = _pad_value(op)

    def element(emit: Emitter, _: Sequence[SSAValue]) -> list[SSAValue]:
        places, inside = list[SSAValue](), None
        for axis, pads in enumerate(amounts):
            place: SSAValue = emit.insert(linalg.ops.IndexOp(axis))
            if pads != (0, 0):
                place = emit.insert(arith.SubiOp(place, emit.insert(arith.ConstantOp(builtin.IntegerAttr.from_index_int_value(pads[0])))))
                size = emit.insert(arith.ConstantOp(builtin.IntegerAttr.from_index_int_value(shape[axis])))
                within = emit.insert(arith.CmpiOp(place, size, "ult"))
                inside = within if inside is None else emit.insert(arith.AndIOp(inside, within))
            places.append(place)
        found = emit.insert(tensor.ExtractOp(op.source, places, kind.element_type))
        if inside is None or value is None:
            return [found]
        return [emit.insert(arith.SelectOp(inside, found, emit.insert(arith.ConstantOp(value))))]

    made = elementwise([], [out], scalar_body([kind.element_type], element), op)
    made.attributes[PADDED] = builtin.DenseArrayBase.from_list(builtin.i64, [low for low, _ in amounts])
    return made
