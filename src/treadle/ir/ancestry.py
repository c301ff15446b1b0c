"""What is around an operation or a block."""

from collections.abc import Iterator

from treadle.ir.core import Block, Operation


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
