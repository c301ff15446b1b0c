"""insert-sync: makes a sequential kernel right on a machine where threads, copies and matrix instructions overlap.

Level: tile to schedule. Reads: effects of all operations on shared memory, slots (`pipe.slot`), byte offsets of buffers, the machine's
queues; synchronisation that is there. Writes: `sync.*`, the barrier operand of tile.copy, phases carried by loops and branches, the
arithmetic of `pipe.advance`, the order of arrivals. Leaves alone: kernels that use no shared memory; synchronisation that is there, which
it completes; order between workgroups, but for what they hand on by arrivals.

0. Arrays that a workgroup both reads and writes get barriers (`global_order.py`). 1. Rings between roles get full and empty barriers
(`synchronisation/ring_barriers.py`). 2. Other bulk copies get transaction barriers (`copy_barriers.py`), and reads of other workgroups'
memory theirs (`peer_barriers.py`). 3. A walk with every queued operation as a group of its own finds what has to be waited for where
(`sync_flow.py`); from that the commits are placed: a group ends where a wait of the same loop must tell it from the next. 4. A walk over
the kernel with its commits inserts waits with the largest count that is right, fences, barriers and arrivals at rings, at the last
moment.
"""

from collections.abc import Set
from typing import cast

from treadle.analysis.synchronisation.handed_on import HandedOn
from treadle.analysis.synchronisation.in_flight import Plan
from treadle.analysis.synchronisation.operations import queue_of, refused
from treadle.dialects import pipe, sync, tile
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, insert_after
from treadle.transforms.kernel.synchronisation.copy_barriers import insert_copy_barriers
from treadle.transforms.kernel.synchronisation.global_order import insert_global_barriers
from treadle.transforms.kernel.synchronisation.peer_barriers import insert_peer_barriers
from treadle.transforms.kernel.synchronisation.ring_barriers import insert_ring_barriers
from treadle.transforms.kernel.synchronisation.sync_flow import NOTHING, SyncFlow


def group_end(last: Operation, queue: str, wait: Operation, spec: TargetSpec, once: Set[Operation]) -> Operation:
    """Behind which operation the group that ends with `last` is closed, for a wait before `wait`.

    Outside the loops that the wait is not in: it does not have to tell their iterations apart. Outside branches, so that every path has
    as many groups, unless more is issued there; not outside of those that are taken `once`: the group would be closed in every step.
    """
    around = set(ancestors(wait))
    while (home := cast(Operation, last.parent_op())) not in around and home not in once:
        if isinstance(home, scf.IfOp):
            following = last.next_op
            while following is not None:
                if any((found := queue_of(op, spec)) is not None and found.name == queue for op in following.walk()):
                    return last
                following = following.next_op
        last = home
    return last


def insert_commits(plan: Plan, spec: TargetSpec) -> set[Operation]:
    """Close the groups that waits need. Returns the commits."""
    closed: set[tuple[Operation, str]] = set()
    commits: set[Operation] = set()
    for last, queue, wait in plan.ends:
        end = group_end(last, queue, wait, spec, plan.once)
        if (end, queue) not in closed:
            closed.add((end, queue))
            commit = sync.CommitOp(queue)
            insert_after(end, commit)
            commits.add(commit)
    return commits


KNOWN_REGIONS = tile.KernelOp | tile.ReduceOp | pipe.RolesOp | scf.ForOp | scf.IfOp


def check_control_flow(kernel: tile.KernelOp) -> None:
    """Refuse control flow that no walk knows (TR301)."""
    for op in kernel.walk():
        if op.regions and not isinstance(op, KNOWN_REGIONS):
            raise refused(op, f"{op.name} in a tile kernel", "write it with scf.for and scf.if")


@register_pass
@dataclass(frozen=True)
class InsertSyncPass(KernelPass):
    """Inserts the synchronisation that a kernel's accesses to shared memory need."""

    name = "insert-sync"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Synchronise one kernel."""
        check_control_flow(kernel)
        insert_global_barriers(kernel)
        owed = insert_ring_barriers(kernel, spec)
        insert_copy_barriers(kernel)
        insert_peer_barriers(kernel)
        plan = Plan()
        walk = SyncFlow(kernel, spec, plan, owed)
        walk.block(kernel.body.block, NOTHING, emit=True)
        walk.inserting(insert_commits(plan, spec)).block(kernel.body.block, NOTHING, emit=True)
        set_orders(kernel)


def set_orders(kernel: tile.KernelOp) -> None:
    """Let each arrival pass on what was done before it, and take over what others did where something comes behind it; of a turn, its wait
    takes over, its end passes on.
    """
    handed_on = HandedOn(kernel)
    for arrival in handed_on.arrivals:
        ops = [op for op in kernel.body.walk() if op is arrival or not isinstance(op, tile.OrderedCounterOp)]
        at = ops.index(arrival)
        before, behind = (any(map(handed_on.touches, part)) for part in (ops[:at], ops[at + 1 :]))
        releases, acquires = before or arrival.releases, behind or arrival.acquires
        releases, acquires = releases and not isinstance(arrival, tile.AwaitTurnOp), acquires and not isinstance(arrival, tile.PassTurnOp)
        order = "acq_rel" if releases and acquires else "release" if releases else "acquire" if acquires else "relaxed"
        arrival.set_order(order)
