"""Turns of a role's groups at the matrix units: each issues a step's instructions behind those of the group before it.

Without them groups that came to a step together stay together: all multiply at a time, and all compute at a time, the matrix units idle. In
turns one's arithmetic comes under the other's matrix instructions. Nothing is handed over, so no result depends on it.
"""

from treadle.analysis.synchronisation.operations import is_matrix
from treadle.dialects import pipe, sync
from treadle.dialects.agents import role_of
from treadle.ir.core import Builder, InsertPoint, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.machine import TargetSpec
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before
from treadle.transforms.kernel.synchronisation.ring_places import RingPlaces, flipped
from treadle.transforms.kernel.tiling.index_math import IndexBuilder


def order_issue(roles: pipe.RolesOp, places: RingPlaces, spec: TargetSpec) -> None:
    """Write the barriers of all loops of a kernel's roles that ask for turns: one a group, in its phase while it is the group's turn."""
    for loop in [op for op in roles.walk() if isinstance(op, scf.ForOp) and pipe.ISSUE_TURNS in op.attributes]:
        role = role_of(loop)
        matrix = [op for op in loop.body.block.ops if is_matrix(op, spec)]
        if role is None or role.groups < 2 or not matrix:
            continue
        barriers = sync.MbarrierAllocOp(1, role.groups)
        insert_before(roles, barriers)
        index = IndexBuilder(Builder(InsertPoint.before(loop)), {})
        group = index.insert(pipe.GroupIdOp())
        mine, next_one = (index.insert(sync.MbarrierSlotOp(barriers.result, at)) for at in (group, _following(index, group, role.groups)))
        insert_before(matrix[0], sync.WaitPhaseOp(mine, _parity(loop, places, group)))
        insert_after(matrix[-1], sync.ArriveOp(next_one))


def _following(index: IndexBuilder, group: SSAValue, groups: int) -> SSAValue:
    """The number of the group whose turn is next."""
    more = index.add(group, index.constant(1))
    return index.insert(arith.SelectOp(index.insert(arith.CmpiOp(more, index.constant(groups), "eq")), index.constant(0), more))


def _parity(loop: scf.ForOp, places: RingPlaces, group: SSAValue) -> SSAValue:
    """The parity that a group's turn waits for: a fresh barrier has completed parity 1, so that the first group begins at once."""
    index = IndexBuilder(Builder(InsertPoint.before(loop)), {})
    begins = index.insert(arith.CmpiOp(group, index.constant(0), "eq"))
    initial = index.insert(arith.ExtUIOp(begins, builtin.i32))
    block = loop.body.block
    places.widened(loop, initial)
    end = block.last_op
    if isinstance(end, scf.YieldOp):
        end.operands = (*end.operands, flipped(IndexBuilder(Builder(InsertPoint.before(end)), {}), block.args[-1]))
    return block.args[-1]
