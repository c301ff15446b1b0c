"""The `sync` dialect: the operations that order asynchronous effects. See docs/architecture.md, "Schedule level".

Queues are classes of groups that retire in order, named as in the machine's row.
"""

from collections.abc import Sequence

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.limits import (
    FENCE_PROXIES,
    MAX_ARRIVALS,
    MAX_BYTES,
    NAMED_BARRIERS,
    SCHEDULING_CLASSES,
    ancestors,
    check_is_straight,
    check_number,
    check_one_of,
    check_parity,
    check_ranks,
    machine_of,
    number_in_kernel,
    queue_named,
)
from treadle.dialects.stages import PRIORITIES
from treadle.dialects.tile_types import ints
from treadle.ir.core import (
    Attribute,
    Dialect,
    IRDLOperation,
    ParametrizedAttribute,
    Pure,
    SSAValue,
    TypeAttribute,
    VerifyException,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from treadle.ir.dialects import builtin
from treadle.ir.misuse import Misuse
from treadle.machine import TargetSpec


@irdl_attr_definition
class MbarrierType(ParametrizedAttribute, TypeAttribute):
    """`!sync.mbarrier`: a transaction barrier in shared memory."""

    name = "sync.mbarrier"


class _SyncOp(IRDLOperation, HasEffects):
    """An operation that orders others and touches no data itself."""

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class BarrierOp(_SyncOp):
    """The agents of the workgroup meet: the k-th arrival of each is one meeting, wherever in the program it stands.

    Unless `bare`, each agent's earlier accesses to shared memory are complete when it arrives (a bare one only meets). `groups`: a
    conditional
    barrier, executed by these groups alone.
    """

    name = "sync.barrier"
    bare = opt_prop_def(builtin.UnitAttr)
    groups = opt_prop_def(Attribute)
    assembly_format = "(`bare` $bare^)? (`groups` $groups^)? attr-dict"

    def __init__(self, *, bare: bool = False, groups: Sequence[int] | None = None) -> None:
        listed = None if groups is None else builtin.DenseArrayBase.from_list(builtin.i64, list(groups))
        super().__init__(properties={"bare": builtin.UnitAttr() if bare else None, "groups": listed})

    def verify_(self) -> None:
        groups = () if self.groups is None else ints(self.groups)
        if self.groups is not None and (not groups or min(groups) < 0 or len(set(groups)) != len(groups)):
            raise Misuse(f"groups {list(groups)}", "name the groups that execute the barrier, each once, numbered from 0")


@irdl_op_definition
class NamedBarrierOp(_SyncOp):
    """`warps` warps meet on hardware barrier `id`; with `arrive` the executing agent announces itself and goes on.

    `per_group`: each group of the role has a barrier of its own, number `id` plus the group's.
    """

    name = "sync.named_barrier"
    id = prop_def(builtin.IntegerAttr)
    per_group = opt_prop_def(builtin.UnitAttr)
    warps = prop_def(builtin.IntegerAttr)
    arrive = opt_prop_def(builtin.UnitAttr)
    assembly_format = "$id (`per_group` $per_group^)? `warps` $warps (`arrive` $arrive^)? attr-dict"

    def __init__(self, id: int, warps: int, *, arrive: bool = False, per_group: bool = False) -> None:
        super().__init__(
            properties={
                "id": builtin.IntegerAttr(id, builtin.i64),
                "per_group": builtin.UnitAttr() if per_group else None,
                "warps": builtin.IntegerAttr(warps, builtin.i64),
                "arrive": builtin.UnitAttr() if arrive else None,
            }
        )

    def verify_(self) -> None:
        check_number("barrier", self.id.value.data, NAMED_BARRIERS[0], NAMED_BARRIERS[-1], "0 is the workgroup's, sync.barrier")
        warps = number_in_kernel(self, "num_warps", 1)
        count = self.warps.value.data
        most = count if warps is None else warps
        check_number("the number of warps", count, 1, most, "count the warps of the kernel that meet here")

    def number(self, group: int) -> int:
        """The hardware barrier at which a group of the role meets."""
        return self.id.value.data + (group if self.per_group is not None else 0)


@irdl_op_definition
class ClusterBarrierOp(_SyncOp):
    """All workgroups of the cluster meet, with all their warps: it stands outside roles."""

    name = "sync.cluster_barrier"
    assembly_format = "attr-dict"

    def verify_(self) -> None:
        if any(around.name == "pipe.roles" for around in ancestors(self)):
            raise Misuse("it is met by all warps, so it stands outside pipe.roles", "move it in front of the roles or behind them")


@irdl_op_definition
class FenceOp(_SyncOp):
    """Joins proxies for the executing thread: its generic writes may be seen by the async proxy from then on.

    "async_shared": those to shared memory; "async_global": those to global arrays.
    """

    name = "sync.fence"
    proxy = prop_def(builtin.StringAttr)
    assembly_format = "$proxy attr-dict"

    def __init__(self, proxy: str) -> None:
        super().__init__(properties={"proxy": builtin.StringAttr(proxy)})

    def verify_(self) -> None:
        check_one_of("the proxy", self.proxy.data, FENCE_PROXIES)


@irdl_op_definition
class CommitOp(_SyncOp):
    """Closes the group of operations issued to a queue since its last commit."""

    name = "sync.commit"
    queue = prop_def(builtin.StringAttr)
    assembly_format = "$queue attr-dict"

    def __init__(self, queue: str) -> None:
        super().__init__(properties={"queue": builtin.StringAttr(queue)})

    def verify_(self) -> None:
        if (spec := machine_of(self)) is not None:
            self.check_machine(spec)

    def check_machine(self, spec: TargetSpec) -> None:
        """Raises Misuse where the machine has no such queue, or none with commits."""
        if not queue_named(spec, self.queue.data).is_committed:
            raise Misuse(f"each operation of the queue '{self.queue.data}' is a group of its own", "remove the commit")


@irdl_op_definition
class WaitOp(_SyncOp):
    """Retires all but the newest `pending` groups of a queue; with `read`, waits only until they have read their sources."""

    name = "sync.wait"
    queue = prop_def(builtin.StringAttr)
    pending = prop_def(builtin.IntegerAttr)
    read = opt_prop_def(builtin.UnitAttr)
    assembly_format = "$queue `pending` $pending (`read` $read^)? attr-dict"

    def __init__(self, queue: str, pending: int, *, read: bool = False) -> None:
        super().__init__(
            properties={
                "queue": builtin.StringAttr(queue),
                "pending": builtin.IntegerAttr(pending, builtin.i64),
                "read": builtin.UnitAttr() if read else None,
            }
        )

    def verify_(self) -> None:
        if (spec := machine_of(self)) is not None:
            self.check_machine(spec)

    def check_machine(self, spec: TargetSpec) -> None:
        """Raises Misuse where the machine has no such queue, or cannot wait for it like this."""
        queue = queue_named(spec, self.queue.data)
        what = f"the number of groups of '{queue.name}' left pending"
        check_number(what, self.pending.value.data, 0, queue.max_pending, "0 waits for all of them")
        if self.read is not None and not queue.tells_reads:
            raise Misuse(f"operations of '{queue.name}' do not tell that they have read their sources", "wait without `read`")


@irdl_op_definition
class MbarrierAllocOp(_SyncOp):
    """Allocates and initialises transaction barriers whose phases complete after `arrivals` arrivals and all announced bytes.

    `slots` of them (default one; more are picked with sync.mbarrier_slot). Ready for all threads and the async proxy afterwards. Stands in
    no loop, branch or role: the barriers are the workgroup's, and initialised once.
    """

    name = "sync.mbarrier_alloc"
    arrivals = prop_def(builtin.IntegerAttr)
    slots = opt_prop_def(builtin.IntegerAttr)
    result = result_def(MbarrierType)
    assembly_format = "$arrivals (`slots` $slots^)? attr-dict `:` type($result)"

    def __init__(self, arrivals: int, slots: int | None = None) -> None:
        count = None if slots is None else builtin.IntegerAttr(slots, builtin.i64)
        super().__init__(properties={"arrivals": builtin.IntegerAttr(arrivals, builtin.i64), "slots": count}, result_types=[MbarrierType()])

    def verify_(self) -> None:
        check_number("the number of arrivals", self.arrivals.value.data, 1, MAX_ARRIVALS, "count the agents that arrive in a phase")
        check_number("the number of slots", self.slot_count(), 1, MAX_ARRIVALS, "leave `slots` out for one barrier")
        check_is_straight(self, "a transaction barrier is the workgroup's and initialised once")

    def slot_count(self) -> int:
        """How many barriers are allocated."""
        return 1 if self.slots is None else self.slots.value.data


@irdl_op_definition
class MbarrierSlotOp(_SyncOp):
    """One of the barriers of an allocation."""

    name = "sync.mbarrier_slot"
    source = operand_def(MbarrierType)
    index = operand_def(builtin.IndexType)
    result = result_def(MbarrierType)
    traits = traits_def(Pure())
    assembly_format = "$source `[` $index `]` attr-dict `:` type($result)"

    def __init__(self, source: SSAValue, index: SSAValue) -> None:
        super().__init__(operands=[source, index], result_types=[MbarrierType()])

    def verify_(self) -> None:
        check_known_barrier(self.source)


@irdl_op_definition
class ArriveOp(_SyncOp):
    """One arrival by the executing agent (one elected thread): what the agent did before happened before the phase completes.

    `peers`: the arrival goes to this barrier in each of these workgroups of the cluster, by rank, the executing one only where it is named.
    `relative`: in those whose ranks combined with the executing one's by exclusive or are these.
    """

    name = "sync.arrive"
    barrier = operand_def(MbarrierType)
    peers = opt_prop_def(Attribute)
    relative = opt_prop_def(builtin.UnitAttr)
    assembly_format = "$barrier (`peers` $peers^)? (`relative` $relative^)? attr-dict"

    def __init__(self, barrier: SSAValue, peers: Sequence[int] | None = None, *, relative: bool = False) -> None:
        listed = None if peers is None else builtin.DenseArrayBase.from_list(builtin.i64, list(peers))
        super().__init__(operands=[barrier], properties={"peers": listed, "relative": builtin.UnitAttr() if relative else None})

    def verify_(self) -> None:
        check_single_barrier(self.barrier)
        if self.peers is not None:
            check_ranks(self, self.peer_ranks(), relative=self.relative is not None)
        elif self.relative is not None:
            raise VerifyException("sync.arrive is at relative workgroups only where `peers` lists them")

    def peer_ranks(self, rank: int = 0) -> tuple[int, ...]:
        """The workgroups where it arrives, by rank, where workgroup `rank` executes it; empty: that one."""
        peers = () if self.peers is None else ints(self.peers)
        return peers if self.relative is None else tuple([rank ^ other for other in peers])


@irdl_op_definition
class MbarrierExpectOp(_SyncOp):
    """One arrival by one thread that also announces `bytes` of asynchronous copies signalling this barrier."""

    name = "sync.mbarrier_expect"
    barrier = operand_def(MbarrierType)
    byte_count = prop_def(builtin.IntegerAttr)
    assembly_format = "$barrier `bytes` $byte_count attr-dict"

    def __init__(self, barrier: SSAValue, byte_count: int) -> None:
        super().__init__(operands=[barrier], properties={"byte_count": builtin.IntegerAttr(byte_count, builtin.i64)})

    def verify_(self) -> None:
        check_single_barrier(self.barrier)
        check_number("the number of bytes", self.byte_count.value.data, 1, MAX_BYTES, "sync.arrive announces none")


@irdl_op_definition
class WaitPhaseOp(_SyncOp):
    """Waits until the barrier's phase of the given parity (i32, 0 or 1) is complete."""

    name = "sync.wait_phase"
    barrier = operand_def(MbarrierType)
    parity = operand_def(builtin.i32)
    assembly_format = "$barrier `parity` $parity attr-dict"

    def __init__(self, barrier: SSAValue, parity: SSAValue) -> None:
        super().__init__(operands=[barrier, parity])

    def verify_(self) -> None:
        check_single_barrier(self.barrier)
        check_parity(self.parity)


@irdl_op_definition
class SchedFenceOp(_SyncOp):
    """Orders the compiler only: instructions other than those of `classes` do not cross."""

    name = "sync.sched_fence"
    classes = prop_def(builtin.ArrayAttr)
    assembly_format = "$classes attr-dict"

    def __init__(self, classes: Sequence[str]) -> None:
        super().__init__(properties={"classes": builtin.ArrayAttr([builtin.StringAttr(c) for c in classes])})

    def verify_(self) -> None:
        for word in self.classes.data:
            check_one_of("the class", word.data if isinstance(word, builtin.StringAttr) else str(word), SCHEDULING_CLASSES)


@irdl_op_definition
class SetPriorityOp(_SyncOp):
    """The executing warps' place among those of their scheduler from here on: 0 (lowest, how a kernel starts) to 3. Orders nothing."""

    name = "sync.set_priority"
    priority = prop_def(builtin.IntegerAttr)
    assembly_format = "$priority attr-dict"

    def __init__(self, priority: int) -> None:
        super().__init__(properties={"priority": builtin.IntegerAttr(priority, builtin.i64)})

    def verify_(self) -> None:
        check_number("the priority", self.priority.value.data, *PRIORITIES, "leave it out for the machine's own")


def check_known_barrier(value: SSAValue) -> None:
    """Which allocation a barrier belongs to can be told. Raises `Misuse`."""
    if not isinstance(value.owner, MbarrierAllocOp | MbarrierSlotOp):
        raise Misuse(
            "the barrier is chosen by a branch or carried by a loop", "carry its slot's number, and pick it with sync.mbarrier_slot"
        )


def check_single_barrier(value: SSAValue) -> None:
    """A value is one transaction barrier, and which one can be told: an allocation of one, or a slot. Raises `Misuse`."""
    check_known_barrier(value)
    owner = value.owner
    if isinstance(owner, MbarrierAllocOp) and owner.slot_count() > 1:
        raise Misuse(f"the barrier is an allocation of {owner.slot_count()}", "pick one with sync.mbarrier_slot")


SYNC = Dialect(
    "sync",
    [
        BarrierOp,
        NamedBarrierOp,
        ClusterBarrierOp,
        FenceOp,
        CommitOp,
        WaitOp,
        MbarrierAllocOp,
        MbarrierSlotOp,
        MbarrierExpectOp,
        ArriveOp,
        WaitPhaseOp,
        SchedFenceOp,
        SetPriorityOp,
    ],
    [MbarrierType],
)
