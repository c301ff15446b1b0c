"""Constants: scalar attributes and dense splats as LLVM constants, tables of numbers in memory."""

import math
from collections.abc import Sequence
from typing import Final, cast

from treadle.codegen.llvm_text import I32, I64, Value, floating, integer
from treadle.dialects.tile import LookupOp
from treadle.errors import InternalError
from treadle.ir.core import Attribute
from treadle.ir.dialects import arith, builtin
from treadle.plan.index_range import INDEX_LIMIT
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.small_floats import encode
from treadle.targets.simt.types import is_fp8, register_type, type_name

CONSTANT_BYTES: Final = 1 << 15
"""So many bytes of tables lie in memory for constants, of which machines have 64 KiB a kernel; further ones lie in global memory."""


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


def emit_lookup(ctx: KernelContext, op: LookupOp) -> None:
    """`tile.lookup`: a load from a constant array, which all lookups in the same numbers share."""
    values, b, module = op.table, ctx.b, ctx.module
    is_wide = ctx.index_type == I64 and any(abs(value) > INDEX_LIMIT for value in values)
    element, size = (I64, 8) if is_wide else (I32, 4)
    array = ctx.tables.get(values)
    if array is None:
        space = ctx.hooks.constant_space
        if size * len(values) + sum(taken for _, taken in ctx.tables.values()) > CONSTANT_BYTES:
            space = ctx.hooks.global_space
        numbers = ", ".join([f"{element} {value}" for value in values])
        base = module.constant_array(f"table{len(ctx.tables)}", f"[{len(values)} x {element}]", f"[{numbers}]", size, space)
        array = ctx.tables[values] = (base, size * len(values))
    address = b.gep(array[0], ctx.scalar(op.index), element)
    never_changes = f"!invariant.load {module.metadata('!{}')}"
    loaded = b.pure(element, f"load {element}, {address.typed}, align {size}, {never_changes}")
    ctx.bind(op.result, loaded if is_wide else ctx.as_index(loaded))
