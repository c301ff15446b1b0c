"""Transaction barriers of asynchronous copies: which copies complete together, and the parity each wait carries around its loops.

Copies of one block that nothing reads in between share a barrier: one `expect` before the first, one wait before the first operation
that touches what they write. The phase of a barrier flips with every completion, so its parity is carried by every loop around the copies.
"""

from collections.abc import Sequence
from typing import cast

from treadle.analysis.shared_accesses import SharedAccess, shared_accesses
from treadle.dialects import sync, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import set_location
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before


def copy_groups(kernel: tile.KernelOp) -> tuple[tuple[tuple[tile.CopyOp, ...], Operation], ...]:
    """Copies that share a barrier, each group with the operation before which it must be complete."""
    groups: list[tuple[tuple[tile.CopyOp, ...], Operation]] = []
    for region in kernel.walk():
        for block in (block for inner in region.regions for block in inner.blocks):
            groups.extend(_groups_of(block))
    return tuple(groups)


def _groups_of(block: Block) -> list[tuple[tuple[tile.CopyOp, ...], Operation]]:
    groups: list[tuple[tuple[tile.CopyOp, ...], Operation]] = []
    current: list[tile.CopyOp] = []
    written: list[SharedAccess] = []
    for op in block.ops:
        touched = [access for inner in op.walk() for access in shared_accesses(inner)]
        if current and (op is block.last_op or any(access.overlaps(write) for access in touched for write in written)):
            groups.append((tuple(current), op))
            current, written = [], []
        if isinstance(op, tile.CopyOp) and op.barrier is None:
            current.append(op)
            written.extend(access for access in touched if access.is_write)
    if current:
        raise InternalError("a block ends with an asynchronous copy")
    return groups


def copied_bytes(op: tile.CopyOp) -> int:
    """Bytes that a copy reports to its barrier: the whole box, filled parts included."""
    return sum(access.last - (access.first or 0) for access in shared_accesses(op) if access.is_write)


def with_iteration_argument(loop: scf.ForOp, initial: SSAValue) -> scf.ForOp:
    """Replace a loop by one that carries one more value; its body does not yield it yet."""
    body = loop.body
    block = body.block
    block.insert_arg(initial.type, len(block.args))
    loop.detach_region(body)
    wider = scf.ForOp(loop.lb, loop.ub, loop.step, [*loop.iter_args, initial], body)
    wider.attributes.update(loop.attributes)
    set_location(wider, loop)
    home = cast(Block, loop.parent)
    home.insert_op_before(wider, loop)
    for old, new in zip(loop.results, wider.results, strict=False):
        old.replace_all_uses_with(new)
    loop.detach()
    loop.erase()
    return wider


def _also_yield(loop: scf.ForOp, value: SSAValue) -> None:
    terminator = loop.body.block.last_op
    if not isinstance(terminator, scf.YieldOp):
        raise InternalError("scf.for without scf.yield")
    wider = scf.YieldOp(*terminator.operands, value)
    insert_before(terminator, wider)
    terminator.detach()
    terminator.erase()


def loops_around(op: Operation) -> list[scf.ForOp]:
    """The loops around an operation, outermost first; raises `InternalError` for other structured control flow."""
    found: list[scf.ForOp] = []
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, tile.KernelOp):
        if not isinstance(parent, scf.ForOp):
            raise InternalError(f"an asynchronous copy inside {parent.name}")
        found.append(parent)
        parent = parent.parent_op()
    return found[::-1]


def insert_copy_barriers(kernel: tile.KernelOp) -> None:
    """Give every group of copies its barrier, its expected bytes and its wait."""
    for copies, before in copy_groups(kernel):
        _insert_barrier(kernel, copies, before)


def _insert_barrier(kernel: tile.KernelOp, copies: Sequence[tile.CopyOp], before: Operation) -> None:
    top = kernel.body.block.first_op
    if top is None:
        raise InternalError("a kernel without operations")
    barrier = sync.MbarrierAllocOp(1)
    zero = arith.ConstantOp(builtin.IntegerAttr(0, builtin.i32))
    insert_before(top, barrier, zero)
    insert_before(copies[0], sync.MbarrierExpectOp(barrier.result, sum(copied_bytes(op) for op in copies)))
    for op in copies:
        signalling = tile.CopyOp(op.view, list(op.offsets), tile.ints(op.dims), op.destination, path=op.path.data, barrier=barrier.result)
        insert_before(op, signalling)
        op.detach()
        op.erase()
    parity: SSAValue = zero.result
    loops: list[scf.ForOp] = []
    for loop in loops_around(before):
        wider = with_iteration_argument(loop, parity)
        loops.append(wider)
        parity = wider.body.block.args[-1]
    wait = sync.WaitPhaseOp(barrier.result, parity)
    insert_before(before, wait)
    if not loops:
        return
    one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.i32))
    flipped = arith.XOrIOp(parity, one.result)
    insert_after(wait, one, flipped)
    following: SSAValue = flipped.result
    for loop in reversed(loops):
        _also_yield(loop, following)
        following = loop.results[-1]
