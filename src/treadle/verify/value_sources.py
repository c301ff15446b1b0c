"""What values are made of, through loops and branches."""

from collections.abc import Sequence
from typing import cast

from treadle.dialects import tile
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.operands import operands_of


def sources_of(value: SSAValue) -> list[SSAValue]:
    """The values that decide about `value`, through loops and branches; none where it is any number."""
    owner = value.owner
    if isinstance(value, BlockArgument):
        loop = cast(Block, owner).parent_op()
        if not isinstance(loop, scf.ForOp):
            return []
        if value.index == 0:
            return [loop.lb, loop.step]
        return [loop.iter_args[value.index - 1], yielded(loop)[value.index - 1]]
    if isinstance(owner, scf.ForOp):
        at = owner.results.index(value)
        return [owner.body.block.args[at + 1], owner.iter_args[at], yielded(owner)[at], owner.lb, owner.ub, owner.step]
    if isinstance(owner, scf.IfOp):
        at = owner.results.index(value)
        ends = [region.block.last_op for region in owner.regions if region.blocks]
        return [owner.cond, *(end.operands[at] for end in ends if end is not None)]
    if not isinstance(owner, Operation) or owner.regions or isinstance(owner, tile.OpaqueOp):
        return []
    return list(operands_of(owner))


def yielded(loop: scf.ForOp) -> Sequence[SSAValue]:
    """What an iteration hands to the next."""
    end = loop.body.block.last_op
    return operands_of(end) if end is not None else ()
