"""What of a loop of contractions splits an operand on its way from one shared buffer into others: the work of a role of its own."""

from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Block, Operation
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Splitting:
    """`stores`: local stores of one block into buffers that contractions of it read. `ops`: these, and what they store: local loads of
    buffers that copies of the block fill, and arithmetic on them, which nothing else reads.
    """

    block: Block
    stores: tuple[tile.LocalStoreOp, ...]
    ops: frozenset[Operation]


def splitting_of(block: Block) -> Splitting | None:
    """What of a block splits an operand; None where nothing does, or something else has a part in it."""
    stores = tuple(op for op in block.ops if isinstance(op, tile.LocalStoreOp))
    filled = {op.destination for op in block.ops if isinstance(op, tile.CopyOp)}
    found: set[Operation] = set(stores)
    pending = [store.value.owner for store in stores]
    while pending:
        op = pending.pop()
        if op in found:
            continue
        if not isinstance(op, Operation) or op.parent is not block:
            return None
        if isinstance(op, tile.LocalLoadOp):
            if op.source not in filled:
                return None
        elif not op.name.startswith("arith.") or not all(is_tile(operand) for operand in op.operands):
            return None
        else:
            pending += [operand.owner for operand in op.operands]
        found.add(op)
    readers = [use.operation for op in found for result in op.results for use in result.uses]
    read = [use.operation for store in stores for use in store.destination.uses if use.operation is not store]
    is_whole = all(op in found for op in readers) and all(isinstance(op, tile.ContractOp) and op.parent is block for op in read)
    return Splitting(block, stores, frozenset(found)) if stores and is_whole else None


def loop_of_copies(kernel: tile.KernelOp) -> Block | None:
    """The block of the first copy that stands in a loop."""
    found = (op.parent for op in kernel.walk() if isinstance(op, tile.CopyOp) and op.parent is not kernel.body.block)
    return next(found, None)


def splitting(kernel: tile.KernelOp) -> Splitting | None:
    """What a role of its own splits in a kernel; None where there is nothing."""
    block = loop_of_copies(kernel)
    return None if block is None else splitting_of(block)
