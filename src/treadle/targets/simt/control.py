"""Structured control flow: `scf.for`, `scf.if`, with tiles carried as one value a register."""

from collections.abc import Callable, Sequence

from treadle.codegen.llvm_text import Value
from treadle.dialects.sync import WaitOp
from treadle.dialects.tile import ContractOp
from treadle.errors import InternalError
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.ranges import Ranges

EmitBlock = Callable[[Block], None]


def _yielded(block: Block) -> list[SSAValue]:
    last = block.last_op
    if not isinstance(last, scf.YieldOp):
        raise InternalError("a region of scf ends without scf.yield")
    return list(last.operands)


def _still_in_flight(value: SSAValue, block: Block) -> bool:
    """Whether a matrix instruction of `block` gives `value` and no complete wait follows it there."""
    op = value.owner
    if not isinstance(op, ContractOp) or op.instruction.data == "fma" or op.parent is not block:
        return False
    after = op.next_op
    while after is not None:
        if isinstance(after, WaitOp) and after.pending.value.data == 0:
            return False
        after = after.next_op
    return True


def _grouped(ctx: KernelContext, values: Sequence[SSAValue], groups: Sequence[int], start: bool = False) -> list[Value]:
    """`ctx.flatten` with the registers of tiles in vectors of `groups`."""
    found: list[Value] = []
    for value, group in zip(values, groups, strict=True):
        flat = ctx.flatten([value])
        if group == 1:
            found += flat
            continue
        for at in range(0, len(flat), group):
            registers = flat[at : at + group]
            found.append(ctx.hooks.carried_start(ctx, value, registers) if start else ctx.pack(registers))
    return found


def _bind_grouped(ctx: KernelContext, values: Sequence[SSAValue], groups: Sequence[int], carried: Sequence[Value]) -> None:
    """The opposite of `_grouped`."""
    left = iter(carried)
    for value, group in zip(values, groups, strict=True):
        if not isinstance(value.type, builtin.TensorType):
            ctx.bind_flat([value], [next(left)])
            continue
        count = ctx.layout(value).num_registers // group
        flat = [next(left) for _ in range(count)]
        ctx.bind_flat([value], [element for v in flat for element in ctx.unpack(v)] if group > 1 else flat)


def emit_for(ctx: KernelContext, ranges: Ranges, op: scf.ForOp, emit_block: EmitBlock) -> None:
    """A counted loop."""
    b = ctx.b
    block = op.body.block
    lower, upper = ranges.of(op.lb), ranges.of(op.ub)
    arguments = list(block.args)
    groups = [ctx.hooks.carried_group(argument) for argument in arguments[1:]]
    carried = _grouped(ctx, list(op.iter_args), groups, start=True)
    yielded = _yielded(block)
    runs_once = lower.high < upper.low
    with b.loop(ctx.scalar(op.lb), ctx.scalar(op.ub), ctx.scalar(op.step), carried, runs_once=runs_once) as loop:
        ctx.bind(arguments[0], loop.index)
        _bind_grouped(ctx, arguments[1:], groups, loop.carried)
        for argument, value in zip(arguments[1:], yielded, strict=True):
            if _still_in_flight(value, block):
                ctx.in_flight[argument] = None
        emit_block(block)
        loop.next(_grouped(ctx, yielded, groups))
    _bind_grouped(ctx, list(op.results), groups, loop.results)
    for argument, value, result in zip(arguments[1:], yielded, op.results, strict=True):
        ctx.in_flight.pop(argument, None)
        if value in ctx.in_flight:
            del ctx.in_flight[value]
            ctx.in_flight[result] = None


def emit_if(ctx: KernelContext, op: scf.IfOp, emit_block: EmitBlock) -> None:
    """A conditional, with results where both regions give some."""
    with ctx.b.conditional(ctx.scalar(op.cond)) as branch:
        for region, enter in ((op.true_region, branch.then), (op.false_region, branch.otherwise)):
            if not region.blocks:
                continue
            with enter():
                emit_block(region.block)
                if op.results:
                    branch.give(ctx.flatten(_yielded(region.block)))
    ctx.bind_flat(list(op.results), branch.results)
