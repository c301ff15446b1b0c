"""What moves register tiles: splat, iota, broadcast, permute, layout conversions within a warp, reductions."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import I32, I64, TRUE, Builder, Value, i32, i64
from treadle.dialects.tile import (
    BroadcastOp,
    ConvertLayoutOp,
    ExtractOp,
    IotaOp,
    PermuteOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    SplatOp,
    ints,
    tile_type,
)
from treadle.errors import InternalError
from treadle.ir.core import Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.layout.bits import pack, set_bits
from treadle.layout.conversion import RegisterChoice, ShuffleRound, convert
from treadle.layout.grouping import group_index
from treadle.layout.slicing import slice_registers
from treadle.layout.tile_layout import TileLayout, broadcast_registers
from treadle.plan.index_range import INDEX_LIMIT
from treadle.targets.simt.casts import CASTS, emit_cast
from treadle.targets.simt.constants import emit_constant
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.elementwise import emit_elementwise
from treadle.targets.simt.lanes import through_lanes
from treadle.targets.simt.threads import linear, thread_coordinates
from treadle.targets.simt.types import register_type


def emit_splat(ctx: KernelContext, op: SplatOp) -> None:
    """One scalar in every register; an index as an integer of the element's width."""
    scalar = ctx.scalar(op.scalar)
    if isinstance(op.scalar.type, builtin.IndexType):
        scalar = ctx.b.resize(scalar, register_type(tile_type(op.result).element_type))
    ctx.bind(op.result, [scalar] * ctx.layout(op.result).num_registers)


def emit_iota(ctx: KernelContext, op: IotaOp) -> None:
    """The coordinate along an axis."""
    b, layout, axis = ctx.b, ctx.layout(op.result), op.axis.value.data
    part = thread_coordinates(ctx, layout)[axis]
    taken = _thread_bits(layout, axis)
    kind = register_type(tile_type(op.result).element_type)

    def element(at: int) -> Value:
        return b.sext(b.xor(part, i32(at)) if at & taken else b.add(part, i32(at)), kind)

    ctx.bind(op.result, [element(coordinates[axis]) for _, coordinates in layout.registers()])


def emit_rounded_place(ctx: KernelContext, op: Operation) -> bool:
    """`iota & -2^k`, whose elements within a run of a thread are one value: of the parts of their coordinates. False for all else."""
    made = op.operands[0].owner if op.name == "arith.andi" else None
    mask = _one_number(op.operands[1]) if isinstance(made, IotaOp) else None
    if not isinstance(made, IotaOp) or mask is None or mask >= 0 or -mask & (-mask - 1):
        return False
    b, layout, axis = ctx.b, ctx.layout(op.results[0]), made.axis.value.data
    part, taken = thread_coordinates(ctx, layout)[axis], _thread_bits(layout, axis)
    if taken & ~mask:
        part, taken = b.and_(part, i32(mask)), taken & mask
    kind, known = register_type(tile_type(op.results[0]).element_type), dict[int, Value]()
    for _, coordinates in layout.registers():
        at = coordinates[axis] & mask
        if at not in known:
            known[at] = b.sext(b.xor(part, i32(at)) if at & taken else b.add(part, i32(at)), kind)
    ctx.bind(op.results[0], [known[coordinates[axis] & mask] for _, coordinates in layout.registers()])
    return True


def _thread_bits(layout: TileLayout, axis: int) -> int:
    """The bits of a coordinate that lanes and warps set."""
    taken = 0
    for basis in layout.lane + layout.warp:
        taken |= basis[axis]
    return taken


def _one_number(value: SSAValue) -> int | None:
    """The element of a constant tile of one integer."""
    op = value.owner
    while isinstance(op, BroadcastOp):
        op = op.source.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(dense := op.value, builtin.DenseIntOrFPElementsAttr) or not dense.is_splat():
        return None
    number = next(iter(dense.get_values()))
    return number if isinstance(number, int) else None


def emit_broadcast(ctx: KernelContext, op: BroadcastOp) -> None:
    """Registers repeated; the layouts must agree about who holds what."""
    where = broadcast_registers(ctx.layout(op.source), ctx.layout(op.result))
    if where is None:
        raise InternalError(f"tile.broadcast of {op.source.type} to {op.result.type} moves data between threads")
    values = ctx.tile(op.source)
    ctx.bind(op.result, [values[register] for register in where])


