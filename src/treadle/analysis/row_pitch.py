"""How far the rows of a function's tensors are apart in memory, as far as the function's text says."""

from math import gcd

from treadle.analysis.indexing import tensor_of
from treadle.analysis.shapes import STRIDES, kept_axes
from treadle.ir.core import DYNAMIC_INDEX, BlockArgument, SSAValue
from treadle.ir.dialects import builtin, func, tensor
from treadle.ir.tensors import tensor_type


def row_pitch(value: SSAValue) -> int | None:
    """What the rows of a tensor, along its last axis, are apart by multiples of, in elements; None where the text does not say, or where
    neighbours of a row are no neighbours in memory.
    """
    if isinstance(owner := value.owner, tensor.ExtractSliceOp):
        last = tensor_type(owner.source).get_num_dims() - 1
        keeps_rows = kept_axes(owner, owner.result)[-1:] == [last] and all(step == 1 for step in owner.static_strides.get_values())
        return row_pitch(owner.source) if keeps_rows else None
    if isinstance(value, BlockArgument) and (strides := _argument_strides(value)) is not None:
        known = strides[-1:] == (1,) and all(stride > 0 for stride in strides)
        return gcd(*strides[:-1]) or tensor_type(value).get_shape()[-1] if known else None
    type_ = tensor_of(value)
    shape = () if type_ is None else type_.get_shape()
    return shape[-1] if shape and shape[-1] not in (DYNAMIC_INDEX, 0) else None


def unit_axis(value: SSAValue) -> int | None:
    """The axis of a tensor along which neighbours are neighbours in memory, as far as the function's text says; None where it does not."""
    if isinstance(owner := value.owner, tensor.ExtractSliceOp):
        axis, kept = unit_axis(owner.source), kept_axes(owner, owner.result)
        steps = owner.static_strides.get_values()
        return kept.index(axis) if axis is not None and axis in kept and steps[axis] == 1 else None
    if isinstance(value, BlockArgument) and (strides := _argument_strides(value)) is not None:
        return strides.index(1) if strides.count(1) == 1 else None
    type_ = tensor_of(value)
    return len(type_.get_shape()) - 1 if type_ is not None and type_.get_shape() else None


def _argument_strides(argument: BlockArgument) -> tuple[int, ...] | None:
    """The strides that a function says an argument has; None where it says nothing, and rows follow one another."""
    function = argument.block.parent_op()
    if not isinstance(function, func.FuncOp) or function.arg_attrs is None or argument.index >= len(function.arg_attrs.data):
        return None
    given = function.arg_attrs.data[argument.index].data.get(STRIDES)
    return tuple(int(stride) for stride in given.get_values()) if isinstance(given, builtin.DenseArrayBase) else None
