"""`pipe`: roles of warps and slots of multi-buffered shared memory."""

from math import prod

from treadle.codegen.llvm_text import I32, Value, i32
from treadle.dialects.agents import Role, check_barriers, roles_of
from treadle.dialects.effects import HasEffects
from treadle.dialects.pipe import PartOp, RolesOp, SlotOp
from treadle.dialects.sync import ArriveOp, MbarrierExpectOp, MbarrierSlotOp, NamedBarrierOp, WaitPhaseOp
from treadle.dialects.tile import shared_layout_of
from treadle.errors import InternalError
from treadle.ir.core import Operation
from treadle.layout.bits import log2_exact
from treadle.targets.simt.context import Buffer, KernelContext
from treadle.targets.simt.control import EmitBlock
from treadle.targets.simt.types import element_bytes

_AT_BARRIERS = (ArriveOp, MbarrierExpectOp, NamedBarrierOp, WaitPhaseOp)


def emit_roles(ctx: KernelContext, op: RolesOp, emit_block: EmitBlock) -> None:
    """A branch by the warp's number; what other warps did before or do after is ordered by a barrier where it touches memory."""
    roles = roles_of(op)
    check_barriers(op)
    ctx.hooks.check_roles(ctx, roles)
    if any(_matters(earlier) for earlier in _before(op)):
        ctx.hooks.barrier(ctx.b)
    _branch(ctx, list(roles), emit_block)
    if any(_matters(later) for later in _after(op) if not isinstance(later, RolesOp)):
        ctx.hooks.barrier(ctx.b)


def _branch(ctx: KernelContext, roles: list[Role], emit_block: EmitBlock) -> None:
    role, rest = roles[0], roles[1:]
    mine = ctx.b.icmp("ult", ctx.warp, i32(role.end_warp)) if role.end_warp < ctx.warps else None
    if mine is None:
        _role(ctx, role, emit_block)
        return
    with ctx.b.conditional(mine) as branch:
        with branch.then():
            _role(ctx, role, emit_block)
        if rest:
            with branch.otherwise():
                _branch(ctx, rest, emit_block)


def _role(ctx: KernelContext, role: Role, emit_block: EmitBlock) -> None:
    """One role's code; everything in it counts warps and threads within the group."""
    b = ctx.b
    ctx.hooks.begin_role(ctx, role)
    number = b.sub(ctx.warp, i32(role.first_warp))
    group, warp = i32(0), number
    if role.groups > 1:
        shift = log2_exact(role.warps)
        group = b.lshr(number, i32(shift)) if shift >= 0 else b.udiv(number, i32(role.warps))
        warp = b.sub(number, b.mul(group, i32(role.warps)))
        if shift >= 0:
            warp = b.and_(number, i32(role.warps - 1))
    if role.warps == 1:
        warp = i32(0)
    thread = b.or_(b.shl(warp, i32(log2_exact(ctx.lanes))), ctx.lane, "disjoint")
    executing = b.icmp("eq", warp, i32(0)) if role.executing_warps < role.warps else b.icmp("eq", i32(0), i32(0))
    with ctx.as_group(role.executing_warps, thread if role.executing_warps > 1 else ctx.lane, warp, group), b.when(executing):
        emit_block(role.region.block)


def _matters(op: Operation) -> bool:
    """Whether others may have to be ordered with an operation: it touches memory, or arrives or waits at a barrier of some of the warps."""
    return any(isinstance(inner, _AT_BARRIERS) or (isinstance(inner, HasEffects) and bool(inner.effects())) for inner in op.walk())


def _before(op: Operation) -> list[Operation]:
    found: list[Operation] = []
    while (earlier := op.prev_op) is not None:
        found.append(earlier)
        op = earlier
    return found


def _after(op: Operation) -> list[Operation]:
    found: list[Operation] = []
    while (later := op.next_op) is not None:
        found.append(later)
        op = later
    return found


def emit_slot(ctx: KernelContext, op: SlotOp) -> None:
    """A buffer moved by its slots' distance: known at once where the index is, else a term of its address."""
    source = ctx.buffer(op.source)
    count = len(op.indices)
    if shared_layout_of(op.result) != source.layout.slot(count):
        raise InternalError(f"pipe.slot of {source.layout.to_lists()} has the layout {shared_layout_of(op.result).to_lists()}")
    steps = [stride * element_bytes(source.element) for stride in source.layout.repeat_strides()[:count]]
    at, terms, address = source.byte_offset, list(source.terms), source.address
    for index, step in zip((ctx.small_index(index) for index in op.indices), steps, strict=True):
        address = ctx.b.gep(address, ctx.b.mul(index, i32(step)), flags="")
        if index.number is None:
            terms.append((index, step))
        else:
            at += index.number * step
    ctx.bind(op.result, Buffer(address, at, shared_layout_of(op.result), source.element, tuple(terms)))


def emit_part(ctx: KernelContext, op: PartOp) -> None:
    """A buffer moved by its parts' distance."""
    source, layout = ctx.buffer(op.source), shared_layout_of(op.result)
    step = prod(layout.shape) * element_bytes(source.element)
    index = ctx.small_index(op.index)
    address = ctx.b.gep(source.address, ctx.b.mul(index, i32(step)), flags="")
    terms = source.terms if index.number is not None else (*source.terms, (index, step))
    at = source.byte_offset + (index.number or 0) * step
    ctx.bind(op.result, Buffer(address, at, layout, source.element, terms))


def emit_barrier_slot(ctx: KernelContext, op: MbarrierSlotOp) -> None:
    """One of several transaction barriers, which lie one after the other."""
    step = ctx.hooks.spec.barrier_bytes
    ctx.bind(op.result, ctx.b.gep(ctx.scalar(op.source), ctx.b.mul(ctx.small_index(op.index), i32(step)), flags=""))


def moved_by(ctx: KernelContext, buffer: Buffer, unit: int) -> Value:
    """i32: how far the dynamic slots move a buffer, in units of `unit` bytes, which divide every step (InternalError otherwise)."""
    b, moved = ctx.b, Value(I32, "0", 0)
    for index, step in buffer.terms:
        if step % unit:
            raise InternalError(f"slots of {step} bytes, which are no multiple of {unit}")
        moved = b.add(moved, b.mul(index, i32(step // unit)))
    return moved
