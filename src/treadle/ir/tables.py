"""Tables of numbers in the text of a program: `arith.constant dense<[..]>` of one axis, of which `tensor.extract` takes an entry."""

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from treadle.ir.builtin import DenseIntOrFPElementsAttr, IndexType, IntegerType, TensorType
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, tensor


def table_constant(values: Sequence[int]) -> arith.ConstantOp:
    """A table of indices."""
    return arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(TensorType(IndexType(), [len(values)]), list(values)))


def table_of(op: tensor.ExtractOp) -> tuple[int, ...] | None:
    """The whole numbers that an element is one of, in the order of its index; None where it is not taken from such a table."""
    return constant_table(op.tensor)


def constant_table(value: SSAValue) -> tuple[int, ...] | None:
    """The numbers of a constant of integers or indices with one axis; None for any other value."""
    op = value.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, DenseIntOrFPElementsAttr):
        return None
    return _numbers(op.value)


@lru_cache(maxsize=64)
def _numbers(attribute: DenseIntOrFPElementsAttr) -> tuple[int, ...] | None:
    """Every slice of a kernel asks for the same few tables."""
    kind = attribute.type
    if len(kind.get_shape()) != 1 or not isinstance(kind.element_type, IndexType | IntegerType):
        return None
    values = tuple(cast("Sequence[int]", attribute.get_values()))
    return values * kind.get_shape()[0] if len(values) == 1 else values
