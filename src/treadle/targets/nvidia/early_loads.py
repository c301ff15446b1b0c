"""Loads that a kernel makes ahead of a barrier for what stands behind it: they are issued where they stand.

LLVM puts a load in front of its first use, as few registers as that takes: behind the barriers of a reduction the threads would wait for
memory once more.
"""

from treadle.dialects import sync, tile
from treadle.ir.core import Operation


def is_early(op: Operation | None) -> bool:
    """Whether an operation is a load that is first used behind a barrier behind it, in its own block."""
    if not isinstance(op, tile.LoadOp):
        return False
    users = {use.operation for use in op.result.uses}
    following = op.next_op
    while following is not None:
        if isinstance(following, sync.BarrierOp):
            return bool(users)
        if any(inner in users for inner in following.walk()):
            return False
        following = following.next_op
    return False
