"""Fixes by mbarriers and clusters: an expect, an arrival or a wait for a phase that is not there, meetings of the cluster.

Candidates are built from what the kernel has: a ring's slot is picked by an index that the same block picks slots with, a parity is an i32
of the block or its opposite. They are proposed, not proven: whoever asks verifies each.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from treadle.dialects import pipe, sync, tile
from treadle.ir.core import Block, IsTerminator, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.ir.locations import location_of, set_location
from treadle.verify.decode import copied_bytes

MAX_PARITIES = 4
Change = Callable[[list[Operation]], None]
"""What is done to the operations of a clone, in the order of a walk."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change and what it is called."""

    text: str
    change: Change


def proposals(kernel: tile.KernelOp, ops: list[Operation], rule: str, first: int | None, second: int) -> Iterator[Proposal]:
    """All candidates for a finding about operations `first` (if there is one) and `second` of a walk, likely ones first."""
    if kernel.cluster_size() > 1:
        yield from _meetings(ops)
    if rule == "V5":
        yield from _expects(kernel, ops)
        yield from _arrivals(kernel, ops)
    for flipped in (False, True):
        for place in dict.fromkeys(at for at in (second, first) if at is not None):
            yield from _waits(ops, place, flipped=flipped)


def announced_bytes(kernel: tile.KernelOp, copies: list[tile.CopyOp]) -> int:
    """Bytes that a phase gets from copies that every workgroup of the cluster issues."""

    def senders(copy: tile.CopyOp) -> int:
        return 1 if copy.multicast is None else len(copy.multicast_ranks()) if copy.relative is not None else kernel.cluster_size()

    return sum(copied_bytes(copy) * senders(copy) for copy in copies)


def _where(op: Operation) -> str:
    at = location_of(op)
    return op.name + (f" at {at}" if at else "")


def _insert(new: list[Operation], anchor: Operation, *, after: bool = False) -> None:
    block = cast(Block, anchor.parent)
    for op in reversed(new) if after else new:
        set_location(op, anchor)
        if after:
            block.insert_op_after(op, anchor)
        else:
            block.insert_op_before(op, anchor)


def _meetings(ops: list[Operation]) -> Iterator[Proposal]:
    allocs = [at for at, op in enumerate(ops) if isinstance(op, sync.MbarrierAllocOp)]
    if allocs:
        last = allocs[-1]
        text = f"add sync.cluster_barrier after {_where(ops[last])}"
        yield Proposal(text, lambda clone: _insert([sync.ClusterBarrierOp()], clone[last], after=True))
    end = next(at for at, op in enumerate(ops) if isinstance(op, tile.ReturnOp))
    yield Proposal("add sync.cluster_barrier at the end", lambda clone: _insert([sync.ClusterBarrierOp()], clone[end]))


def _expects(kernel: tile.KernelOp, ops: list[Operation]) -> Iterator[Proposal]:
    """Before the first copy of a block that signals a barrier which nothing announces bytes to."""
    seen: set[tuple[Block | None, SSAValue]] = set()
    for at, op in enumerate(ops):
        if not isinstance(op, tile.CopyOp) or op.barrier is None or (op.parent, op.barrier) in seen:
            continue
        seen.add((op.parent, op.barrier))
        users = [use.operation for use in op.barrier.uses]
        if any(isinstance(user, sync.MbarrierExpectOp) and user.parent is op.parent for user in users):
            continue
        total = announced_bytes(kernel, [user for user in users if isinstance(user, tile.CopyOp) and user.parent is op.parent])

        def change(clone: list[Operation], at: int = at, total: int = total) -> None:
            copy = cast(tile.CopyOp, clone[at])
            _insert([sync.MbarrierExpectOp(cast(SSAValue, copy.barrier), total)], copy)

        yield Proposal(f"add sync.mbarrier_expect of {total} bytes before {_where(op)}", change)


def _arrivals(kernel: tile.KernelOp, ops: list[Operation]) -> Iterator[Proposal]:
    """At the end of blocks that wait for a phase: at a barrier that another block waits for, in the slot that was waited for."""
    allocs = [at for at, op in enumerate(ops) if isinstance(op, sync.MbarrierAllocOp)]
    relative = sorted({r for op in ops if isinstance(op, tile.CopyOp) and op.relative is not None for r in op.multicast_ranks()})
    peers = relative or (list(range(kernel.cluster_size())) if kernel.cluster_size() > 1 else None)
    for at, op in enumerate(ops):
        if not isinstance(op, sync.WaitPhaseOp) or op.parent is None:
            continue
        body = list(op.parent.ops)
        waits = [other for other in body if isinstance(other, sync.WaitOp)]
        last = waits[-1] if waits else next((other for other in reversed(body) if not other.has_trait(IsTerminator)), op)
        behind = ops.index(last)
        waited = _ring(op.barrier)
        for alloc in allocs:
            arrived = [u for u in ops if isinstance(u, sync.ArriveOp) and _ring(u.barrier) is ops[alloc] and u.parent is op.parent]
            if ops[alloc] is waited or arrived:
                continue

            def change(clone: list[Operation], at: int = at, behind: int = behind, alloc: int = alloc) -> None:
                made, value = _slot(cast(sync.MbarrierAllocOp, clone[alloc]), _index(cast(sync.WaitPhaseOp, clone[at]).barrier))
                _insert([*made, sync.ArriveOp(value, peers, relative=bool(relative))], clone[behind], after=True)

            name = f" (%{ops[alloc].results[0].name_hint})" if ops[alloc].results[0].name_hint else ""
            yield Proposal(f"add sync.arrive at {_where(ops[alloc])}{name} after {_where(last)}", change)


