"""What a scalar of a body is computed from."""

from collections.abc import Collection

from treadle.ir.core import Block, Operation, SSAValue


def depends_on(value: SSAValue, sources: Collection[SSAValue], body: Block) -> bool:
    """Whether a scalar of `body` is computed from one of `sources`."""
    pending, seen = [value], set[SSAValue]()
    while pending:
        current = pending.pop()
        if current in sources:
            return True
        if current in seen:
            continue
        seen.add(current)
        owner = current.owner
        if isinstance(owner, Operation) and owner.parent_block() is body:
            pending.extend(owner.operands)
    return False
