"""Barriers between the workgroups of a cluster that read what the others leave in their shared memory.

In a role each group arrives at all workgroups once it has written its part, and waits until all groups of all of them have; clusters meet
before the roles, when all barriers are there, and behind them, since nobody may end while others still read. Outside of roles clusters
meet instead.
"""

from treadle.analysis.synchronisation.operations import refused
from treadle.dialects import pipe, sync, tile
from treadle.ir.core import Block
from treadle.ir.dialects import arith, builtin, scf
from treadle.transforms.kernel.kernel_ir import insert_after, insert_before


def insert_peer_barriers(kernel: tile.KernelOp) -> None:
    """Order the reads of peers' memory behind what is written there in the same block, as long as nothing orders them yet.

    Raises TR301 for reads in loops and branches: they would take a barrier for each time.
    """
    ordered = any(isinstance(op, sync.ClusterBarrierOp) for op in kernel.walk())
    blocks: dict[Block, list[tile.LocalLoadOp]] = {}
    for op in () if ordered else kernel.walk():
        if isinstance(op, tile.LocalLoadOp) and op.peer is not None and op.parent is not None:
            blocks.setdefault(op.parent, []).append(op)
    met: set[pipe.RolesOp] = set()
    for block, loads in blocks.items():
        around = block.parent_op()
        if isinstance(around, scf.ForOp | scf.IfOp):
            raise refused(loads[0], "a read of another workgroup's memory in a loop or branch", "read it once, in the role's own block")
        if not isinstance(around, pipe.RolesOp):
            insert_before(loads[0], sync.ClusterBarrierOp())
            insert_after(loads[-1], sync.ClusterBarrierOp())
            continue
        _order_in_role(kernel, around, loads)
        met.add(around)
    for roles in met:
        insert_before(roles, sync.ClusterBarrierOp())
        insert_after(roles, sync.ClusterBarrierOp())


def _order_in_role(kernel: tile.KernelOp, roles: pipe.RolesOp, loads: list[tile.LocalLoadOp]) -> None:
    first, cluster = loads[0], kernel.cluster_size()
    groups = next(groups for region, groups in zip(roles.roles, roles.role_groups(), strict=True) if region.block is first.parent)
    ready, phase = sync.MbarrierAllocOp(groups * cluster), arith.ConstantOp(builtin.IntegerAttr(0, builtin.i32))
    insert_before(roles, ready)
    insert_before(first, sync.ArriveOp(ready.result, tuple(range(cluster))), phase, sync.WaitPhaseOp(ready.result, phase.result))
