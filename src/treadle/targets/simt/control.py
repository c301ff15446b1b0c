"""Structured control flow: `scf.for`, `scf.if`, with tiles carried as one value a register."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from treadle.codegen.llvm_text import I8, Value, bit_width, poison, vector, zero
from treadle.dialects.tile import ContractOp
from treadle.errors import InternalError
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.targets.simt.context import Gathered, KernelContext
from treadle.targets.simt.small_floats import is_taken_apart_late
from treadle.targets.simt.types import WORD_BYTES, in_words

EmitBlock = Callable[[Block], None]


def _yielded(block: Block) -> list[SSAValue]:
    last = block.last_op
    if not isinstance(last, scf.YieldOp):
        raise InternalError("a region of scf ends without scf.yield")
    return list(last.operands)


def _is_zero(values: Sequence[Value]) -> bool:
    return all(value.text == zero(value.type).text for value in values)


def _begins_as_zero(ctx: KernelContext, argument: SSAValue, start: SSAValue, block: Block) -> bool:
    """Whether a carried tile starts as zero and is read by one matrix instruction of the loop's body alone, which can start a sum."""
    if not isinstance(argument.type, builtin.TensorType) or not _is_zero(ctx.tile(start)):
        return False
    uses = list(argument.uses)
    if len(uses) != 1:
        return False
    user = uses[0].operation
    return isinstance(user, ContractOp) and uses[0].index == 2 and user.parent is block and ctx.hooks.can_start_sums(user)


class Group(NamedTuple):
    """How a loop carries a tile: `size` registers as one vector. `words`: so many vectors of bytes as words, whose elements are the tile's
    registers in `order` (as in `Gathered`).
    """

    size: int
    words: int = 0
    order: tuple[int, ...] = ()


