"""Shares of a contraction's terms: one of its operands is zero outside a part of what is reduced, all reduced loops taken as one.

That part is what the text says, and the reference evaluates it so. A kernel reads the operand as it stands and walks the part alone; which
terms a share has is then its own choice, as long as all shares together have each term once: it takes whole steps of its loop.
"""

from typing import TYPE_CHECKING, Final

from treadle.ir.core import BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.plan.expr import Expr, constant, symbol
from treadle.records import dataclass

if TYPE_CHECKING:
    from treadle.dialects.dispatch import KernelOp

SHARE: Final = "treadle.share"
"""Of the generic that is an operand within one share, and zero elsewhere: how many shares there are. It reads the operand, and the
share's number is the one block index that it is computed from.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of the number `block`, a block symbol, of `count`."""

    block: str
    count: int

    def steps(self, size: Expr, step: int) -> tuple[Expr, Expr]:
        """Where the share of an axis begins and how long it is, in whole steps: shares differ by one at most."""
        whole = -(-(size.as_int() or 0) // step)
        each, more = divmod(whole, self.count)
        place = symbol(self.block)
        first, behind = ((at * each + at * more // self.count) * step for at in (place, place + 1))
        return first, (behind - first if more else constant(each * step))


def unshared(value: SSAValue) -> SSAValue:
    """The operand as it stands, of one that is zero outside a share; every other value itself."""
    op = value.owner
    return op.inputs[0] if isinstance(op, linalg.ops.GenericOp) and SHARE in op.attributes else value


def share_of(kernel: "KernelOp", value: SSAValue) -> Share | None:
    """The share of which an operand is; None for one that is whole."""
    op = value.owner
    if not isinstance(op, Operation) or not isinstance(count := op.attributes.get(SHARE), builtin.IntegerAttr):
        return None
    (block,) = (name for name, argument in zip(kernel.blocks, _places(kernel), strict=True) if _depends(op, argument))
    return Share(block, count.value.data)


def _places(kernel: "KernelOp") -> list[BlockArgument]:
    """The arguments that hold the block indices: the last ones."""
    arguments = list(kernel.body.block.args)
    return arguments[len(arguments) - len(kernel.blocks) :]


def _depends(op: Operation, argument: BlockArgument) -> bool:
    """Whether an operation is computed from an argument, in itself or through what it captures."""
    left: list[Operation] = [op]
    seen: set[Operation] = set()
    while left:
        current = left.pop()
        if current in seen:
            continue
        seen.add(current)
        for inner in current.walk():
            if argument in inner.operands:
                return True
            left += [value.owner for value in inner.operands if isinstance(value.owner, Operation)]
    return False
