"""What operations are computed from, however long the chain is."""

from treadle.analysis.data_flow import DataFlow
from treadle.ir.builtin import IndexType
from treadle.ir.core import Block
from treadle.ir.dialects import arith
from treadle.ir.emitter import at_end


def test_chains_are_followed_without_recursion() -> None:
    """A list of groups is a chain of insertions as long as the list; Python's stack is not."""
    block = Block(arg_types=[IndexType()])
    emit, found = at_end(block), block.args[0]
    for _ in range(3000):
        found = emit.insert(arith.AddiOp(found, block.args[0]))
    assert block.last_op is not None
    assert DataFlow(block).blocks_of(block.last_op) == frozenset()
