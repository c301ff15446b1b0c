"""Branches of a loop that are taken in one of its first steps each, in order: what a counter that then stands still says."""

from treadle.analysis.slot_values import SlotValues
from treadle.analysis.structured_flow import yielded
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, scf

EQUAL = 0
"""The number of the comparison "eq"."""


def first_steps(loop: scf.ForOp, values: SlotValues) -> dict[Operation, int]:
    """For each conditional of a loop that is executed in step n alone, n; none unless the loop is known to make all these steps.

    The conditional compares a carried counter with n; the counter starts at 0 and steps by one until it stands at their number.
    """
    block, found = loop.body.block, dict[Operation, int]()
    ends = yielded(block)
    for op in block.ops:
        if not isinstance(op, scf.IfOp) or op.results or op.false_region.blocks:
            continue
        test = op.cond.owner
        if not isinstance(test, arith.CmpiOp) or test.predicate.value.data != EQUAL or test.lhs not in block.args[1:]:
            continue
        number = block.args.index(test.lhs) - 1
        at, stands = values.of(test.rhs).constant, _stands_at(ends[number], test.lhs, values)
        if values.of(loop.iter_args[number]).constant == 0 and at is not None and stands is not None and 0 <= at < stands:
            found[op] = at
    trips = values.trips(loop).constant or 0
    return found if sorted(found.values()) == list(range(len(found))) and trips >= len(found) else {}


def _stands_at(following: SSAValue, counter: SSAValue, values: SlotValues) -> int | None:
    """Where a counter ends that steps by one: the bound of the smaller of its successor and a constant."""
    op = following.owner
    if not isinstance(op, arith.MinSIOp) or not isinstance(op.lhs.owner, arith.AddiOp) or op.lhs.owner.lhs is not counter:
        return None
    return values.of(op.rhs).constant if values.of(op.lhs.owner.rhs).constant == 1 else None
