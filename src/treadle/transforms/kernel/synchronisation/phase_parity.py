"""Waits for phases, each with the parity it needs: the phases of a ring are bits of one i32 value that loops and branches carry.

The phase of a slot's barrier flips with every fill, and every fill is waited for once, so each wait flips its slot's bit. With one slot
the value is the parity itself.
"""

from collections.abc import Mapping, Sequence

from treadle.analysis.synchronisation.fill_flow import PhaseWait, Ring
from treadle.dialects import sync, tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.transforms.kernel.carried_values import carried_through
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before


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
                wider = self._replaced[op] = carried_through(op, phases, self.block)
                phases = wider.results[-1]
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