def emit_slice(ctx: KernelContext, op: SliceOp) -> None:
    """Registers of the box."""
    registers = ctx.tile(op.source)
    extents = tuple(tile_type(op.result).get_shape())
    chosen = slice_registers(ctx.layout(op.source), ints(op.offsets), extents)
    ctx.bind(op.result, [registers[r] for r in chosen])


def emit_permute(ctx: KernelContext, op: PermuteOp) -> None:
    """Dimensions renamed; registers may change their order."""
    order = ints(op.order)
    source = ctx.layout(op.source)
    if source.permute(order) != ctx.layout(op.result):
        raise InternalError(f"tile.permute of {op.source.type} to {op.result.type} moves data between threads")
    values = ctx.tile(op.source)
    ctx.bind(op.result, [values[register] for register in source.permute_registers(order)])


def emit_reshape(ctx: KernelContext, op: ReshapeOp) -> None:
    """The same registers under other coordinates."""
    if ctx.layout(op.source).reshape(tile_type(op.result).get_shape()) != ctx.layout(op.result):
        raise InternalError(f"tile.reshape of {op.source.type} to {op.result.type} moves data between threads")
    ctx.bind(op.result, ctx.tile(op.source))


def emit_extract(ctx: KernelContext, op: ExtractOp) -> None:
    """The one element, which every thread holds; the nearest that an index holds."""
    element, b = ctx.tile(op.source)[0], ctx.b
    if element.type == I64 and ctx.index_type == I32:
        for limit, beyond in ((i64(-INDEX_LIMIT - 1), "slt"), (i64(INDEX_LIMIT), "sgt")):
            element = b.select(b.icmp(beyond, element, limit), limit, element)
        element = b.trunc(element, I32)
    known = ctx.hooks.uniform(b, element) if element.type == I32 else element
    ctx.bind(op.result, ctx.as_index(known))


# --- layout conversions


def _parity(b: Builder, thread: Value, mask: int) -> Value:
    """i1: the parity of `thread & mask`."""
    bits = list(set_bits(mask))
    found = b.lshr(thread, i32(bits[0]))
    for bit in bits[1:]:
        found = b.xor(found, b.lshr(thread, i32(bit)))
    return b.trunc(found, "i1")


def _chosen(ctx: KernelContext, choice: RegisterChoice, values: Sequence[Value]) -> Value:
    level = [values[max(register, 0)] for register in choice.registers]
    for mask in choice.masks:
        bit = _parity(ctx.b, ctx.thread, mask)
        level = [ctx.b.select(bit, level[i + 1], level[i]) for i in range(0, len(level), 2)]
    return level[0]


def _received(ctx: KernelContext, turn: ShuffleRound, value: Value, registers: list[Value | None]) -> None:
    b, choice = ctx.b, turn.receive
    for index, register in enumerate(choice.registers):
        if register < 0:
            continue
        old = registers[register]
        if old is None:
            registers[register] = value  # threads whose value this is not are served by another round
            continue
        condition = TRUE
        for bit, mask in enumerate(choice.masks):
            here = _parity(b, ctx.thread, mask)
            condition = b.and_(condition, here if index >> bit & 1 else b.not_(here))
        registers[register] = b.select(condition, value, old)