def _waits(ops: list[Operation], place: int, *, flipped: bool) -> Iterator[Proposal]:
    """Before an operation, and before the first expect of its block: for a phase of any barrier, by any parity of the block."""
    block = ops[place].parent
    allocs = [at for at, op in enumerate(ops) if isinstance(op, sync.MbarrierAllocOp)]
    if block is None or not allocs:
        return
    anchors = [at for at, op in enumerate(ops) if op.parent is block and isinstance(op, sync.MbarrierExpectOp)][:1]
    anchors = [*(at for at in anchors if at < place), place]
    index = next((_index_at(ops, op) for op in ops[: place + 1] if op.parent is block and _index_at(ops, op) is not None), None)
    for anchor in anchors:
        for parity in _parities(ops, anchor):
            for alloc in allocs:
                ring, bit = ops[alloc].results[0].name_hint, _value(ops[parity[0]], parity[1]).name_hint
                what = f"sync.wait_phase of {'%' + ring if ring else _where(ops[alloc])}"
                how = f"parity {'not ' if flipped else ''}{'%' + bit if bit else 'as in ' + _where(ops[parity[0]])}"
                yield Proposal(f"add {what}, {how}, before {_where(ops[anchor])}", _wait_before(anchor, alloc, index, parity, flipped))


def _wait_before(anchor: int, alloc: int, index: tuple[int, int] | None, parity: tuple[int, int], flipped: bool) -> Change:
    def change(clone: list[Operation]) -> None:
        number = None if index is None else clone[index[0]].operands[index[1]]
        made, value = _slot(cast(sync.MbarrierAllocOp, clone[alloc]), number)
        bit = _value(clone[parity[0]], parity[1])
        if flipped:
            one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.i32))
            turned = arith.XOrIOp(bit, one.result)
            made, bit = [*made, one, turned], turned.result
        _insert([*made, sync.WaitPhaseOp(value, bit)], clone[anchor])

    return change


def _ring(barrier: SSAValue) -> Operation | None:
    owner = barrier.owner
    while isinstance(owner, sync.MbarrierSlotOp):
        owner = owner.source.owner
    return owner if isinstance(owner, Operation) else None


def _index(barrier: SSAValue) -> SSAValue | None:
    return barrier.owner.index if isinstance(barrier.owner, sync.MbarrierSlotOp) else None


def _slot(alloc: sync.MbarrierAllocOp, index: SSAValue | None) -> tuple[list[Operation], SSAValue]:
    """The barrier at an index of an allocation, and what picks it."""
    if alloc.slot_count() == 1 or index is None:
        return [], alloc.result
    made = sync.MbarrierSlotOp(alloc.result, index)
    return [made], made.result


def _index_at(ops: list[Operation], op: Operation) -> tuple[int, int] | None:
    """Where an operation picks a slot: its number and the operand."""
    if isinstance(op, sync.MbarrierSlotOp) or (isinstance(op, pipe.SlotOp) and op.indices):
        return ops.index(op), 1
    return None


def _value(op: Operation, which: int) -> SSAValue:
    """A result of an operation, or (from -1 down) an argument of its body."""
    return op.results[which] if which >= 0 else op.regions[0].block.args[-which - 1]


def _parities(ops: list[Operation], anchor: int) -> list[tuple[int, int]]:
    """Values of type i32 that can be seen at an operation, the nearest first: their operations and which value of each."""
    found: list[tuple[int, int]] = []
    block = ops[anchor].parent
    while block is not None and len(found) < MAX_PARITIES:
        for at in range(anchor - 1, -1, -1):
            op = ops[at]
            if op.parent is block:
                found += [(at, number) for number, result in enumerate(op.results) if result.type == builtin.i32]
        parent = block.parent_op()
        if parent is None or isinstance(parent, tile.KernelOp):
            break
        anchor = ops.index(parent)
        if len(parent.regions) == 1:
            found += [(anchor, -number - 1) for number, argument in enumerate(block.args) if argument.type == builtin.i32]
        block = parent.parent
    return found[:MAX_PARITIES]
