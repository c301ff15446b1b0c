"""What is known about accesses of tiles of a view: sizes, strides and offsets with their divisors."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple

from treadle.analysis.divisibility import EVERYTHING, constant_value, divisor
from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Attribute, Block, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.layout.bits import power_of_two_part
from treadle.layout.windows import Windows
from treadle.plan.access import AccessFacts, DimFacts


def view_op(view: SSAValue) -> tile.ViewOp:
    """The operation that makes a view."""
    owner = view.owner
    if not isinstance(owner, tile.ViewOp):
        raise InternalError("a view that tile.view does not define")
    return owner


def access_facts(view: SSAValue, offsets: Sequence[SSAValue], dims: Sequence[int], shape: Sequence[int]) -> AccessFacts:
    """What is known about an access of a tile of `shape` along view dimensions `dims` at `offsets`."""
    op = view_op(view)
    extents = [1] * len(offsets)
    for dim, extent in zip(dims, shape, strict=True):
        extents[dim] = extent
    found: list[DimFacts] = []
    for size, stride, offset, extent in zip(op.size_values(), op.stride_values(), offsets, extents, strict=True):
        found.append(
            DimFacts(
                stride if isinstance(stride, int) else None,
                size if isinstance(size, int) else None,
                divisor(abs(stride) if isinstance(stride, int) else stride),
                divisor(size) if not (isinstance(size, int) and size == 0) else EVERYTHING,
                divisor(offset),
                extent,
            )
        )
    if (windows := op.folding) is not None:
        found = [_folded(windows, dim, facts) if windows.dims[dim] else facts for dim, facts in enumerate(found)]
    kernel = next((above for above in ancestors(op) if isinstance(above, tile.KernelOp)), None)
    bits = kernel.index_width() if kernel is not None else 32
    sizes = [size for size in op.size_values() if op.folding is not None or chosen_size(size) is None]
    varies = not all(isinstance(each, int) or _is_of_launch(each) for each in (*sizes, *op.stride_values()))
    return AccessFacts(tuple(found), element_bytes(tile.memref_type(view).element_type), op.align.value.data, bits, varies)


def _folded(windows: Windows, dim: int, facts: DimFacts) -> DimFacts:
    """What is known about a dimension that steps along several axes: even steps are within one run of its last part."""
    apart = windows.divisor(dim)
    if facts.stride == 1:
        return replace(facts, size_divisor=power_of_two_part(gcd(facts.size_divisor, windows.run(dim), apart)))
    return replace(facts, stride=None, stride_divisor=power_of_two_part(gcd(facts.stride_divisor, apart)))


class ChosenSize(NamedTuple):
    """A view's size that is one of two, the first where the condition holds."""

    condition: SSAValue
    one: int
    other: int


def chosen_size(size: int | SSAValue) -> ChosenSize | None:
    """A view's size as a choice of two; None for any other."""
    if isinstance(size, int) or not isinstance(size.owner, arith.SelectOp):
        return None
    condition, *values = size.owner.operands
    one, other = map(constant_value, values)
    return None if one is None or other is None else ChosenSize(condition, one, other)


def _is_of_launch(value: SSAValue) -> bool:
    """Whether an index value is the same in all workgroups: it is computed from the kernel's arguments alone."""
    owner = value.owner
    if isinstance(owner, Block):
        return isinstance(owner.parent_op(), tile.KernelOp)
    return owner.name.startswith("arith.") and all(_is_of_launch(operand) for operand in owner.operands)


def is_zero(attribute: Attribute | None) -> bool:
    """Whether `other` of a load is zero (it is where it is not given)."""
    match attribute:
        case None:
            return True
        case builtin.IntegerAttr():
            return attribute.value.data == 0
        case builtin.FloatAttr():
            return attribute.value.data == 0.0
        case _:
            return False