def emit_convert_layout(ctx: KernelContext, op: ConvertLayoutOp) -> None:
    """Registers renamed, or rounds of shuffles."""
    source, result = ctx.layout(op.source), ctx.layout(op.result)
    plan = convert(source, result)
    values = ctx.tile(op.source)
    if plan.kind in ("identity", "register"):
        ctx.bind(op.result, [values[register] for register in plan.registers])
        return
    if plan.kind == "shared":
        raise InternalError(f"tile.convert_layout of {op.source.type} to {op.result.type} crosses warps")
    b = ctx.b
    registers: list[Value | None] = [None] * result.num_registers
    for turn in plan.rounds:
        value = _chosen(ctx, turn.send, values)
        mask = turn.xor_mask(ctx.lanes)
        if mask is None:
            count = ctx.lanes.bit_length() - 1
            lane = b.xor(linear(ctx, turn.lane_bits[:count], turn.lane_bits[count:]), i32(turn.lane_constant))
            value = through_lanes(b, value, lambda v, lane=lane: ctx.hooks.shuffle_index(b, v, lane))
        elif mask:
            value = through_lanes(b, value, lambda v, mask=mask: ctx.hooks.shuffle_xor(b, v, mask))
        _received(ctx, turn, value, registers)
    found = [value for value in registers if value is not None]
    if len(found) != len(registers):
        raise InternalError("a shuffle plan leaves registers out")
    ctx.bind(op.result, found)


# --- reductions


def _inline(ctx: KernelContext, region: Region, args: Sequence[Value]) -> list[Value]:
    """The values that a combiner yields."""
    for argument, value in zip(region.block.args, args, strict=True):
        ctx.bind(argument, value)
    for op in region.block.ops:
        if op.name == "tile.yield":
            return [ctx.scalar(value) for value in op.operands]
        if isinstance(op, arith.ConstantOp):
            emit_constant(ctx, op)
        elif op.name in CASTS:
            emit_cast(ctx, op)
        else:
            emit_elementwise(ctx, op)
    raise InternalError("a combiner ends without tile.yield")


def _result_registers(source: TileLayout, result: TileLayout, axis: int, mask: int) -> list[int]:
    """For each register of the source, the register of the result it is reduced into; raises InternalError where threads disagree."""

    def flat(at: Sequence[int]) -> tuple[int, ...]:
        return tuple(group_index(value, mask) if dim == axis else value for dim, value in enumerate(at))

    if [flat(b) for b in source.lane] != list(result.lane) or [flat(b) for b in source.warp] != list(result.warp):
        raise InternalError(f"tile.reduce along {axis} of {source.to_lists()} cannot give {result.to_lists()}")
    where: dict[int, int] = {}
    for register, key in enumerate(result.register_keys()):
        where.setdefault(key, register)
    return [where[pack(flat(at))] for at in source.register_coordinates()]


def emit_reduce(ctx: KernelContext, op: ReduceOp) -> None:
    """In the thread first (a balanced tree over the registers), then across the lanes along the axis."""
    b, axis = ctx.b, op.axis.value.data
    source, result = ctx.layout(op.inputs[0]), ctx.layout(op.results_[0])
    mask = op.groups()
    if any(basis[axis] & ~mask for basis in source.warp):
        raise InternalError(f"tile.reduce along {axis} crosses warps: {source.to_lists()}")
    if any(basis[axis] & mask and basis[axis] & ~mask for basis in source.lane):
        raise InternalError(f"tile.reduce along {axis} in groups that lanes mix: {source.to_lists()}")
    targets = _result_registers(source, result, axis, mask)
    columns = [ctx.tile(value) for value in op.inputs]
    partial: dict[int, list[list[Value]]] = {}
    seen: set[tuple[int, ...]] = set()
    for register, coordinates in source.registers():
        if coordinates not in seen:  # copies count once
            seen.add(coordinates)
            partial.setdefault(targets[register], []).append([column[register] for column in columns])
    lanes = [bit for bit in source.lane_bits_along(axis) if source.lane[bit][axis] & ~mask]
    done: dict[int, list[Value]] = {}
    for target, values in partial.items():
        while len(values) > 1:
            paired = [_inline(ctx, op.combiner, [*left, *right]) for left, right in zip(values[::2], values[1::2], strict=False)]
            values = paired + (values[-1:] if len(values) % 2 else [])
        total = values[0]
        for bit in lanes:
            moved = [through_lanes(b, v, lambda x, bit=bit: ctx.hooks.shuffle_xor(b, x, 1 << bit)) for v in total]
            total = _inline(ctx, op.combiner, [*total, *moved])
        done[target] = total
    keys = result.register_keys()
    first = {key: register for register, key in reversed(list(enumerate(keys)))}
    for index, value in enumerate(op.results_):
        ctx.bind(value, [done[first[key]][index] for key in keys])
