"""The `sync` dialect: the operations that order asynchronous effects. See docs/architecture.md, "Schedule level".

Queues are named classes of groups that retire in order: "wgmma", "cp_async", "bulk_store", "vmcnt", "lgkmcnt", ...
"""

from collections.abc import Sequence

from treadle.dialects.effects import Effect, HasEffects
from treadle.ir.core import (
    Dialect,
    IRDLOperation,
    ParametrizedAttribute,
    SSAValue,
    TypeAttribute,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from treadle.ir.dialects import builtin


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
    """All threads of the workgroup meet; their earlier generic accesses to shared memory are visible to all afterwards."""

    name = "sync.barrier"
    assembly_format = "attr-dict"


@irdl_op_definition
class FenceOp(_SyncOp):
    """Joins proxies for the executing thread: "async_shared" makes its generic writes to shared memory visible to the async proxy."""

    name = "sync.fence"
    proxy = prop_def(builtin.StringAttr)
    assembly_format = "$proxy attr-dict"

    def __init__(self, proxy: str) -> None:
        super().__init__(properties={"proxy": builtin.StringAttr(proxy)})


@irdl_op_definition
class CommitOp(_SyncOp):
    """Closes the group of operations issued to a queue since its last commit."""

    name = "sync.commit"
    queue = prop_def(builtin.StringAttr)
    assembly_format = "$queue attr-dict"

    def __init__(self, queue: str) -> None:
        super().__init__(properties={"queue": builtin.StringAttr(queue)})


@irdl_op_definition
class WaitOp(_SyncOp):
    """Retires all but the newest `pending` groups of a queue."""

    name = "sync.wait"
    queue = prop_def(builtin.StringAttr)
    pending = prop_def(builtin.IntegerAttr)
    assembly_format = "$queue `pending` $pending attr-dict"

    def __init__(self, queue: str, pending: int) -> None:
        super().__init__(properties={"queue": builtin.StringAttr(queue), "pending": builtin.IntegerAttr(pending, builtin.i64)})


@irdl_op_definition
class MbarrierAllocOp(_SyncOp):
    """Allocates and initialises a transaction barrier that `arrivals` arrivals complete; ready for all threads and the async proxy
    afterwards.
    """

    name = "sync.mbarrier_alloc"
    arrivals = prop_def(builtin.IntegerAttr)
    result = result_def(MbarrierType)
    assembly_format = "$arrivals attr-dict `:` type($result)"

    def __init__(self, arrivals: int) -> None:
        super().__init__(properties={"arrivals": builtin.IntegerAttr(arrivals, builtin.i64)}, result_types=[MbarrierType()])


@irdl_op_definition
class MbarrierExpectOp(_SyncOp):
    """One arrival by one thread that also announces `bytes` of asynchronous copies signalling this barrier."""

    name = "sync.mbarrier_expect"
    barrier = operand_def(MbarrierType)
    byte_count = prop_def(builtin.IntegerAttr)
    assembly_format = "$barrier `bytes` $byte_count attr-dict"

    def __init__(self, barrier: SSAValue, byte_count: int) -> None:
        super().__init__(operands=[barrier], properties={"byte_count": builtin.IntegerAttr(byte_count, builtin.i64)})


@irdl_op_definition
class WaitPhaseOp(_SyncOp):
    """Waits until the barrier's phase of the given parity (i32, 0 or 1) is complete."""

    name = "sync.wait_phase"
    barrier = operand_def(MbarrierType)
    parity = operand_def(builtin.i32)
    assembly_format = "$barrier `parity` $parity attr-dict"

    def __init__(self, barrier: SSAValue, parity: SSAValue) -> None:
        super().__init__(operands=[barrier, parity])


@irdl_op_definition
class SchedFenceOp(_SyncOp):
    """Orders the compiler only: instructions other than those of `classes` do not cross."""

    name = "sync.sched_fence"
    classes = prop_def(builtin.ArrayAttr)
    assembly_format = "$classes attr-dict"

    def __init__(self, classes: Sequence[str]) -> None:
        super().__init__(properties={"classes": builtin.ArrayAttr([builtin.StringAttr(c) for c in classes])})


SYNC = Dialect(
    "sync",
    [BarrierOp, FenceOp, CommitOp, WaitOp, MbarrierAllocOp, MbarrierExpectOp, WaitPhaseOp, SchedFenceOp],
    [MbarrierType],
)
