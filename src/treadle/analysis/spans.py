"""What an operation does, in the words of timelines: neighbours of one kind are one span, "kind: what it does"."""

from treadle.dialects import stamp, sync, tile
from treadle.dialects.limits import machine_of
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin

_SILENT = ("tile.splat", "tile.iota", "tile.broadcast", "tile.permute", "tile.slice", "tile.view")


def _extents(value: SSAValue) -> str:
    kind = tile.memref_type(value) if isinstance(value.type, builtin.MemRefType) else tile.tile_type(value)
    return "x".join(map(str, kind.get_shape()))


def _barrier_name(value: SSAValue) -> str:
    op = value.owner
    while isinstance(op, sync.MbarrierSlotOp):
        value = op.source
        op = value.owner
    if value.name_hint or not isinstance(op, sync.MbarrierAllocOp) or op.parent is None:
        return f"%{value.name_hint}" if value.name_hint else "an mbarrier"
    return f"mbarrier {[one for one in op.parent.ops if isinstance(one, sync.MbarrierAllocOp)].index(op)}"


def span_of(op: Operation) -> str | None:
    """The span that an operation belongs to; None for what is not worth one."""
    match op:
        case tile.CopyOp() | sync.MbarrierExpectOp():
            return stamp.ISSUE_SPANS["copy_in"]
        case tile.CopyOutOp():
            return stamp.ISSUE_SPANS["copy_out"]
        case sync.CommitOp():
            spec = machine_of(op)
            queue = spec.queue(op.queue.data) if spec is not None else None
            return "work: commit" if queue is None else stamp.ISSUE_SPANS.get(queue.role, "work: commit")
        case tile.ContractOp():
            return stamp.ISSUE_SPANS["matrix"]
        case sync.WaitOp():
            return f"wait: {op.queue.data} <= {op.pending.value.data}"
        case sync.WaitPhaseOp():
            return f"wait: phase of {_barrier_name(op.barrier)}"
        case sync.BarrierOp() | sync.ClusterBarrierOp():
            return f"wait: {op.name.removeprefix('sync.').replace('_', ' ')}"
        case sync.NamedBarrierOp():
            each = "" if op.per_group is None else " + group"
            return f"{'wait' if op.arrive is None else 'work'}: named barrier {op.id.value.data}{each}"
        case sync.ArriveOp() | sync.FenceOp():
            return f"work: {op.name.removeprefix('sync.')}"
        case tile.LoadOp():
            return f"copy: load {_extents(op.result)}"
        case tile.StoreOp():
            return f"store: store {_extents(op.value)}"
        case tile.LocalLoadOp() | tile.LocalStoreOp():
            return "local: shared memory"
        case _:
            tiles = any(map(is_tile, op.results))
            return "work: arithmetic" if tiles and op.name not in _SILENT and op.name != "arith.constant" and not op.regions else None
