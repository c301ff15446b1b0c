"""Waits for phases, each with the parity it needs: the phases of a ring are bits of one i32 value that loops and branches carry.

The phase of a slot's barrier flips with every fill, and every fill is waited for once, so each wait flips its slot's bit. With one slot
the value is the parity itself.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from treadle.dialects import sync, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, OpResult, Region, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import set_location
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before
from treadle.transforms.kernel.synchronisation.fill_flow import PhaseWait, Ring


def insert_phase_waits(kernel: tile.KernelOp, barriers: Mapping[Ring, SSAValue], waits: Sequence[PhaseWait]) -> dict[Operation, Operation]:
    """Insert waits. Gives what stands for loops and branches that carry phases now."""
    replaced: dict[Operation, Operation] = {}
    for ring, barrier in barriers.items():
        mine: dict[Operation, list[PhaseWait]] = {}
        for wait in waits:
            if wait.ring is ring:
                before = wait.before
                while before in replaced:
                    before = replaced[before]
                mine.setdefault(before, []).append(wait)
        if mine:
            zero = arith.ConstantOp(builtin.IntegerAttr(0, builtin.i32))
            owner = barrier.owner
            if not isinstance(owner, Operation):
                raise InternalError("a barrier that nothing allocates")
            insert_after(owner, zero)
            _Phases(barrier, ring, mine, replaced).block(kernel.body.block, zero.result)
    return replaced


def slot_barrier(before: Operation, barrier: SSAValue, ring: Ring, indices: tuple[SSAValue, ...]) -> tuple[SSAValue, SSAValue | None]:
    """The barrier of a slot and the slot's number, made before an operation; the one barrier and None where there are no slots."""
    if ring.slots == 1:
        return barrier, None
    extents = tile.shared_layout_of(next(iter(ring.buffers)).result).shape[: ring.dims]
    number = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        count = arith.ConstantOp(builtin.IntegerAttr(extent, builtin.IndexType()))
        scaled = arith.MuliOp(number, count.result)
        total = arith.AddiOp(scaled.result, index)
        insert_before(before, count, scaled, total)
        number = total.result
    slot = sync.MbarrierSlotOp(barrier, number)
    insert_before(before, slot)
    return slot.result, number


def standing_for(value: SSAValue, replaced: Mapping[Operation, Operation]) -> SSAValue:
    """A value, or what took its place where it was a result of a loop or a branch that was replaced."""
    while isinstance(value, OpResult) and value.op in replaced:
        value = replaced[value.op].results[value.index]
    return value


class _Phases:
    """Threads the phases of one ring through the kernel."""

    def __init__(
        self, barrier: SSAValue, ring: Ring, waits: dict[Operation, list[PhaseWait]], replaced: dict[Operation, Operation]
    ) -> None:
        self._barrier, self._ring, self._waits, self._replaced = barrier, ring, waits, replaced

    def block(self, block: Block, phases: SSAValue) -> SSAValue:
        """The phases after a block."""
        for op in tuple(block.ops):
            for wait in self._waits.get(op, ()):
                phases = self._wait(op, wait, phases)
            if self._has_waits(op):
                phases = self._region(op, phases)
        return phases

    def _has_waits(self, op: Operation) -> bool:
        return any(inner in self._waits for inner in op.walk() if inner is not op)

    def _wait(self, op: Operation, wait: PhaseWait, phases: SSAValue) -> SSAValue:
        one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.i32))
        indices = tuple(standing_for(index, self._replaced) for index in wait.indices)
        barrier, number = slot_barrier(op, self._barrier, self._ring, indices)
        if number is None:
            flipped = arith.XOrIOp(phases, one.result)
            insert_before(op, sync.WaitPhaseOp(barrier, phases), one, flipped)
            return flipped.result
        slot = arith.IndexCastOp(number, builtin.i32)
        shifted = arith.ShRUIOp(phases, slot.result)
        parity = arith.AndIOp(shifted.result, one.result)
        bit = arith.ShLIOp(one.result, slot.result)
        flipped = arith.XOrIOp(phases, bit.result)
        insert_before(op, one, slot, shifted, parity, sync.WaitPhaseOp(barrier, parity.result), bit, flipped)
        return flipped.result

    def _region(self, op: Operation, phases: SSAValue) -> SSAValue:
        if isinstance(op, scf.ForOp):
            wider = self._replaced[op] = with_iteration_argument(op, phases)
            _also_yield(wider.body.block, self.block(wider.body.block, wider.body.block.args[-1]))
            return wider.results[-1]
        if isinstance(op, scf.IfOp):
            branch = self._replaced[op] = _with_result(op)
            for region in branch.regions:
                _also_yield(region.block, self.block(region.block, phases))
            return branch.results[-1]
        raise InternalError(f"an asynchronous copy inside {op.name}")


def with_iteration_argument(loop: scf.ForOp, initial: SSAValue) -> scf.ForOp:
    """Replace a loop by one that carries one more value; its body does not yield it yet."""
    body = loop.body
    block = body.block
    block.insert_arg(initial.type, len(block.args))
    loop.detach_region(body)
    return _replace(loop, scf.ForOp(loop.lb, loop.ub, loop.step, [*loop.iter_args, initial], body))


def _with_result(branch: scf.IfOp) -> scf.IfOp:
    """Replace a conditional by one with one more i32 result and both branches; they do not yield it yet."""
    regions = list(branch.regions)
    for region in regions:
        branch.detach_region(region)
    taken, other = regions
    if not other.blocks:
        other = Region(Block([scf.YieldOp()]))
    return _replace(branch, scf.IfOp(branch.cond, [*(r.type for r in branch.results), builtin.i32], taken, other))


OpT = TypeVar("OpT", scf.ForOp, scf.IfOp)


def _replace(old: OpT, new: OpT) -> OpT:
    new.attributes.update(old.attributes)
    set_location(new, old)
    cast(Block, old.parent).insert_op_before(new, old)
    for before, after in zip(old.results, new.results, strict=False):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    old.detach()
    old.erase()
    return new


def _also_yield(block: Block, value: SSAValue) -> None:
    terminator = block.last_op
    if not isinstance(terminator, scf.YieldOp):
        raise InternalError("a region of scf without scf.yield")
    terminator.operands = (*terminator.operands, value)
