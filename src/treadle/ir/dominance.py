"""Values are used behind their definitions. Upstream's verifier does not ask, and a value that depends on itself has no end."""

from xdsl.parser.core import ForwardDeclaredValue

from treadle.ir.core import Block, Operation, SSAValue


def used_too_early(root: Operation) -> tuple[Operation, int] | None:
    """The first operation in `root` with an operand (its number) that stands before its definition; None where there is none.

    What `root` reads from outside counts as defined, and so does what blocks of a region read of each other.
    """
    return _check(root, set(), root)


def _check(op: Operation, defined: set[SSAValue], root: Operation) -> tuple[Operation, int] | None:
    for region in op.regions:
        blocks = list(region.blocks)
        if len(blocks) > 1:
            defined.update(result for block in blocks for inner in block.ops for result in inner.results)
        for block in blocks:
            defined.update(block.args)
        for inner in (inner for block in blocks for inner in block.ops):
            for number, operand in enumerate(inner.operands):
                if operand not in defined and _is_made_in(operand, root):
                    return inner, number
            if inner.regions and (found := _check(inner, defined, root)) is not None:
                return found
            defined.update(inner.results)
    return None


def _is_made_in(value: SSAValue, root: Operation) -> bool:
    if isinstance(value, ForwardDeclaredValue):  # a name that the parser has met before its definition, and not replaced
        return True
    above = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    while above is not None and above is not root:
        above = above.parent_op()
    return above is root
