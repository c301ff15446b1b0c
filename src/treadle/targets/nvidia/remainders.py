"""Tensor copies of rows whose distance breaks their alignment: a map for the rows of each remainder, of which every `apart`-th keeps it.

Row r begins at byte r * pitch, which is a multiple of an element's size alone: its map begins at the multiple of 16 bytes before, and
the copies by so many elements later. Maps end where the rows end, so elements beyond them are zero. The maps of all remainders have the
same distance of rows, `apart` pitches. Places in the buffer: `layout/interleaving.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from treadle.codegen.llvm_text import Value, i32
from treadle.dialects.tile import CopyOp, CopyOutOp
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.layout.bits import log2_exact
from treadle.layout.interleaving import block_rows, straightened
from treadle.layout.shared_layout import SharedLayout
from treadle.plan.expr import constant
from treadle.targets.interface import TensorMapParam
from treadle.targets.nvidia.copy_plan import Box, CopyPlan
from treadle.targets.nvidia.swizzle import SwizzledRows
from treadle.targets.simt.context import KernelContext

ALIGN: Final = 16
"""Bytes that maps begin at multiples of."""


def by_remainders(
    plan: CopyPlan, rows: SwizzledRows, layout: SharedLayout, extents: Sequence[int | SSAValue], element_bytes: int
) -> CopyPlan:
    """`plan`, the copy of one map, as copies of one map for each remainder. `extents`: number and distance of the rows, in elements."""
    count, stride = extents
    if not isinstance(count, int) or not isinstance(stride, int) or count < rows.apart:
        raise InternalError(f"{rows.apart} remainders of {count} rows that are {stride} elements apart")
    apart, block = rows.apart, block_rows(layout.base_shape[rows.outer], rows.apart)
    whole, params, shifts = plan.param, list[TensorMapParam](), list[int]()
    for remainder in range(apart):
        begin = whole.byte_offset + remainder * stride * element_bytes
        shift = begin % ALIGN // element_bytes
        dims = (whole.map.global_dim[0] + constant(shift), constant(-(-(count - remainder) // apart)), *whole.map.global_dim[2:])
        pitches = (constant(apart * stride * element_bytes), *whole.map.global_stride_bytes[1:])
        box = (whole.map.box_dim[0], block // apart, *whole.map.box_dim[2:])
        seen = replace(whole.map, global_dim=dims, global_stride_bytes=pitches, box_dim=box)
        params.append(replace(whole, map=seen, byte_offset=begin - shift * element_bytes))
        shifts.append(shift)
    straight, boxes = straightened(layout, rows.outer, apart), list[Box]()
    for column in range(0, layout.shape[rows.inner], whole.map.box_dim[0]):
        for place in range(0, layout.shape[rows.outer], block // apart):
            at = [0, 0]
            at[rows.inner], at[rows.outer] = column, place
            remainder = place % block // (block // apart)
            start = (column + shifts[remainder], place // block * (block // apart), *[0] * (len(plan.view_dims) - 2))
            boxes.append(Box(straight.offset_of(at) * element_bytes, start, remainder))
    return replace(plan, params=tuple(params), boxes=tuple(boxes), apart=apart)


def tile_starts(ctx: KernelContext, op: CopyOp | CopyOutOp, plan: CopyPlan) -> list[Value]:
    """Where a copy's tile begins along each dimension of its maps, of which each counts the rows of one remainder: tiles begin at whole
    blocks of them.
    """
    starts = [ctx.small_index(op.offsets[dim]) for dim in plan.view_dims]
    if plan.apart > 1:
        starts[1] = ctx.b.lshr(starts[1], i32(log2_exact(plan.apart)))
    return starts
