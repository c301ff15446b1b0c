"""Accumulators that matrix instructions take over: what names them, and which of them something else still uses."""

from collections.abc import Sequence

from treadle.ir.ancestry import ancestors
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, scf


def accumulator_names(results: Sequence[SSAValue]) -> set[SSAValue]:
    """All values that may be one of some results: what loops and branches carry and give of them as well."""
    found, pending = set[SSAValue](), list(results)
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        for use in value.uses:
            op, at = use.operation, use.index
            loop = op.parent_op() if isinstance(op, scf.YieldOp) else op
            if isinstance(op, scf.ForOp):
                at -= 3
            if isinstance(loop, scf.ForOp) and at >= 0:
                pending += [loop.body.block.args[1 + at], loop.results[at]]
            elif isinstance(loop, scf.IfOp) and op is not loop:
                pending.append(loop.results[at])
    return found


def is_used_beside(value: SSAValue, chain: Operation) -> bool:
    """Whether something that may come after `chain` uses a tile that it takes over as its accumulator, under whatever name.

    Constants are never in flight.
    """
    if isinstance(value.owner, arith.ConstantOp):
        return False
    later = [use for use in value.uses if not _is_over(use.operation, chain)]
    if len(later) > 1 or _is_repeated(value, chain):
        return True
    if isinstance(value, BlockArgument) and value.index and isinstance(loop := value.block.parent_op(), scf.ForOp):
        return is_used_beside(loop.iter_args[value.index - 1], loop)
    if isinstance(value.owner, scf.IfOp):
        at = value.owner.results.index(value)
        ends = [region.block.last_op for region in value.owner.regions if region.blocks]
        return any(is_used_beside(end.operands[at], end) for end in ends if end is not None)
    return False


def _is_repeated(value: SSAValue, chain: Operation) -> bool:
    """Whether a loop around `chain` takes over a tile from outside itself, in each iteration."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    for inside in (chain, *ancestors(chain)):
        if inside.parent is home or isinstance(inside.parent_op(), scf.ForOp):
            return inside.parent is not home
    return False


def _is_over(user: Operation, chain: Operation) -> bool:
    """Whether an operation stands before another one of its own block. (A loop's next iteration has tiles of its own.)"""
    return user.parent is chain.parent and user.is_before_in_block(chain)
