"""Bulk copies that signal a barrier, which is told the bytes to come before the first of them."""

from collections.abc import Sequence
from math import prod

from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import sync, tile
from treadle.ir.core import Operation, SSAValue
from treadle.transforms.kernel.kernel_ir import erase, insert_before


def announce(first: Operation, copies: Sequence[tile.CopyOp], barrier: SSAValue) -> None:
    """Announce the bytes of copies before `first`, and let them signal `barrier`."""
    insert_before(first, sync.MbarrierExpectOp(barrier, sum(map(_landing_bytes, copies))))
    for op in copies:
        ranks, offsets, relative = op.multicast_ranks() or None, list(op.offsets), op.relative is not None
        dims, path = tile.ints(op.dims), op.path.data
        made = tile.CopyOp(op.view, offsets, dims, op.destination, path=path, barrier=barrier, multicast=ranks, relative=relative)
        insert_before(op, made)
        erase(op)


def _landing_bytes(copy: tile.CopyOp) -> int:
    """Bytes that land in this workgroup's buffer when every workgroup of the cluster makes a copy: whole boxes, filled parts included."""
    kind = tile.memref_type(copy.destination)
    return prod(kind.get_shape()) * element_bytes(kind.element_type) * max(1, len(copy.multicast_ranks()))