def _group_of(ctx: KernelContext, argument: SSAValue, start: SSAValue) -> Group:
    """How a loop carries the tile of a block argument: bytes that are loaded ahead stay in the words they came in."""
    held = ctx.words_of(start)
    if held is not None and is_taken_apart_late(argument):
        return Group(WORD_BYTES * (bit_width(held.vectors[0].type) // 32), len(held.vectors), held.order)
    return Group(ctx.hooks.carried_group(argument))


def _grouped(ctx: KernelContext, values: Sequence[SSAValue], groups: Sequence[Group], start: bool = False) -> list[Value]:
    """`ctx.flatten` with the registers of tiles in vectors of `groups`."""
    found: list[Value] = []
    for value, group in zip(values, groups, strict=True):
        if group.words:
            found += _as_words(ctx, value, group)
            continue
        flat = ctx.flatten([value])
        if group.size == 1:
            found += flat
            continue
        for at in range(0, len(flat), group.size):
            registers = flat[at : at + group.size]
            found.append(ctx.hooks.carried_start(ctx, value, registers) if start else ctx.pack(registers))
    return found


def _as_words(ctx: KernelContext, value: SSAValue, group: Group) -> Sequence[Value]:
    """A tile of bytes in the words of a group."""
    kind = in_words(vector(group.size, I8))
    held = ctx.words_of(value)
    if held is not None and held.order == group.order and all(one.type == kind for one in held.vectors):
        return held.vectors
    registers = ctx.flatten([value])
    elements = dict(zip(group.order or range(len(registers)), registers, strict=True))
    packed = [ctx.pack([elements[at + i] for i in range(group.size)]) for at in range(0, group.words * group.size, group.size)]
    return [ctx.b.bitcast(one, kind) for one in packed]


def _bind_grouped(ctx: KernelContext, values: Sequence[SSAValue], groups: Sequence[Group], carried: Sequence[Value]) -> None:
    """The opposite of `_grouped`."""
    left = iter(carried)
    for value, group in zip(values, groups, strict=True):
        if not isinstance(value.type, builtin.TensorType):
            ctx.bind_flat([value], [next(left)])
            continue
        flat = [next(left) for _ in range(group.words or ctx.layout(value).num_registers // group.size)]
        kind = vector(group.size, I8) if group.words else ""
        ctx.bind(value, Gathered(tuple(flat), kind, group.order) if group.size > 1 else flat)


def emit_for(ctx: KernelContext, op: scf.ForOp, emit_block: EmitBlock) -> None:
    """A counted loop. Tiles from outside that a wait in it makes ready are carried, so that nothing reads them above the wait."""
    b, ranges = ctx.b, ctx.ranges
    block = op.body.block
    lower, upper = ranges.of(op.lb), ranges.of(op.ub)
    arguments, starts = list(block.args), list(op.iter_args)
    groups = [_group_of(ctx, argument, start) for argument, start in zip(arguments[1:], starts, strict=True)]
    renewed = list(ctx.in_flight.renewed.get(op, ()))
    carried = _grouped(ctx, starts, groups, start=True) + ctx.flatten(renewed)
    skipped = list(carried)  # what a loop without a trip gives
    begun: list[SSAValue] = []
    at = 0
    for argument, start, group in zip(arguments[1:], starts, groups, strict=True):
        count = group.words or _registers(ctx, start) // group.size
        if group.size == 1 and _begins_as_zero(ctx, argument, start, block):
            begun.append(argument)
            carried[at : at + count] = [poison(value.type) for value in carried[at : at + count]]
        at += count
    if upper.high <= lower.low:
        _bind_never(ctx, op, starts)
        return
    yielded = _yielded(block)
    runs_once = lower.high < upper.low
    first = ctx.scalar(op.lb)
    with b.loop(first, ctx.scalar(op.ub), ctx.scalar(op.step), carried, runs_once=runs_once, skipped=skipped) as loop:
        ctx.bind(arguments[0], loop.index)
        inner = len(loop.carried) - len(ctx.flatten(renewed))
        _bind_grouped(ctx, arguments[1:], groups, loop.carried[:inner])
        ctx.bind_flat(renewed, loop.carried[inner:])
        for argument in begun:
            ctx.accumulate[argument] = b.icmp("ne", loop.index, first)
        emit_block(block)
        loop.next(_grouped(ctx, yielded, groups) + ctx.flatten(renewed))
    _bind_grouped(ctx, list(op.results), groups, loop.results[:inner])
    ctx.bind_flat(renewed, loop.results[inner:])
    ctx.hooks.after_loop(ctx, op)


def _registers(ctx: KernelContext, value: SSAValue) -> int:
    return ctx.layout(value).num_registers if isinstance(value.type, builtin.TensorType) else 1


def _bind_never(ctx: KernelContext, op: scf.ForOp, starts: Sequence[SSAValue]) -> None:
    """A loop that makes no trip gives what it starts from; its body is not emitted."""
    for result, start in zip(op.results, starts, strict=True):
        ctx.bind_flat([result], ctx.flatten([start]))


def emit_if(ctx: KernelContext, op: scf.IfOp, emit_block: EmitBlock) -> None:
    """A conditional, with results where both regions give some; tiles that a wait in one region makes ready are merged behind it."""
    decided = ctx.ranges.decided(op.cond)
    if decided is not None:
        taken = op.true_region if decided else op.false_region
        if taken.blocks:
            emit_block(taken.block)
            ctx.bind_flat(list(op.results), ctx.flatten(_yielded(taken.block)))
        return
    renewed = list(ctx.in_flight.renewed.get(op, ()))
    before = ctx.flatten(renewed)
    with ctx.b.conditional(ctx.scalar(op.cond)) as branch:
        for region, enter in ((op.true_region, branch.then), (op.false_region, branch.otherwise)):
            if not region.blocks and not renewed:
                continue
            ctx.bind_flat(renewed, before)
            with enter():
                if region.blocks:
                    emit_block(region.block)
                if op.results or renewed:
                    branch.give(ctx.flatten(_yielded(region.block) if op.results else []) + ctx.flatten(renewed))
    count = len(branch.results) - len(before)
    ctx.bind_flat(list(op.results), branch.results[:count])
    ctx.bind_flat(renewed, branch.results[count:])
