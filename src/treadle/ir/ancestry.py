"""What is around an operation or a block, and where its operands come from."""

from collections.abc import Callable, Iterator
from operator import attrgetter

from treadle.ir.core import Block, Operation, SSAValue

operands_of: Callable[[Operation], tuple[SSAValue, ...]] = attrgetter("_operands")
"""The operands of an operation, in order, as they are: for who reads those of thousands. `Operation.operands` makes a view to write to."""


def ancestors(op: Operation) -> Iterator[Operation]:
    """The operations around one, innermost first."""
    parent = op.parent_op()
    while parent is not None:
        yield parent
        parent = parent.parent_op()


def blocks_around(block: Block) -> Iterator[Block]:
    """A block, then those around it, innermost first."""
    current: Block | None = block
    while current is not None:
        yield current
        parent = current.parent_op()
        current = None if parent is None else parent.parent


def in_block(op: Operation, block: Block) -> Operation | None:
    """The operation of a block that `op` is or lies in; None where it does not."""
    return next((around for around in (op, *ancestors(op)) if around.parent is block), None)


def maker(value: SSAValue) -> Operation | None:
    """The operation that makes a value; None for block arguments."""
    return value.owner if isinstance(value.owner, Operation) else None


def captured(op: Operation) -> list[SSAValue]:
    """Every value that `op` and what is nested in it reads from outside."""
    inside = set(op.walk())
    found: list[SSAValue] = []
    for inner in op.walk():
        for operand in inner.operands:
            owner = operand.owner
            holder = owner if isinstance(owner, Operation) else owner.parent_op()
            if holder not in inside:
                found.append(operand)
    return found
