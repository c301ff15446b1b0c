"""What insert-sync goes by in single operations: the queues they are issued to, what is cheap, phases as accesses."""

from treadle import errors
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.shared_accesses import SharedAccess
from treadle.analysis.slot_values import SlotValues
from treadle.dialects import sync, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.dialects.tile_types import is_tile
from treadle.errors import TreadleError
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.locations import location_of
from treadle.machine import Queue, TargetSpec

BUSY = frozenset({tile.LoadOp, tile.LocalLoadOp, tile.ContractOp, tile.StoreOp})
"""What takes time worth overlapping though it gives no register tile, or is asynchronous."""
QUEUED = frozenset({tile.ContractOp, tile.CopyOp, tile.CopyOutOp})
NEVER_IDLE = frozenset({tile.LoadOp, tile.LocalLoadOp, tile.LocalFlagOp, sync.MbarrierAllocOp})


def refused(op: Operation, what: str, hint: str) -> TreadleError:
    """The user's error TR301 at an operation that insert-sync cannot synchronise."""
    return TreadleError(errors.UNSUPPORTED, location_of(op), what=what, hint=hint)


def is_queued(op: Operation) -> bool:
    """Whether an operation is issued to the matrix queue of a machine that has one: a contraction of shared buffers."""
    return isinstance(op, tile.ContractOp) and (is_shared(op.a.type) or is_shared(op.b.type))


def queue_of(op: Operation, spec: TargetSpec) -> Queue | None:
    """The queue that an operation is issued to and waited for by its groups; None for none. (Local accesses are flushed by barriers.)"""
    if type(op) not in QUEUED:
        return None
    match op:
        case tile.ContractOp() if is_queued(op):
            return spec.queue_for("matrix")
        case tile.CopyOp() if not op.is_bulk:
            return spec.queue_for("copy_in")
        case tile.CopyOutOp():
            return spec.queue_for("copy_out")
        case _:
            return None


def is_matrix(op: Operation, spec: TargetSpec) -> bool:
    """Whether an operation runs on in the matrix queue once it is issued."""
    return isinstance(op, tile.ContractOp) and queue_of(op, spec) is not None


def committed_queues(kernel: tile.KernelOp) -> frozenset[str]:
    """The queues whose groups the kernel closes already."""
    return frozenset(op.queue.data for op in kernel.walk() if isinstance(op, sync.CommitOp))


def barrier_alloc(op: Operation, barrier: SSAValue) -> sync.MbarrierAllocOp:
    """The allocation of a transaction barrier, or of the ring that it is one of."""
    owner = barrier.owner.source.owner if isinstance(barrier.owner, sync.MbarrierSlotOp) else barrier.owner
    if not isinstance(owner, sync.MbarrierAllocOp):
        raise refused(op, "a barrier that sync.mbarrier_alloc does not give", "use one of the kernel's own")
    return owner


def phase_access(op: Operation, barrier: SSAValue, values: SlotValues, *, is_write: bool) -> SharedAccess:
    """A phase of a transaction barrier as an access: the next may begin only when all have seen the last (an expect writes it)."""
    alloc, owner = barrier_alloc(op, barrier), barrier.owner
    if not isinstance(owner, sync.MbarrierSlotOp):
        return SharedAccess(alloc, None, 0, (), (), is_write, True, is_elected=is_write)
    slots = (values.of(owner.index).within(alloc.slot_count()),)
    return SharedAccess(alloc, None, 0, (), (), is_write, True, slots, (alloc.slot_count(),), is_elected=is_write)


def is_cheap(op: Operation) -> bool:
    """Whether an operation takes no time worth overlapping: it issues, stores what is there, or computes an index."""
    return type(op) not in BUSY and not op.regions and not any(map(is_tile, op.results))


def widens_small_float(op: Operation) -> bool:
    """Whether an operation makes wider floats of a tile of 8-bit floats, which takes several instructions an element."""
    return isinstance(op, arith.ExtFOp) and is_tile(op.operands[0]) and element_bytes(tile.tile_type(op.operands[0]).element_type) == 1


def is_idle(op: Operation) -> bool:
    """Whether an operation computes scalars or names memory: it issues nothing, orders nothing and reads no register tile."""
    if op.regions or not op.results or type(op) in NEVER_IDLE:
        return False
    return not any(map(is_tile, op.operands))


def is_arithmetic(op: Operation) -> bool:
    """Whether an operation computes a register tile from others, each thread from what it holds."""
    return (op.name.startswith(("arith.", "math.")) or isinstance(op, tile.BroadcastOp)) and is_tile(op.results[0])


def only_copies(op: scf.IfOp) -> bool:
    """Whether a conditional holds nothing but copies and what they need."""
    inner = [o for o in op.walk() if o is not op]
    copies = [o for o in inner if isinstance(o, tile.CopyOp | tile.CopyOutOp)]
    return bool(copies) and all(not o.regions and (o in copies or is_cheap(o)) and not isinstance(o, tile.LocalStoreOp) for o in inner)


def loops_around(op: Operation) -> set[Operation]:
    """The loops that an operation lies in."""
    return {around for around in ancestors(op) if isinstance(around, scf.ForOp)}
