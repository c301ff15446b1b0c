"""The operand of one share of a contraction: as it is within a part of what is reduced, all loops of that as one, and zero elsewhere."""

from collections.abc import Sequence

from treadle.analysis.indexing import plain_dims
from treadle.analysis.shares import SHARE
from treadle.ir.builtin import number_attr
from treadle.ir.core import AffineMap, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.ir.emitter import Emitter, Index
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.transforms.tensor.generics import elementwise, scalar_body
from treadle.transforms.tensor.part_sizes import Part


def share(
    value: SSAValue, map_: AffineMap, reduced: Sequence[int], part: Part, bounds: tuple[Index, Index], emit: TensorEmitter, like: Operation
) -> SSAValue:
    """The operand `value`, read through `map_`, within `bounds` (first and number) of the loops `reduced` as one."""
    kind, plain = tensor_type(value), plain_dims(map_)
    first = emit.value(bounds[0])
    behind = emit.add(first, bounds[1])

    def element(inside: Emitter, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        place: SSAValue | None = None
        for dim in reduced:
            axis = plain.index(dim)
            index: SSAValue = inside.insert(linalg.ops.IndexOp(axis))
            place = index if place is None else inside.add(inside.multiply(place, kind.get_shape()[axis]), index)
        if place is None:
            return [arguments[0]]
        is_behind_first = inside.insert(arith.CmpiOp(place, first, "sge"))
        is_within = inside.insert(arith.AndIOp(is_behind_first, inside.insert(arith.CmpiOp(place, behind, "slt"))))
        value = number_attr(0, kind.element_type)
        zero = inside.insert(arith.ConstantOp.create(result_types=[kind.element_type], properties={"value": value}))
        return [inside.insert(arith.SelectOp(is_within, arguments[0], zero))]

    made = elementwise([value], [emit.empty_like(value)], scalar_body([kind.element_type] * 2, element), like)
    made.attributes.clear()
    made.attributes[SHARE] = builtin.IntegerAttr(part.count if isinstance(part.count, int) else 1, builtin.i64)
    return emit.insert(made)
