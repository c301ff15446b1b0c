"""The rings of a kernel's copies: which buffers are filled together, how many slots fit, which kernels can be dealt out to roles."""

from collections.abc import Iterator

from treadle.analysis.element_bytes import buffer_bytes
from treadle.analysis.operand_sources import branch_values
from treadle.analysis.view_access import access_facts
from treadle.dialects import tile
from treadle.dialects.role_plan import RolePlan
from treadle.dialects.tile_types import is_tile
from treadle.ir.ancestry import blocks_around
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.machine import TargetSpec
from treadle.plan.access import contiguous_dim
from treadle.plan.role_tiles import PLANNED_EPILOGUE_SLOTS, ROLE_MARGIN_BYTES, SHORTEST_RING
from treadle.plan.staging import piece_width
from treadle.records import dataclass
from treadle.transforms.kernel.roles.parts import depends_on_group
from treadle.transforms.kernel.roles.splitting import splitting

THREADS_SHARE = 0.43
"""Of a slot's bytes that threads copy, from which on the ring leaves their cache room: 18 products (H200) whose rings do took 0.77 to
1.02 of the time, 0.92 in the mean, 16 others 0.91 to 1.20, 1.02 in the mean.
"""


@dataclass(frozen=True, eq=False, slots=True)
class CopyRing:
    """Buffers that `copies` fill in `block`: together, one slot at a time, or `in_turn`: those of one type, each a slot of its own. Those
    that a role of its own fills with what it splits are filled by local stores instead.
    """

    block: Block
    copies: tuple[tile.CopyOp | tile.LocalStoreOp, ...]
    in_turn: bool = False

    @property
    def is_split(self) -> bool:
        """Whether a role of its own fills it with what it splits."""
        return any(isinstance(copy, tile.LocalStoreOp) for copy in self.copies)

    @property
    def is_in_loop(self) -> bool:
        """Whether a loop fills it again and again."""
        return isinstance(self.block.parent_op(), scf.ForOp)

    @property
    def by_threads(self) -> bool:
        """Whether all threads of the role make some of its copies."""
        return not all(isinstance(copy, tile.CopyOp) and copy.is_bulk for copy in self.copies)

    @property
    def slots_a_block(self) -> int:
        """Slots that an execution of the block takes."""
        return len(self.copies) if self.in_turn else 1

    def depth(self, plan: RolePlan) -> int:
        """How many slots the ring has."""
        if self.is_split:
            return plan.split_slots
        if self.is_in_loop:
            return plan.num_stages
        # One a tile: the next tile's is brought under this one. Several: what is read before has room again.
        most = 2 * self.slots_a_block if plan.takes_turns else self.slots_a_block
        return min(plan.epilogue_slots, most) if self.in_turn else most


def copy_rings(kernel: tile.KernelOp) -> list[CopyRing]:
    """The rings of a kernel, in the order of their first copies.

    Contractions side by side read one ring. Those that wait for each other's results have rings of their own, so that each operand goes
    back when its reader is over. So do an operand that is split and one that is not, and the parts of the former have the last ring. What
    an epilogue reads comes in turn, buffer by buffer.
    """
    split = splitting(kernel)
    chained = is_chain(kernel) or split is not None
    found: list[tuple[CopyRing, set[Operation]]] = []
    for copy in [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]:
        if (block := copy.parent) is None:
            continue
        if not chained and not isinstance(block.parent_op(), scf.ForOp):
            _join_turn(copy, block, found)
            continue
        readers = {use.operation for use in copy.destination.uses} - {copy}
        joined = [(ring, known) for ring, known in found if ring.block is block and (not chained or known & readers)]
        copies = (*(one for ring, _ in joined for one in ring.copies), copy)
        at = found.index(joined[0]) if joined else len(found)
        found[at:at] = [(CopyRing(block, copies), readers.union(*(known for _, known in joined)))]
        found = [entry for entry in found if entry not in joined]
    parts = [] if split is None else [CopyRing(split.block, split.stores)]
    return [*(ring for ring, _ in found), *parts]


