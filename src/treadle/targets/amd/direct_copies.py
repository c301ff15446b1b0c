"""Direct copies: `tile.copy` by loads that write shared memory themselves, and the waits that count them.

The lanes of a wave write neighbouring places behind the wave's own one (M0), so that a swizzle is in what they read
(layout/linear_copy.py); an array's descriptor gives zero outside of it. LLVM would wait for every such load before each read of shared
memory that it cannot tell apart from what they write: their scopes say that reads and copies never meet, which is what the schedule's waits
and barriers see to, and rule A4 of the audit holds the code against it.
"""

from collections.abc import Mapping
from dataclasses import replace

from treadle.analysis.structured_flow import StructuredFlow
from treadle.codegen.llvm_text import I32, Builder, Value, i32, i64
from treadle.dialects.sync import WaitOp
from treadle.dialects.tile import CopyOp, KernelOp, ints, memref_type, shared_layout_of, view_strides
from treadle.errors import KernelRejected
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.layout.access import CoordinateGroup, address_plan
from treadle.layout.linear_copy import instructions, linear_copy
from treadle.layout.tile_layout import TileLayout
from treadle.machine import Queue, TargetSpec
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.memory import Access, global_accesses
from treadle.targets.simt.shared import SharedAddresses
from treadle.targets.simt.types import element_bytes

EVERYTHING = (1 << 32) - 1
"""The size of arrays in descriptors: what is outside is told by offsets."""
MOST_PENDING = 63


def direct_copies(kernel: KernelOp) -> list[CopyOp]:
    """A kernel's copies that complete in a queue."""
    return [op for op in kernel.body.walk() if isinstance(op, CopyOp) and not op.is_bulk]


def _inner(op: CopyOp) -> int | None:
    """The dimension of the tile that has unit stride in the array."""
    strides = view_strides(op.view)
    return next((axis for axis, dim in enumerate(ints(op.dims)) if strides[dim] == 1), None)


