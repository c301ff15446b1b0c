"""Faults seeded into the synchronisation of a kernel: each gives the same text with one operation removed, weakened or moved."""

from collections.abc import Iterator

from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin
from treadle.ir.text import parse_module
from treadle.machine import target_spec

ORDERING = (
    sync.BarrierOp,
    sync.NamedBarrierOp,
    sync.FenceOp,
    sync.CommitOp,
    sync.WaitOp,
    sync.ArriveOp,
    sync.MbarrierExpectOp,
    sync.WaitPhaseOp,
)


def kernel_of(text: str) -> tile.KernelOp:
    """The kernel of a text."""
    return next(op for op in parse_module(text, "program").walk() if isinstance(op, tile.KernelOp))


def ordering_operations(kernel: tile.KernelOp) -> list[Operation]:
    """The operations that order others."""
    return [op for op in kernel.walk() if isinstance(op, ORDERING)]


def _flip(op: sync.WaitPhaseOp) -> None:
    one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.i32))
    flipped = arith.XOrIOp(op.parity, one.result)
    block = op.parent
    assert block is not None
    block.insert_ops_before([one, flipped], op)
    op.operands[1] = flipped.result


def _plus(attribute: builtin.IntegerAttr, more: int) -> builtin.IntegerAttr:
    return builtin.IntegerAttr(attribute.value.data + more, builtin.i64)


def _weaken(op: Operation, kernel: tile.KernelOp) -> Iterator[tuple[str, object]]:
    match op:
        case sync.WaitOp():
            yield "pending + 1", lambda: op.properties.update(pending=_plus(op.pending, 1))
        case sync.WaitPhaseOp():
            yield "other parity", lambda: _flip(op)
        case sync.MbarrierExpectOp():
            yield "fewer bytes", lambda: op.properties.update(byte_count=_plus(op.byte_count, -512))
            yield "more bytes", lambda: op.properties.update(byte_count=_plus(op.byte_count, 512))
        case sync.NamedBarrierOp():
            yield "fewer warps", lambda: op.properties.update(warps=_plus(op.warps, -1))
            yield "other id", lambda: op.properties.update(id=_plus(op.id, 1))
            if op.per_group is not None:
                yield "one barrier for all groups", lambda: op.properties.pop("per_group")
        case sync.BarrierOp() if op.groups is None and op.bare is None:
            if set(target_spec(kernel.target.data).queues) & {"lgkmcnt", "dscnt"}:
                yield "bare", lambda: op.properties.update(bare=builtin.UnitAttr())
            yield "some groups", lambda: op.properties.update(groups=tile.i64_array([0]))
        case _:
            pass


def faults(text: str) -> Iterator[tuple[str, tile.KernelOp]]:
    """Every fault with its name; each kernel is a fresh copy."""
    for number, op in enumerate(ordering_operations(kernel_of(text))):
        names = ["removed", *(name for name, _ in _weaken(op, kernel_of(text)))]
        following = op.next_op
        if isinstance(following, ORDERING) and following.name != op.name:
            names.append(f"behind {following.name}")
        for name in names:
            kernel = kernel_of(text)
            chosen = ordering_operations(kernel)[number]
            if name == "removed":
                chosen.detach()
            elif name.startswith("behind"):
                after, block = chosen.next_op, chosen.parent
                assert after is not None and block is not None
                chosen.detach()
                block.insert_ops_after([chosen], after)
            else:
                change = dict(_weaken(chosen, kernel))[name]
                assert callable(change)
                change()
            yield f"{number} {op.name} {name}", kernel
