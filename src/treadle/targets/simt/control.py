"""Structured control flow: `scf.for`, `scf.if`, with tiles carried as one value a register."""

from collections.abc import Callable

from treadle.errors import InternalError
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import scf
from treadle.dialects.sync import WaitOp
from treadle.dialects.tile import ContractOp
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


def emit_for(ctx: KernelContext, ranges: Ranges, op: scf.ForOp, emit_block: EmitBlock) -> None:
    """A counted loop."""
    b = ctx.b
    block = op.body.block
    lower, upper = ranges.of(op.lb), ranges.of(op.ub)
    carried = ctx.flatten(list(op.iter_args))
    arguments = list(block.args)
    yielded = _yielded(block)
    runs_once = lower.high < upper.low
    with b.loop(ctx.scalar(op.lb), ctx.scalar(op.ub), ctx.scalar(op.step), carried, runs_once=runs_once) as loop:
        ctx.bind(arguments[0], loop.index)
        ctx.bind_flat(arguments[1:], loop.carried)
        for argument, value in zip(arguments[1:], yielded, strict=True):
            if _still_in_flight(value, block):
                ctx.in_flight[argument] = None
        emit_block(block)
        loop.next(ctx.flatten(yielded))
    ctx.bind_flat(list(op.results), loop.results)
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
