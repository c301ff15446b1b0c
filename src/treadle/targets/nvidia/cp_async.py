"""`tile.copy "cp_async"`: each thread copies its pieces of 4, 8 or 16 bytes, zeros outside the view.

Who copies what is derived from the buffer: neighbouring threads take neighbouring pieces along the view's contiguous dimension.
"""

from treadle.codegen.llvm_text import I32, Value, i32
from treadle.dialects.tile import CopyOp, ViewOp, ints, memref_type, shared_layout_of, view_strides
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.layout.access import address_plan
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.memory import Access, global_accesses
from treadle.targets.simt.shared import SharedAddresses
from treadle.targets.simt.threads import holds_first_copy
from treadle.targets.simt.types import element_bytes

WIDTHS = (16, 8, 4)


def _multiple(ctx: KernelContext, value: int | SSAValue) -> int:
    """What surely divides a value; 0 for zero."""
    return abs(value) if isinstance(value, int) else ctx.ranges.of(value).multiple


def _is_aligned(ctx: KernelContext, op: CopyOp, unit: int, size: int, width: int) -> bool:
    """Whether every piece of `width` bytes starts at a multiple of `width` in the global array."""
    view = op.view.owner
    if not isinstance(view, ViewOp) or view.align.value.data % width:
        return False
    if (windows := view.folding) is not None and any(
        size * each % width
        for dim, parts in enumerate(windows.dims)
        if parts
        for each in (windows.run(dim) * (dim == unit), windows.divisor(dim))
    ):
        return False
    strides = view.stride_values()
    for dim, (stride, offset) in enumerate(zip(strides, op.offsets, strict=True)):
        moved = size * (_multiple(ctx, offset) if dim == unit else _multiple(ctx, stride))
        if moved % width:
            return False
    return True


def distribution(shared: SharedLayout, inner: int, size: int, width: int, warps: int) -> TileLayout | None:
    """Pieces of `width` bytes along dimension `inner` over the threads; None where the buffer keeps them not together."""
    if width < size or shared.shape[inner] * size % width:
        return None
    order = (inner, *(dim for dim in reversed(range(shared.rank)) if dim != inner))
    tile = blocked(shared.shape, order, width // size, 32, warps)
    plan = address_plan(tile, shared, size, width)
    return tile if plan.vector * size == width else None


def _bytes(ctx: KernelContext, access: Access, unit: int, coordinates: tuple[int, ...], predicate: Value, size: int, width: int) -> Value:
    """How many bytes of a piece lie within the view."""
    b = ctx.b
    whole = i32(width)
    if unit in access.coordinates:
        at = access.coordinate(unit, coordinates[access.dims.index(unit)])
        left = b.mul(b.sub(access.view.sizes[unit], at), ctx.index_constant(size))
        most = ctx.index_constant(width)
        whole = b.resize(b.select(b.icmp("slt", left, most), left, most), I32)
    return b.select(predicate, whole, i32(0)) if predicate.number != 1 else whole


def emit_cp_async(ctx: KernelContext, op: CopyOp) -> None:
    """Issue a copy; it is pending in the queue "cp_async" of each thread. Raises InternalError where no piece of 4 bytes is aligned."""
    b, buffer, view = ctx.b, ctx.buffer(op.destination), ctx.view(op.view)
    element = memref_type(op.destination).element_type
    size, dims, layout = element_bytes(element), ints(op.dims), shared_layout_of(op.destination)
    static = view_strides(view.op.result)
    inner = next((axis for axis, dim in enumerate(dims) if static[dim] == 1), None)
    if inner is None:
        raise InternalError("tile.copy 'cp_async' of a view without a contiguous dimension")
    unit = dims[inner]
    for width in WIDTHS:
        tile = distribution(layout, inner, size, width, ctx.warps) if _is_aligned(ctx, op, unit, size, width) else None
        if tile is not None:
            break
    else:
        raise InternalError(f"tile.copy 'cp_async' of {size}-byte elements that are not known to lie on 4 bytes")
    vector = width // size
    plan = address_plan(tile, layout, size, width)
    places = SharedAddresses(ctx, buffer, plan)
    access = global_accesses(ctx, op, view, list(op.offsets), dims, tile, vector)
    if access.plan.vector != vector:
        raise InternalError(f"tile.copy 'cp_async': pieces of {width} bytes are not contiguous in the view")
    sources = {group.registers: group for group in access.plan.groups}
    cache = "cg" if width == 16 else "ca"
    with b.when(holds_first_copy(ctx, tile)):
        for group in plan.groups:
            source = sources[group.registers]
            taken = _bytes(ctx, access, unit, source.coordinates, access.predicate(source), size, width)
            target = b.ptrtoint(places.of(group), I32)
            text = f"cp.async.{cache}.shared.global [$0], [$1], {width}"
            if taken.number == width:
                b.asm(f"{text};", "r,l,~{memory}", [target, access.address(source)])
            else:
                b.asm(f"{text}, $2;", "r,l,r,~{memory}", [target, access.address(source), taken])
