"""One wait for what a step of a pipelined loop stores to shared memory.

LLVM waits before each store for the load that brings it: as many waits as stores, which stand side by side behind the matrix instructions
that had the loads' time to pass. Loads come back in order, so that one wait for the last of them is as long as all of these together.
"""

from collections.abc import Iterator

from treadle.codegen.llvm_text import I32, Value, bit_width, vector
from treadle.dialects.tile import LoadOp, LocalStoreOp, ints, shared_layout_of
from treadle.ir.core import Block, Operation
from treadle.ir.dialects import scf
from treadle.layout.access import address_plan
from treadle.targets.simt.context import KernelContext
from treadle.targets.simt.shared import MAX_VECTOR_BYTES
from treadle.targets.simt.types import element_bytes

WORD = 32


def wait_once(ctx: KernelContext, op: Operation | None) -> None:
    """Ahead of the first of several stores to shared memory, use all that they store of what loads have brought."""
    if not isinstance(op, LocalStoreOp) or isinstance(op.prev_op, LocalStoreOp):
        return
    loop = op.parent_op()
    if not isinstance(loop, scf.ForOp) or "pipelined" not in loop.attributes:
        return
    found = [value for store in _run(op) if _is_loaded(store) for value in _stored(ctx, store)]
    if len(found) > 1 and all(bit_width(value.type) % WORD == 0 for value in found):
        words = [ctx.b.bitcast(value, _words(value)) for value in found]
        ctx.b.asm("", ",".join("v" for _ in words), words)


def _run(op: LocalStoreOp) -> Iterator[LocalStoreOp]:
    at: Operation | None = op
    while isinstance(at, LocalStoreOp):
        yield at
        at = at.next_op


def _is_loaded(op: LocalStoreOp) -> bool:
    """Whether a store's value is what a load has brought, in this trip or in one before."""
    owner = op.value.owner
    return isinstance(owner, Block | LoadOp)


def _stored(ctx: KernelContext, op: LocalStoreOp) -> list[Value]:
    """What each store of an operation writes; of elements that are taken apart late, what holds them until then."""
    if (words := ctx.words_of(op.value)) is not None:
        return list(words.vectors)
    buffer, values = ctx.buffer(op.destination), ctx.tile(op.value)
    shared, size = shared_layout_of(op.destination), element_bytes(buffer.element)
    plan = address_plan(ctx.layout(op.value), shared, size, MAX_VECTOR_BYTES, ints(op.offsets))
    groups = {(group.constant_xor, group.constant_add): group for group in plan.groups}
    return [ctx.pack([values[register] for register in group.registers]) for group in groups.values()]


def _words(value: Value) -> str:
    count = bit_width(value.type) // WORD
    return I32 if count == 1 else vector(count, I32)