def _join_turn(copy: tile.CopyOp, block: Block, found: list[tuple[CopyRing, set[Operation]]]) -> None:
    """Put a copy into the ring of those of its type."""
    for number, (ring, readers) in enumerate(found):
        if ring.in_turn and ring.block is block and ring.copies[0].destination.type == copy.destination.type:
            found[number] = CopyRing(block, (*ring.copies, copy), in_turn=True), readers
            return
    found.append((CopyRing(block, (copy,), in_turn=True), set()))


def partition_refusal(kernel: tile.KernelOp) -> str | None:
    """Why a kernel cannot be dealt out to roles, None where it can."""
    rings = copy_rings(kernel)
    if not any(ring.is_in_loop for ring in rings):
        return "no loop issues hardware copies"
    filled = [copy.destination for ring in rings for copy in ring.copies]
    for ring in rings:
        if not isinstance(ring.block.parent_op(), scf.ForOp | tile.KernelOp):
            return "a hardware copy stands under a condition"
        for copy in ring.copies:
            others = [use.operation for use in copy.destination.uses if use.operation is not copy]
            if not isinstance(copy, tile.CopyOp) or not copy.is_bulk or filled.count(copy.destination) > 1:
                return "a buffer is filled by several copies, or by the threads"
            if not all(_lies_in(op, ring.block) and isinstance(op, tile.ContractOp | tile.LocalLoadOp) for op in others):
                return "a copied buffer is used beyond the block that fills it"
    for loop in _loops_with_copies(kernel.body.block):
        if not all(is_tile(value) for value in loop.iter_args):
            return "a loop with hardware copies carries scalars"
    if not any(isinstance(op, tile.ContractOp) for op in kernel.walk()):
        return "nothing is contracted"
    return None


def is_chain(kernel: tile.KernelOp) -> bool:
    """Whether a contraction reads, from registers or through shared memory, what is computed from another's result."""
    for contract in [op for op in kernel.walk() if isinstance(op, tile.ContractOp)]:
        for operand in (contract.a, contract.b):
            stores = [use.operation for use in operand.uses if isinstance(use.operation, tile.LocalStoreOp)]
            tiles = [operand] if is_tile(operand) and contract.holds_registers() else [store.value for store in stores]
            if any(_computed_from_contraction(value) for value in tiles):
                return True
    return False