def distribution(op: CopyOp, queue: Queue, lanes: int, warps: int) -> tuple[TileLayout, int] | None:
    """Which thread brings what of a copy, and the elements of a piece; None where the machine cannot copy so."""
    inner, size = _inner(op), element_bytes(memref_type(op.destination).element_type)
    most = size * (op.vector.value.data if op.vector is not None else 1)
    for width in queue.lane_bytes:
        if inner is not None and size <= width <= most:
            tile = linear_copy(shared_layout_of(op.destination), inner, width // size, lanes, warps)
            if tile is not None:
                return tile, width // size
    return None


def copies_left(kernel: KernelOp, queue: Queue, lanes: int, warps: int) -> Mapping[Operation, int]:
    """For each wait of the queue, how many of its warps' instructions may stay in flight.

    The schedule counts operations, the machine instructions: a copy has several. What the newest n operations have is the least over all
    paths, which waits for no less than was asked.
    """
    walk = _Newest(queue, {op: _count(op, queue, lanes, warps) for op in direct_copies(kernel)})
    walk.block(kernel.body.block, (0,), emit=True)
    return walk.waits


def _count(op: CopyOp, queue: Queue, lanes: int, warps: int) -> int:
    found = distribution(op, queue, lanes, warps)
    return instructions(*found) if found is not None else 1


class _Newest(StructuredFlow[tuple[int, ...]]):
    """The state: instructions of the newest 0, 1, 2.. copies. Older ones than were made on a path are no matter to it."""

    def __init__(self, queue: Queue, counts: Mapping[CopyOp, int]) -> None:
        self.queue, self.counts = queue, counts
        self.waits: dict[Operation, int] = {}

    def join(self, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
        return tuple(min(a, shorter[at]) if at < len(shorter) else a for at, a in enumerate(longer))

    def plain(self, op: Operation, state: tuple[int, ...], *, emit: bool) -> tuple[int, ...]:
        if isinstance(op, CopyOp) and op in self.counts:
            return (0, *(self.counts[op] + n for n in state))[: MOST_PENDING + 1]
        if emit and isinstance(op, WaitOp) and op.queue.data == self.queue.name:
            pending = op.pending.value.data
            self.waits[op] = min(state[pending] if pending < len(state) else MOST_PENDING, self.queue.max_pending)
        return state


def _scopes(b: Builder) -> tuple[str, str]:
    domain = b.module.metadata('!{!"shared memory"}')
    copies, reads = (b.module.metadata(f'!{{!"{name}", {domain}}}') for name in ("copies", "reads"))
    return b.module.metadata(f"!{{{copies}}}"), b.module.metadata(f"!{{{reads}}}")


def copied_scope(b: Builder) -> str:
    """Metadata of copies: they write nothing that is read at the same time."""
    copies, reads = _scopes(b)
    return f"!alias.scope {copies}, !noalias {reads}"


def read_scope(b: Builder) -> str:
    """Metadata of reads of shared memory in kernels with direct copies."""
    copies, reads = _scopes(b)
    return f"!alias.scope {reads}, !noalias {copies}"


def _base(ctx: KernelContext, op: CopyOp, unit: int) -> Value:
    """The address of a tile, equal in all threads; offsets along the view's dimension `unit` are left to the copies."""
    b, view = ctx.b, ctx.view(op.view)
    distance = i64(0)
    for dim, offset in enumerate(op.offsets):
        if dim != unit:
            distance = b.add(distance, b.mul(b.sext(ctx.scalar(offset), "i64"), view.strides[dim]))
    return b.gep(view.pointer, b.mul(distance, i64(element_bytes(view.element))), flags="")


def _own_place(access: Access, group: CoordinateGroup, steps: Mapping[int, int]) -> Value:
    """Bytes from the tile's start of what a thread brings."""
    b, place = access.ctx.b, i32(0)
    constants = i32(0)
    for axis, dim in enumerate(access.dims):
        constant, step = group.coordinates[axis], i32(steps[dim])
        if access.plan.is_disjoint:
            place = b.add(place, b.mul(access.parts[axis], step))
            constants = b.add(constants, b.mul(i32(constant), step))
        else:
            place = b.add(place, b.mul(b.xor(access.parts[axis], i32(constant)), step))
    return b.add(place, constants)


def emit_direct_copy(ctx: KernelContext, op: CopyOp, spec: TargetSpec) -> None:
    """Issue a copy: each warp brings its pieces. Raises KernelRejected where the machine cannot copy the tile so."""
    queue = spec.queue_for("copy_in")
    found = distribution(op, queue, ctx.lanes, ctx.warps) if queue is not None else None
    strides = view_strides(op.view)
    dims = ints(op.dims)
    if found is None or not all(isinstance(strides[dim], int) for dim in dims):
        text = "lanes cannot bring the tile in order: its pieces are too narrow, or too few, or strides are known to the runtime alone"
        raise KernelRejected(ctx.kernel.sym_name.data, text, location_of(op))
    tile, piece = found
    b, view, buffer = ctx.b, ctx.view(op.view), ctx.buffer(op.destination)
    size, shared = element_bytes(view.element), shared_layout_of(op.destination)
    unit = next(dim for dim in dims if strides[dim] == 1)
    plan = address_plan(tile, shared, size, piece * size)
    nobody = (0,) * len(plan.lane_bits)
    places = SharedAddresses(ctx, buffer, replace(plan, lane_bits=nobody, lane_adds=nobody))
    access = global_accesses(ctx, op, view, list(op.offsets), dims, tile, piece)
    sources = {group.registers: group for group in access.plan.groups}
    arguments = [_base(ctx, op, unit), Value("i16", "0"), i64(EVERYTHING), i32(spec.buffer_flags)]
    descriptor = b.intrinsic("llvm.amdgcn.make.buffer.rsrc.p8.p1", "ptr addrspace(8)", arguments, pure=True)
    steps = {dim: stride * size for dim in dims if isinstance(stride := strides[dim], int)}
    common = b.mul(b.resize(ctx.scalar(op.offsets[unit]), I32), i32(size))
    for group in plan.groups:
        source = sources[group.registers]
        predicate = access.predicate(source)
        own = _own_place(access, source, steps)
        own = own if predicate.number == 1 else b.select(predicate, own, i32(-1))  # beyond the end of every array
        operands = [descriptor, places.of(group), i32(piece * size), own, common, i32(0), i32(0)]
        b.intrinsic("llvm.amdgcn.raw.ptr.buffer.load.lds", "void", operands, metadata=copied_scope(b))
