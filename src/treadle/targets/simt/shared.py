"""Shared memory: where buffers lie, `tile.local_load`, `tile.local_store`."""

from treadle.codegen.llvm_text import Value, i32, vector
from treadle.dialects.tile import AllocOp, LocalLoadOp, LocalStoreOp, ints, memref_type, shared_layout_of, tile_type
from treadle.errors import InternalError
from treadle.ir.dialects import builtin
from treadle.layout.access import AddressPlan, RegisterGroup, address_plan
from treadle.layout.tile_layout import TileLayout
from treadle.targets.simt.context import Buffer, KernelContext
from treadle.targets.simt.threads import holds_first_copy, linear
from treadle.targets.simt.types import element_bytes, memory_type

MAX_VECTOR_BYTES = 16


def place_buffers(ctx: KernelContext) -> tuple[dict[AllocOp, int], int]:
    """Byte offset of every buffer of a kernel (those that `byte_offset` names where it is set) and the bytes they take in all."""
    offsets: dict[AllocOp, int] = {}
    allocs = [op for op in ctx.kernel.body.walk() if isinstance(op, AllocOp)]
    end = 0
    for alloc in sorted(allocs, key=lambda a: a.byte_offset is None):
        size = shared_layout_of(alloc.result).size * element_bytes(memref_type(alloc.result).element_type)
        align = ctx.hooks.shared_alignment(alloc)
        if alloc.byte_offset is not None:
            at = alloc.byte_offset.value.data
            if at % align:
                raise InternalError(f"shared buffer {alloc.result.type} at {at}, which is not {align}-byte aligned")
        else:
            at = -(-end // align) * align
        offsets[alloc] = at
        end = max(end, at + size)
    return offsets, end


def bind_buffers(ctx: KernelContext, offsets: dict[AllocOp, int]) -> None:
    """Bind every buffer to its address."""
    for alloc, at in offsets.items():
        element, layout = memref_type(alloc.result).element_type, shared_layout_of(alloc.result)
        address = ctx.hooks.buffer_address(ctx.b, ctx.shared, at, at + layout.size * element_bytes(element))
        ctx.bind(alloc.result, Buffer(address, at, layout, element))


class SharedAddresses:
    """Addresses of the accesses of one plan: a base of the thread, and constants."""

    def __init__(self, ctx: KernelContext, buffer: Buffer, plan: AddressPlan) -> None:
        self.ctx, self.buffer, self.plan = ctx, buffer, plan
        self.size = element_bytes(buffer.element)
        self.xor = linear(ctx, [v * self.size for v in plan.lane_bits], [v * self.size for v in plan.warp_bits])
        self.add = linear(ctx, [v * self.size for v in plan.lane_adds], [v * self.size for v in plan.warp_adds], add=True)
        self.mask = plan.thread_mask * self.size

    def of(self, group: RegisterGroup) -> Value:
        """Address of the first element of a group."""
        b = self.ctx.b
        toggled = group.constant_xor * self.size & self.mask
        fixed = group.constant_xor * self.size - toggled + group.constant_add * self.size
        start = b.add(b.xor(self.xor, i32(toggled)), self.add)
        return b.gep(b.gep(self.buffer.address, start, flags=""), i32(fixed), flags="")


def _plan(ctx: KernelContext, layout: TileLayout, buffer: Buffer, offsets: tuple[int, ...]) -> tuple[AddressPlan, SharedAddresses, str]:
    plan = address_plan(layout, buffer.layout, element_bytes(buffer.element), MAX_VECTOR_BYTES, offsets)
    kind = memory_type(buffer.element)
    return plan, SharedAddresses(ctx, buffer, plan), vector(plan.vector, kind) if plan.vector > 1 else kind


def read_width(op: LocalLoadOp, layout: TileLayout) -> int:
    """Elements that each access of a load into registers of this layout brings."""
    size = element_bytes(memref_type(op.source).element_type)
    return address_plan(layout, shared_layout_of(op.source), size, MAX_VECTOR_BYTES, ints(op.offsets)).vector


def emit_local_load(ctx: KernelContext, op: LocalLoadOp) -> None:
    """Read a tile from a shared buffer."""
    if ctx.hooks.local_load(ctx, op):
        return
    b, layout, buffer = ctx.b, ctx.layout(op.result), ctx.buffer(op.source)
    plan, addresses, kind = _plan(ctx, layout, buffer, ints(op.offsets))
    align = element_bytes(buffer.element) * plan.vector
    registers: list[Value] = [i32(0)] * layout.num_registers
    loaded: dict[tuple[int, int], list[Value]] = {}
    is_bool, metadata = tile_type(op.result).element_type == builtin.i1, ctx.hooks.shared_read(b)
    for group in plan.groups:
        key = (group.constant_xor, group.constant_add)
        if key not in loaded:
            address = addresses.of(group)
            found = (
                b.load(kind, address, align, metadata=metadata)
                if op.peer is None
                else ctx.hooks.load_from_peer(b, kind, address, op.peer.value.data)
            )
            loaded[key] = ctx.unpack(found)
        for register, value in zip(group.registers, loaded[key], strict=True):
            registers[register] = b.trunc(value, "i1") if is_bool else value
    ctx.bind(op.result, registers)


def emit_local_store(ctx: KernelContext, op: LocalStoreOp) -> None:
    """Write a tile to a shared buffer, by the first of several holders only."""
    if ctx.hooks.local_store(ctx, op):
        return
    b, layout, buffer = ctx.b, ctx.layout(op.value), ctx.buffer(op.destination)
    plan, addresses, _ = _plan(ctx, layout, buffer, ints(op.offsets))
    align = element_bytes(buffer.element) * plan.vector
    values = ctx.hooks.stored_values(ctx, op, ctx.tile(op.value))
    done: set[tuple[int, int]] = set()
    with b.when(holds_first_copy(ctx, layout)):
        for group in plan.groups:
            key = (group.constant_xor, group.constant_add)
            if key in done:
                continue
            done.add(key)
            elements = [values[r] for r in group.registers]
            if elements[0].type == "i1":
                elements = [b.zext(e, "i8") for e in elements]
            b.store(ctx.pack(elements), addresses.of(group), align)