def fitting_stages(kernel: tile.KernelOp, plan: RolePlan, spec: TargetSpec) -> int:
    """As many slots of the rings that loops fill as fit beside what else the plan asks for, at most its own; 0 where not even one does."""
    slot, beside = _of_slots(kernel, plan)
    return max(0, min(plan.num_stages, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - beside) // slot))


def stages_beside_cache(kernel: tile.KernelOp, plan: RolePlan, spec: TargetSpec) -> int:
    """The stages of a plan, or so many fewer that the threads' cache keeps room for their copies in flight, where it is what shared memory
    leaves, threads copy much of each slot, and enough slots remain.
    """
    slot, beside = _of_slots(kernel, plan)
    repeated = [copy for copy in threads_copies(kernel) if isinstance(copy.parent_op(), scf.ForOp)]
    by_threads = sum(copied_bytes(copy, kernel.group_count()) for copy in repeated)
    fewer = (spec.shared_bytes_beside_cache - ROLE_MARGIN_BYTES - beside) // slot
    return min(plan.num_stages, fewer) if by_threads >= THREADS_SHARE * slot and fewer >= SHORTEST_RING else plan.num_stages


def _of_slots(kernel: tile.KernelOp, plan: RolePlan) -> tuple[int, int]:
    """Bytes of a slot of all rings that loops fill, and of what else a kernel keeps in shared memory."""
    rings, groups = copy_rings(kernel), kernel.group_count()
    of_loop = sum(_slot_bytes(ring, groups) for ring in rings if ring.is_in_loop and not ring.is_split)
    once = sum(_slot_bytes(ring, groups) * ring.depth(plan) for ring in rings if ring.is_split or not ring.is_in_loop)
    filled = {copy.destination for ring in rings for copy in ring.copies}
    others = [op.result for op in kernel.walk() if isinstance(op, tile.AllocOp) and op.result not in filled]
    return of_loop, once + groups * plan.ping_pong * sum(map(buffer_bytes, others))


def epilogue_boxes(kernel: tile.KernelOp) -> int:
    """The most slots that a tile takes of a ring whose buffers come in turn; 0 where its epilogue reads nothing in bulk."""
    return max((ring.slots_a_block for ring in copy_rings(kernel) if ring.in_turn), default=0)


def fitting_plan(kernel: tile.KernelOp, plan: RolePlan, spec: TargetSpec) -> RolePlan:
    """A plan with as many slots of each ring as fit: those that an epilogue needs, then those of the loop, then more of the former.

    In ping-pong an epilogue needs all its boxes at once, for the producer that waits for it brings nothing to the others' loop. Else two
    are enough: one is read while the next is in flight.
    """
    boxes = epilogue_boxes(kernel)
    needed = max(1, boxes if plan.ping_pong > 1 else min(PLANNED_EPILOGUE_SLOTS, boxes))

    def with_slots(slots: int) -> RolePlan:
        wanted = plan._replace(epilogue_slots=slots)
        return wanted._replace(num_stages=fitting_stages(kernel, wanted, spec))

    found = next((it for it in map(with_slots, range(needed, 1, -1)) if it.num_stages > 1), with_slots(1))
    if boxes and found.epilogue_slots == needed:
        more = (with_slots(slots) for slots in range(boxes * min(2, plan.ping_pong), needed, -1))
        found = next((it for it in more if it.num_stages >= found.num_stages), found)
    return found._replace(num_stages=max(1, found.num_stages))


def threads_copies(kernel: tile.KernelOp) -> list[tile.CopyOp]:
    """The copies that all threads of a role make."""
    return [op for op in kernel.walk() if isinstance(op, tile.CopyOp) and not op.is_bulk]


def through_registers(copy: tile.CopyOp, spec: TargetSpec) -> bool:
    """Whether a copy by all threads goes through their registers, where rows are shifted or f32 is rounded: it is complete when it is
    committed, nothing of it stays in flight.
    """
    rounds = {row.name for row in spec.matrix_instructions if row.a_type == "tf32"}
    readers = [use.operation for use in copy.destination.uses]
    if any(isinstance(op, tile.ContractOp) and op.instruction.data in rounds for op in readers):
        return True
    shape, dims, queue = tile.memref_type(copy.destination).get_shape(), tile.ints(copy.dims), spec.queue_for("copy_in")
    along = contiguous_dim(tile.view_strides(copy.view), dims, shape)
    facts = access_facts(copy.view, tuple(copy.offsets), dims, shape)
    return queue is not None and piece_width(facts, None if along is None else dims[along], queue) not in queue.piece_bytes


def _slot_bytes(ring: CopyRing, groups: int) -> int:
    """Bytes of a ring's slot."""
    return sum(copied_bytes(copy, groups) for copy in (ring.copies[:1] if ring.in_turn else ring.copies))


def copied_bytes(copy: tile.CopyOp | tile.LocalStoreOp, groups: int) -> int:
    """Bytes that a copy brings, for each group of consumers where each has its own."""
    own = isinstance(copy, tile.CopyOp) and depends_on_group(copy)
    return buffer_bytes(copy.destination) * (groups if own else 1)


def _loops_with_copies(block: Block) -> Iterator[scf.ForOp]:
    for op in block.ops:
        if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.CopyOp) for inner in op.walk()):
            yield op
            yield from _loops_with_copies(op.body.block)


def _lies_in(op: Operation, block: Block) -> bool:
    return op.parent is not None and block_lies_in(op.parent, block)


def block_lies_in(inner: Block, block: Block) -> bool:
    """Whether a block is another, or within it."""
    return block in blocks_around(inner)


def _computed_from_contraction(value: SSAValue) -> bool:
    pending, seen = [value], set[SSAValue]()
    while pending:
        op = pending.pop().owner
        if isinstance(op, tile.ContractOp):
            return True
        if isinstance(op, Operation):
            sources = [value for result in op.results for value in branch_values(result)] or op.operands
            pending += [source for source in sources if source not in seen and is_tile(source)]
            seen.update(sources)
    return False
