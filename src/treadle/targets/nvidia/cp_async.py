"""`tile.copy "cp_async"`: each thread copies its pieces of 4, 8 or 16 bytes, zeros outside the view; through registers where the rows begin
at no multiple of 4 bytes (`shifted_copies.py`).

Who copies what is derived from the buffer: neighbouring threads take neighbouring pieces along the view's contiguous dimension.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from treadle.analysis.index_forms import form_of
from treadle.codegen.llvm_text import I8, I32, Value, i32, i64
from treadle.dialects.tile import CopyOp, ViewOp, ints, memref_type, shared_layout_of, view_strides
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.ir.dialects import scf
from treadle.ir.simplify import constant_index
from treadle.layout.access import CoordinateGroup, address_plan
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout, blocked
from treadle.layout.turned_copy import turned_pieces
from treadle.targets.nvidia.global_access import prefetch
from treadle.targets.nvidia.shifted_copies import GRANULE, ShiftedCopies
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.memory import Access, global_accesses
from treadle.targets.simt.shared import SharedAddresses
from treadle.targets.simt.threads import holds_first_copy
from treadle.targets.simt.types import element_bytes

STEPS_AHEAD = 2
"""Steps of a loop by which the cache is asked for pieces ahead of their loads."""


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


def _are_whole(ctx: KernelContext, op: CopyOp, unit: int, size: int, width: int) -> bool:
    """Whether a piece that begins in the view lies in it: its rows are whole pieces of `width` bytes, which begin at multiples of that."""
    view = op.view.owner
    return isinstance(view, ViewOp) and view.folding is None and _multiple(ctx, view.size_values()[unit]) * size % width == 0


def distribution(shared: SharedLayout, inner: int, size: int, width: int, warps: int) -> TileLayout | None:
    """Pieces of `width` bytes along dimension `inner` over the threads; None where the buffer keeps them not together."""
    if width < size or shared.shape[inner] * size % width:
        return None
    if width == size and (turned := turned_pieces(shared.shape, inner, size, 32, warps)) is not None:
        return turned
    order = (inner, *(dim for dim in reversed(range(shared.rank)) if dim != inner))
    tile = blocked(shared.shape, order, width // size, 32, warps)
    plan = address_plan(tile, shared, size, width)
    # Neighbours in a buffer that lies across the view are registers apart.
    is_along = all(group.registers == tuple(range(group.registers[0], group.registers[0] + plan.vector)) for group in plan.groups)
    return tile if plan.vector * size == width and is_along else None


def _bytes(ctx: KernelContext, access: Access, unit: int, coordinates: tuple[int, ...], size: int, width: int) -> Value:
    """How many bytes of a piece lie within the view along its contiguous dimension; nothing or less where it lies behind the end."""
    b = ctx.b
    if unit not in access.coordinates or width == size:
        return i32(width)
    at = access.coordinate(unit, coordinates[access.dims.index(unit)])
    left = b.mul(b.sub(access.view.sizes[unit], at), ctx.index_constant(size))
    most = ctx.index_constant(width)
    return b.resize(b.select(b.icmp("slt", left, most), left, most), I32)


def emit_cp_async(ctx: KernelContext, op: CopyOp, shifted: ShiftedCopies, *, tf32: bool) -> None:
    """Issue a copy; it is pending in the queue "cp_async" of each thread, or loaded and left to `shifted`: where no piece is aligned, or it
    is rounded to `tf32`. Raises InternalError where the buffer does not keep pieces together.
    """
    element = memref_type(op.destination).element_type
    size, dims, layout = element_bytes(element), ints(op.dims), shared_layout_of(op.destination)
    static = view_strides(op.view)
    inner = next((axis for axis, dim in enumerate(dims) if static[dim] == 1), None)
    if inner is None:
        raise InternalError("tile.copy 'cp_async' of a view without a contiguous dimension")
    queue = ctx.hooks.spec.queue_for("copy_in")
    for width in () if queue is None else queue.piece_bytes:
        if _is_aligned(ctx, op, dims[inner], size, width) and (tile := distribution(layout, inner, size, width, ctx.warps)) is not None:
            if tf32:
                _load_rounded(ctx, op, inner, tile, width, shifted)
            else:
                _issue(ctx, op, inner, tile, width)
            return
    tile = distribution(layout, inner, size, GRANULE, ctx.warps)
    if tile is None:
        raise InternalError(f"tile.copy 'cp_async' into a buffer that does not keep {GRANULE} bytes of a row together")
    _load(ctx, op, inner, tile, shifted)


def _issue(ctx: KernelContext, op: CopyOp, inner: int, tile: TileLayout, width: int) -> None:
    b, pieces = ctx.b, _pieces(ctx, op, inner, tile, width)
    cache = "cg" if width == 16 else "ca"
    with b.when(holds_first_copy(ctx, tile)):
        for target, source, inside, left, _ in pieces():
            taken = b.select(inside, left, i32(0)) if inside.number != 1 else left
            text = f"cp.async.{cache}.shared.global [$0], [$1], {width}"
            if taken.number == width:
                b.asm(f"{text};", "r,l,~{memory}", [b.ptrtoint(target, I32), source])
            elif left.number == width:
                # What the source has is ignored as a whole: a number of bytes would move its address as well.
                guarded = f"{{ .reg .pred outside; setp.eq.u32 outside, $2, 0; {text}, outside; }}"
                b.asm(guarded, "r,l,r,~{memory}", [b.ptrtoint(target, I32), source, b.resize(inside, I32)])
            else:
                b.asm(f"{text}, $2;", "r,l,r,~{memory}", [b.ptrtoint(target, I32), source, taken])


def _load(ctx: KernelContext, op: CopyOp, inner: int, tile: TileLayout, shifted: ShiftedCopies) -> None:
    """Threads that hold the same piece all store it, with the same bytes."""
    reading = ctx.view(op.view).reading
    for target, source, inside, left, later in _pieces(ctx, op, inner, tile, GRANULE, is_held=True)():
        if later is not None:
            prefetch(ctx.b, *later)
        shifted.load(ctx, source, target, inside, left, reading=reading)


def _load_rounded(ctx: KernelContext, op: CopyOp, inner: int, tile: TileLayout, width: int, shifted: ShiftedCopies) -> None:
    reading = ctx.view(op.view).reading
    for target, source, inside, left, later in _pieces(ctx, op, inner, tile, width, is_held=True)():
        if later is not None:
            prefetch(ctx.b, *later)
        shifted.load_rounded(ctx, source, target, inside, left, width, reading=reading)


class Piece(NamedTuple):
    """Where it goes, where it lies, whether it is in the view (i1), and how many of its bytes are then (i32); `later`: where the piece lies
    that is copied some steps later, and whether that is in the view.
    """

    target: Value
    source: Value
    inside: Value
    left: Value
    later: tuple[Value, Value] | None


def _moved(op: CopyOp) -> dict[int, int]:
    """By how many elements along each dimension of its view a copy is further on in the next step of its loop, where it is; nothing where
    that is not known.
    """
    loop = op.parent_op()
    step = constant_index(loop.step) if isinstance(loop, scf.ForOp) else None
    if not isinstance(loop, scf.ForOp) or step is None:
        return {}
    place, forms = loop.body.block.args[0], [form_of(offset) for offset in op.offsets]
    if any(place in term and term != (place,) for form in forms for term in form):
        return {}
    return {dim: form[place,] * step for dim, form in enumerate(forms) if (place,) in form}


def _later(
    ctx: KernelContext, access: Access, group: CoordinateGroup, moved: dict[int, int], piece: tuple[Value, Value]
) -> tuple[Value, Value]:
    """The `piece` (where, and whether it is in the view) that is copied `STEPS_AHEAD` steps later."""
    b, view = ctx.b, access.view
    (source, inside), distance = piece, i64(0)
    for dim, count in moved.items():
        distance = b.add(distance, b.mul(i64(STEPS_AHEAD * count * element_bytes(view.element)), view.strides[dim]))
        at = access.coordinate(dim, group.coordinates[access.dims.index(dim)])
        inside = b.and_(inside, b.icmp("ult", b.add(at, ctx.index_constant(STEPS_AHEAD * count)), view.sizes[dim]))
    return b.gep(source, distance, I8, flags=""), inside


def _pieces(
    ctx: KernelContext, op: CopyOp, inner: int, tile: TileLayout, width: int, *, is_held: bool = False
) -> Callable[[], Iterator[Piece]]:
    """A thread's pieces of `width` bytes. `is_held`: they go through registers, and are waited for in each step, so that the cache is asked
    for later ones.
    """
    buffer, view, dims, layout = ctx.buffer(op.destination), ctx.view(op.view), ints(op.dims), shared_layout_of(op.destination)
    size = element_bytes(memref_type(op.destination).element_type)
    vector, unit = width // size, dims[inner]
    plan = address_plan(tile, layout, size, width)
    places = SharedAddresses(ctx, buffer, plan)
    access = global_accesses(ctx, op, view, list(op.offsets), dims, tile, vector)
    access.repeated = frozenset(dims[axis] for axis in op.repeated)
    if access.plan.vector != vector:
        raise InternalError(f"tile.copy 'cp_async': pieces of {width} bytes are not contiguous in the view")
    sources = {group.registers: group for group in access.plan.groups}
    moved, are_whole = _moved(op), _are_whole(ctx, op, unit, size, width)
    is_known = bool(moved) and all(dim in access.coordinates and count > 0 for dim, count in moved.items())

    def each() -> Iterator[Piece]:
        for group in plan.groups:
            source = sources[group.registers]
            left = i32(width) if are_whole else _bytes(ctx, access, unit, source.coordinates, size, width)
            place, inside = access.address(source), access.predicate(source)
            later = _later(ctx, access, source, moved, (place, inside)) if is_known and is_held else None
            yield Piece(places.of(group), place, inside, left, later)

    return each
