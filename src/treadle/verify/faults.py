"""Faulty variants of a right program: every synchronisation operation removed, weakened, and moved by one operation that matters.

Pure: variants are clones. A variant is not always wrong (an operation may be stronger than needed); what must be wrong is the removal of an
operation that `lint.needed_sync_ops` names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from treadle.dialects import sync, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.limits import machine_of
from treadle.ir.core import Block, IsTerminator, Operation
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import location_of, set_location

Kind = Literal["remove", "weaken", "earlier", "later"]
Root = TypeVar("Root", bound=Operation)
_REMOVABLE = (
    sync.BarrierOp,
    sync.NamedBarrierOp,
    sync.ClusterBarrierOp,
    sync.FenceOp,
    sync.CommitOp,
    sync.WaitOp,
    sync.ArriveOp,
    sync.MbarrierExpectOp,
    sync.WaitPhaseOp,
    tile.AwaitTurnOp,
    tile.PassTurnOp,
)
EXPECT_SHORT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """One variant. `index`: the number of the changed operation in a walk of the root (of the original)."""

    kind: Kind
    description: str
    index: int
    root: Operation

    @property
    def kernel(self) -> tile.KernelOp:
        """The first kernel of the root: the changed one where the root is a kernel."""
        return next(op for op in self.root.walk() if isinstance(op, tile.KernelOp))


def is_sync(op: Operation) -> bool:
    """Whether an operation orders memory (and can be removed)."""
    return isinstance(op, _REMOVABLE)


def faults(root: Operation, kinds: tuple[Kind, ...] = ("remove", "weaken", "earlier", "later")) -> Iterator[Fault]:
    """All faults of a kernel or of the kernels of a module, operation by operation."""
    for index, op in enumerate(root.walk()):
        where = location_of(op)
        name = op.name + (f" at {where}" if where else "")
        if "remove" in kinds and is_sync(op):
            yield Fault("remove", f"{name} removed", index, changed(root, index, erase))
        if "weaken" in kinds:
            for what, change in weakenings(op):
                yield Fault("weaken", f"{name}: {what}", index, changed(root, index, change))
        for kind in ("earlier", "later"):
            if kind in kinds and is_sync(op) and _destination(op, kind) is not None:
                yield Fault(kind, f"{name} moved {kind}", index, changed(root, index, _mover(kind)))


def changed(root: Root, index: int, change: Callable[[Operation], None]) -> Root:
    """A clone of `root` in which `change` was done to operation `index` of the walk."""
    clone = root.clone()
    change(list(clone.walk())[index])
    return clone


def erase(op: Operation) -> None:
    """Remove an operation without results."""
    op.detach()
    op.erase()


def weakenings(op: Operation) -> Iterator[tuple[str, Callable[[Operation], None]]]:
    """What can be taken from an operation without removing it."""
    match op:
        case sync.WaitOp():
            yield "one more group pending", lambda o: set_pending(o, 1)
            if _tells_reads(op) and op.read is None:
                yield "waits for the reads only", _only_read
        case sync.BarrierOp():
            if op.bare is None and _has_local_queue(op):
                yield "bare", _make_bare
            if op.groups is None:
                yield "group 0 only", _make_conditional
        case sync.NamedBarrierOp():
            if op.warps.value.data > 1:
                yield "half the warps", lambda o: set_warps(o, cast(sync.NamedBarrierOp, o).warps.value.data // 2)
                yield "one warp fewer", lambda o: set_warps(o, cast(sync.NamedBarrierOp, o).warps.value.data - 1)
            yield "one warp more", lambda o: set_warps(o, cast(sync.NamedBarrierOp, o).warps.value.data + 1)
            if op.arrive is None:
                yield "arrives without waiting", _only_arrive
            if op.per_group is not None:
                yield "one barrier for all groups", _one_for_all
        case sync.WaitPhaseOp():
            yield "other parity", flip_parity
        case tile.CountInOp():
            if op.releases:
                yield "releases nothing", lambda o: set_order(o, acquires=True)
            if op.acquires:
                yield "acquires nothing", lambda o: set_order(o, releases=True)
            yield "counts to one more", lambda o: count_by(o, 1)
            yield "counts to one less", lambda o: count_by(o, -1)
        case tile.AwaitTurnOp() | tile.PassTurnOp():
            if op.releases or op.acquires:
                yield "releases nothing" if op.releases else "acquires nothing", set_order
            if isinstance(op, tile.PassTurnOp):
                yield "does not reset the counter", lambda o: count_by(o, 1)
                yield "resets the counter a turn early", lambda o: count_by(o, -1)
            yield "another turn", lambda o: turn_by(o, 1)
        case sync.ArriveOp() if len(op.peer_ranks()) > 1:
            for rank in op.peer_ranks():
                yield f"not in workgroup {rank}", lambda o, rank=rank: _leave_out_peer(o, rank)
        case sync.MbarrierExpectOp():
            if op.byte_count.value.data > EXPECT_SHORT_BYTES:
                yield f"{EXPECT_SHORT_BYTES} bytes fewer", _expect_less
        case _:
            return


def set_pending(op: Operation, change: int) -> None:
    """Add to the pending groups of a wait."""
    wait = cast(sync.WaitOp, op)
    wait.pending = builtin.IntegerAttr(wait.pending.value.data + change, builtin.i64)


def _only_read(op: Operation) -> None:
    cast(sync.WaitOp, op).read = builtin.UnitAttr()


def _make_bare(op: Operation) -> None:
    cast(sync.BarrierOp, op).bare = builtin.UnitAttr()


def _make_conditional(op: Operation) -> None:
    cast(sync.BarrierOp, op).groups = tile.i64_array([0])


def set_warps(op: Operation, warps: int) -> None:
    """Let a named barrier count so many warps."""
    cast(sync.NamedBarrierOp, op).warps = builtin.IntegerAttr(warps, builtin.i64)


def _leave_out_peer(op: Operation, rank: int) -> None:
    arrive = cast(sync.ArriveOp, op)
    arrive.peers = tile.i64_array([peer for peer in arrive.peer_ranks() if peer != rank])


def _only_arrive(op: Operation) -> None:
    cast(sync.NamedBarrierOp, op).arrive = builtin.UnitAttr()


def _one_for_all(op: Operation) -> None:
    cast(sync.NamedBarrierOp, op).per_group = None


def _expect_less(op: Operation) -> None:
    expect = cast(sync.MbarrierExpectOp, op)
    expect.byte_count = builtin.IntegerAttr(expect.byte_count.value.data - EXPECT_SHORT_BYTES, builtin.i64)


def flip_parity(op: Operation) -> None:
    """Let a wait_phase wait for the other parity."""
    wait = cast(sync.WaitPhaseOp, op)
    block = cast(Block, wait.parent)
    one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.i32))
    flipped = arith.XOrIOp(wait.parity, one.result)
    for new in (one, flipped):
        set_location(new, wait)
        block.insert_op_before(new, wait)
    wait.operands[1] = flipped.result


def set_order(op: Operation, *, releases: bool = False, acquires: bool = False) -> None:
    """Take from the order of what is done at a counter what is not named."""
    arrival = cast(tile.OrderedCounterOp, op)
    words = [word for word, kept in (("release", releases and arrival.releases), ("acquire", acquires and arrival.acquires)) if kept]
    arrival.set_order(words[0] if words else "relaxed")


def count_by(op: Operation, by: int) -> None:
    """Let an arrival, or a turn, count to another number."""
    _add_to_operand(op, len(op.operands) - 1, by)


def turn_by(op: Operation, by: int) -> None:
    """Let the start or end of a turn be that of another one."""
    _add_to_operand(op, 0, by)


def _add_to_operand(op: Operation, number: int, by: int) -> None:
    block = cast(Block, op.parent)
    more = arith.ConstantOp(builtin.IntegerAttr(by, builtin.IndexType()))
    changed_value = arith.AddiOp(op.operands[number], more.result)
    for new in (more, changed_value):
        set_location(new, op)
        block.insert_op_before(new, op)
    op.operands[number] = changed_value.result


def _has_local_queue(op: Operation) -> bool:
    spec = machine_of(op)
    return spec is not None and spec.queue_for("local") is not None


def _tells_reads(op: sync.WaitOp) -> bool:
    spec = machine_of(op)
    queue = spec.queue(op.queue.data) if spec is not None else None
    return queue is not None and queue.tells_reads


def matters(op: Operation) -> bool:
    """Whether an operation orders or touches memory, or holds such operations."""
    if op.regions:
        return isinstance(op, scf.ForOp | scf.IfOp) or op.name == "pipe.roles"
    return is_sync(op) or (isinstance(op, HasEffects) and bool(op.effects()))


def _destination(op: Operation, kind: str) -> Operation | None:
    """The next operation that matters, past which the operation is moved; None where nothing is there or values forbid it."""
    other = op.next_op if kind == "later" else op.prev_op
    while other is not None:
        if other.has_trait(IsTerminator):
            return None
        if kind == "earlier" and any(value.owner is other for value in op.operands):
            return None
        if matters(other):
            return other
        other = other.next_op if kind == "later" else other.prev_op
    return None


def _mover(kind: str) -> Callable[[Operation], None]:
    def move(op: Operation) -> None:
        other = _destination(op, kind)
        block = cast(Block, op.parent)
        if other is None:
            return
        op.detach()
        if kind == "later":
            block.insert_op_after(op, other)
        else:
            block.insert_op_before(op, other)

    return move
