"""Constants: scalar attributes and dense splats as LLVM constants."""

import math
from collections.abc import Sequence
from typing import cast

from treadle.codegen.llvm_text import Value, floating, integer
from treadle.errors import InternalError
from treadle.ir.core import Attribute
from treadle.ir.dialects import arith, builtin
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.small_floats import encode
from treadle.targets.simt.types import is_fp8, register_type, type_name


def scalar_constant(element: Attribute, number: float) -> Value:
    """A constant of an element type."""
    kind = register_type(element)
    if is_fp8(element):
        return integer(kind, encode(type_name(element), number))
    return integer(kind, int(number)) if kind[0] == "i" else floating(kind, number)


def attribute_constant(attribute: Attribute) -> Value:
    """The constant of an IntegerAttr or FloatAttr."""
    if isinstance(attribute, builtin.IntegerAttr | builtin.FloatAttr):
        return scalar_constant(cast("Attribute", attribute.type), attribute.value.data)
    raise InternalError(f"constant {attribute}")


def emit_constant(ctx: KernelContext, op: arith.ConstantOp) -> None:
    """`arith.constant`: a scalar, or a dense splat in every register."""
    value = op.value
    if isinstance(value, builtin.DenseIntOrFPElementsAttr):
        numbers = cast("Sequence[int | float]", value.get_values())
        first = numbers[0]
        if not value.is_splat() and any(n != first and not (math.isnan(n) and math.isnan(first)) for n in numbers):
            raise InternalError("only splat constants have a layout")
        constant = scalar_constant(value.get_element_type(), first)
        ctx.bind(op.result, [constant] * ctx.layout(op.result).num_registers)
        return
    if isinstance(value, builtin.IntegerAttr) and isinstance(value.type, builtin.IndexType):
        ctx.bind(op.result, ctx.index_constant(value.value.data))
        return
    ctx.bind(op.result, attribute_constant(value))
