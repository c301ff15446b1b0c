"""Places in rings: the arithmetic of `pipe.advance`, and beside each slot number the parity of the rounds that were made before.

A ring's slots are used in turn from slot 0 on, so that the phases of a slot's barrier follow the rounds: the parity flips where the number
wraps. It is carried wherever the number is: by loops, into their results, past what others use (`pipe.advance` by more than one).
"""

from treadle.analysis.divisibility import constant_value
from treadle.analysis.structured_flow import yielded
from treadle.analysis.synchronisation.operations import refused
from treadle.dialects import pipe
from treadle.ir.core import BlockArgument, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.transforms.kernel.carried_values import also_yield, carried_through, with_iteration_argument
from treadle.transforms.kernel.kernel_ir import erase
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


class RingPlaces:
    """The parities of one kernel's slot numbers."""

    def __init__(self) -> None:
        self._parities: dict[SSAValue, SSAValue] = {}
        self._replaced: dict[Operation, Operation] = {}
        self._behind: dict[pipe.AdvanceOp, SSAValue] = {}

    def current(self, op: Operation) -> Operation:
        """An operation, or the wider loop that stands for it by now."""
        while op in self._replaced:
            op = self._replaced[op]
        return op

    def widened(self, loop: scf.ForOp, initial: SSAValue) -> scf.ForOp:
        """A loop that carries one more value, in place of one that does not; its body does not yield it yet."""
        wider = self._replaced[loop] = with_iteration_argument(loop, initial)
        return wider

    def parity(self, slot: SSAValue, slots: int, user: Operation) -> SSAValue:
        """The parity (i32) of the rounds before the use that a slot number stands for; TR301 at `user` where it cannot be told."""
        if slot in self._parities:
            return self._parities[slot]
        if isinstance(slot, BlockArgument) and slot.index and isinstance(loop := slot.block.parent_op(), scf.ForOp):
            return self._carried(slot, loop, slots, user)
        op = slot.owner
        match op:
            case scf.ForOp():
                argument = op.body.block.args[1 + op.results.index(slot)]
                carried = self.parity(argument, slots, user)
                loop = argument.block.parent_op()  # a wider one than `op` by now
                return loop.results[carried.index - 1] if isinstance(loop, scf.ForOp) and isinstance(carried, BlockArgument) else carried
            case scf.IfOp():
                return self._either_way(op, op.results.index(slot), slots, user)
            case arith.ConstantOp() if isinstance(op.value, builtin.IntegerAttr):
                found = _behind(op).insert(arith.ConstantOp(builtin.IntegerAttr(op.value.value.data // slots % 2, builtin.i32)))
            case pipe.AdvanceOp():
                return self._advanced(op, self.parity(op.slot, slots, op))
            case arith.RemUIOp() if constant_value(op.rhs) == slots:
                found = _parity_of(_behind(op), _behind(op).divide(op.lhs, op.rhs))
            case arith.SelectOp() if (source := _wrapped(op, slots)) is not None:
                parity, index = self.parity(source, slots, user), _behind(op)
                found = index.insert(arith.SelectOp(op.cond, flipped(index, parity), parity))
            case _:
                what = "a hand-over between roles by a slot whose number does not go around a ring"
                hint = "carry the slot's number from 0 on and step it by pipe.advance"
                raise refused(user, what, hint)
        self._parities[slot] = found
        return found

    def expand(self, kernel: Operation) -> None:
        """Write the arithmetic of the numbers whose parities nobody asked for."""
        for op in tuple(kernel.walk()):
            if isinstance(op, pipe.AdvanceOp):
                _expand(op, None)

    def _carried(self, slot: BlockArgument, loop: scf.ForOp, slots: int, user: Operation) -> SSAValue:
        start = self.parity(loop.iter_args[slot.index - 1], slots, user)
        if slot in self._parities:  # what a loop around this one carries has asked for it
            return self._parities[slot]
        block = self.widened(loop, start).body.block
        self._parities[slot] = block.args[-1]
        carried = block.args[-1]
        also_yield(block, self.parity(yielded(block)[slot.index - 1], slots, user))
        return carried

    def _either_way(self, op: scf.IfOp, at: int, slots: int, user: Operation) -> SSAValue:
        """The parity of a number that a conditional gives, as one more of its results."""
        ends = [self.parity(yielded(region.block)[at], slots, user) for region in op.regions]
        found = iter(ends)
        wider = self._replaced[op] = carried_through(self.current(op), ends[0], lambda block, value: next(found))
        self._parities[wider.results[at]] = wider.results[-1]
        return wider.results[-1]

    def _advanced(self, op: pipe.AdvanceOp, parity: SSAValue) -> SSAValue:
        if op not in self._behind:  # what a loop around it carries may have asked for it meanwhile
            slot, following = _expand(op, parity)
            self._parities[slot] = self._behind[op] = following
        return self._behind[op]


def _behind(op: Operation) -> IndexBuilder:
    return IndexBuilder(Builder(InsertPoint.after(op)), {})


def _wrapped(op: arith.SelectOp, slots: int) -> SSAValue | None:
    """The number that a selection of 0 where its successor equals `slots`, else of that, goes on from; None for other selections."""
    test, following = op.cond.owner, op.rhs.owner
    if not isinstance(test, arith.CmpiOp) or test.predicate.value.data != 0 or not isinstance(following, arith.AddiOp):
        return None
    starts_over = constant_value(test.rhs) == slots and constant_value(op.lhs) == 0
    is_step = constant_value(following.rhs) == 1 and test.lhs is op.rhs and starts_over
    return following.lhs if is_step else None


def _parity_of(index: IndexBuilder, rounds: SSAValue) -> SSAValue:
    number = index.insert(arith.IndexCastOp(rounds, builtin.i32))
    return index.insert(arith.AndIOp(number, _one(index)))


def _one(index: IndexBuilder) -> SSAValue:
    return index.insert(arith.ConstantOp(builtin.IntegerAttr(1, builtin.i32)))


def flipped(index: IndexBuilder, parity: SSAValue) -> SSAValue:
    """The other parity."""
    return index.insert(arith.XOrIOp(parity, _one(index)))


def _expand(op: pipe.AdvanceOp, parity: SSAValue | None) -> tuple[SSAValue, SSAValue]:
    """Replace a step by arithmetic. Returns the new number and its parity (the number again where no parity was given)."""
    index = IndexBuilder(Builder(InsertPoint.before(op)), {})
    slots, steps = op.slots.value.data, constant_value(op.steps)
    count = index.constant(slots)
    moved = index.add(op.slot, op.steps)
    other = None if parity is None else flipped(index, parity)
    if steps is None:
        slot = index.remainder(moved, count)
        wraps = index.insert(arith.CmpiOp(index.remainder(index.divide(moved, count), index.constant(2)), index.constant(0), "ne"))
    elif steps == 1:
        wraps = index.insert(arith.CmpiOp(moved, count, "eq"))
        slot = index.insert(arith.SelectOp(wraps, index.constant(0), moved))
    else:
        moved = index.add(op.slot, index.constant(steps % slots))
        wraps = index.insert(arith.CmpiOp(moved, count, "uge"))
        slot = index.insert(arith.SelectOp(wraps, index.subtract(moved, count), moved))
        parity, other = (other, parity) if steps // slots % 2 else (parity, other)
    following = slot if parity is None or other is None else index.insert(arith.SelectOp(wraps, other, parity))
    op.result.replace_all_uses_with(slot)
    erase(op)
    return slot, following
