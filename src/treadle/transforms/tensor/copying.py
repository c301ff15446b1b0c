"""Copies of blocks: what calls, branches and iterations become."""

from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue


def copy_block(block: Block, mapping: dict[SSAValue, SSAValue], anchor: Operation, scope: str = "") -> list[SSAValue]:
    """Insert copies of a block's operations before `anchor`, reading through `mapping`; what the operands of its terminator have become.

    `scope`: where there are several copies, what tells this one apart. Dispatch groups that it names are its own: "g" becomes "g.scope".
    """
    target = anchor.parent_block()
    last = block.last_op
    if target is None or last is None:
        raise InternalError("a block without a place or an end")
    for op in block.ops:
        if op is last:
            break
        copy = op.clone(value_mapper=mapping)
        mapping.update(zip(op.results, copy.results, strict=True))
        target.insert_op_before(copy, anchor)
        for inner in copy.walk() if scope else ():
            if isinstance(attr := inner.attributes.get(dispatch.GROUP), dispatch.GroupAttr):
                inner.attributes[dispatch.GROUP] = dispatch.GroupAttr(tuple((f"{name}.{scope}", role) for name, role in attr.data))
    return [mapping.get(value, value) for value in last.operands]
