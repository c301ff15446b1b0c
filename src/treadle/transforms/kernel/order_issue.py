"""order-issue: the order in which asynchronous operations are issued.

Level: tile. Reads: effects on shared memory, the machine's queues and registers. Writes: operations of one block in another order.
Leaves alone: what another order would change; of kernels with `pipe.roles` all but loads; the stages of warp pipelines.

Matrix instructions: an independent one moves up to where the last was issued.
D1 = a b; f(D1); D2 = c d; g(D2) becomes D1 = a b; D2 = c d; f(D1); g(D2): insert-sync then waits for the first group alone before f, which
overlaps the second. Both accumulators are alive together then, so it is done only where the registers suffice.

Loads, and arithmetic on them or on those of the step before (the scales of a step's accumulators), move down behind the matrix
instructions of their role that do not read them. They run under the instructions then. Ahead of them they would be waited for, for
insert-sync makes the instructions wait for their operands, and no assembler moves anything across that.

Bulk stores: one moves down behind the local stores of the next, so that one fence, one barrier and one group serve both.
"""

from collections.abc import Iterator

from treadle.analysis.element_bytes import element_bytes, tile_bytes
from treadle.analysis.shared_accesses import shared_accesses
from treadle.analysis.slot_values import SlotValues
from treadle.analysis.synchronisation.operations import is_arithmetic, is_cheap, is_idle, is_matrix
from treadle.dialects import pipe, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps

NAME = "order-issue"
REGISTER_BYTES = 4
SPARE_REGISTERS = 64
"""Left for addresses and epilogues."""


def accumulator_registers(op: tile.ContractOp, kernel: tile.KernelOp, spec: TargetSpec) -> int:
    """Registers of a thread that hold the result."""
    words = max(1, REGISTER_BYTES // element_bytes(tile.tile_type(op.result).element_type))  # narrow elements take a register each
    return -(-tile_bytes(op.result) * words // (num_warps(kernel) * spec.subgroup_size * REGISTER_BYTES))


def issue_early(kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """Move matrix instructions up where that lets what lies between overlap them."""
    if not spec.async_matrix:
        return
    values = SlotValues()
    for op in tuple(kernel.walk()):
        around = op.parent_op()
        if isinstance(op, tile.ContractOp) and is_matrix(op, spec) and (around is None or WARP_PIPELINED not in around.attributes):
            _move_up(op, kernel, spec, values)


def _move_up(op: tile.ContractOp, kernel: tile.KernelOp, spec: TargetSpec, values: SlotValues) -> None:
    """Move one instruction right behind the last one before it in its block, with what only it needs, where nothing forbids it."""
    block = op.parent
    needed: set[Operation] = {op}
    moving: list[Operation] = [op]
    passed: list[Operation] = []
    previous = op.prev_op
    while previous is not None and not is_matrix(previous, spec):
        if previous.regions:
            return
        if any(result in user.operands for user in needed for result in previous.results):
            if shared_accesses(previous, values) or not _is_free(previous):
                return
            needed.add(previous)
            moving.insert(0, previous)
        else:
            passed.append(previous)
        previous = previous.prev_op
    if previous is None or not isinstance(block, Block) or not isinstance(previous, tile.ContractOp):
        return
    if any(r in user.operands for user in needed for r in previous.results):
        return  # a chain, or something computed from it
    if not any(r in between.operands for between in passed for r in previous.results):
        return  # nothing to overlap
    accesses = shared_accesses(op, values)
    if any(a.conflicts(b) for between in passed for a in shared_accesses(between, values) for b in accesses):
        return
    total = accumulator_registers(op, kernel, spec) + accumulator_registers(previous, kernel, spec)
    subject, place = kernel.sym_name.data, location_of(op)
    if total > spec.max_registers_per_thread - SPARE_REGISTERS:
        emit("refusal", NAME, subject, f"not issued early: both accumulators take {total} registers of a thread", place)
        return
    anchor: Operation = previous
    for item in moving:
        item.detach()
        block.insert_op_after(item, anchor)
        anchor = item
    emit("decision", NAME, subject, "issued before the results of the instruction ahead of it are used", place)


def scale_late(kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """Move loads, and arithmetic on them, down behind the matrix instructions of their role that do without them."""
    if not spec.async_matrix:
        return
    for roles in [op for op in kernel.walk() if isinstance(op, pipe.RolesOp)]:
        contracts = [op for op in roles.walk() if is_matrix(op, spec)]
        for block in {op.parent: None for op in contracts}:
            if block is not None:
                _move_down(block, spec)


def _move_down(block: Block, spec: TargetSpec) -> None:
    """Move what stands ahead of the first matrix instructions of a block; stores keep it behind themselves, and in front of them."""
    loaded = set(_loaded_before(block))
    waiting: list[Operation] = []
    staying: list[Operation] = []
    anchor: Operation | None = None
    for op in block.ops:
        if is_matrix(op, spec):
            anchor = op
        elif anchor is not None and not is_idle(op):
            break
        elif isinstance(op, tile.LoadOp) or (is_arithmetic(op) and loaded.intersection(op.operands)):
            loaded.add(op.results[0])
            waiting.append(op)
            continue
        elif op.regions or isinstance(op, tile.StoreOp | tile.CopyOutOp):
            waiting.clear()
        staying.append(op)
    if anchor is None:
        return
    needed = {value for op in staying for inner in op.walk() for value in inner.operands}
    for op in reversed(waiting):
        if op.results[0] in needed:
            needed.update(op.operands)
        else:
            op.detach()
            block.insert_op_after(op, anchor)


def _loaded_before(block: Block) -> Iterator[SSAValue]:
    """What the step before has loaded for this one of a loop (see load-ahead)."""
    if isinstance(block.parent_op(), scf.ForOp) and isinstance(block.last_op, scf.YieldOp):
        for carried, following in zip(block.args[1:], block.last_op.operands, strict=True):
            if isinstance(following.owner, tile.LoadOp):
                yield carried


def batch_stores(kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """Move bulk stores down to the next one where only index arithmetic and local stores to buffers that no store reads lie between."""
    if spec.bulk_tensor is None:
        return
    values = SlotValues()
    for op in reversed(tuple(kernel.walk())):
        block = op.parent
        if not isinstance(op, tile.CopyOutOp) or not isinstance(block, Block):
            continue
        ahead = [o for o in block.ops if isinstance(o, tile.CopyOutOp) and o.is_before_in_block(op)]
        reads = [a for o in (*ahead, op) for a in shared_accesses(o, values)]
        following, stores = op.next_op, 0
        while following is not None and not isinstance(following, tile.CopyOutOp):
            if not is_cheap(following) or any(a.conflicts(b) for a in reads for b in shared_accesses(following, values)):
                break
            stores += isinstance(following, tile.LocalStoreOp)
            following = following.next_op
        if isinstance(following, tile.CopyOutOp) and stores:
            op.detach()
            block.insert_op_before(op, following)


def _is_free(op: Operation) -> bool:
    """Whether an operation has no effect and costs nothing to do early."""
    if isinstance(op, tile.LoadOp | tile.StoreOp | tile.CopyOp | tile.CopyOutOp):
        return False
    return op.name.startswith(("arith.", "pipe.slot", "tile.lookup", "tile.splat", "tile.view"))


@register_pass
@dataclass(frozen=True)
class OrderIssuePass(KernelPass):
    """Reorders what is issued."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Reorder one kernel."""
        scale_late(kernel, spec)
        if any(isinstance(op, pipe.RolesOp) for op in kernel.walk()):
            return
        issue_early(kernel, spec)
        batch_stores(kernel, spec)
