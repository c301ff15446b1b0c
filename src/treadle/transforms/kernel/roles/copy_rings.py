"""The rings of a kernel's copies: which buffers are filled together, how many slots fit, which kernels can be dealt out to roles."""

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.analysis.element_bytes import buffer_bytes
from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.ir.ancestry import blocks_around
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.machine import TargetSpec
from treadle.plan.role_tiles import ROLE_MARGIN_BYTES
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.roles.parts import depends_on_group


@dataclass(frozen=True, eq=False, slots=True)
class CopyRing:
    """Buffers that are filled together in `block`."""

    block: Block
    copies: tuple[tile.CopyOp, ...]

    @property
    def is_in_loop(self) -> bool:
        """Whether a loop fills it again and again."""
        return isinstance(self.block.parent_op(), scf.ForOp)


def copy_rings(kernel: tile.KernelOp) -> list[CopyRing]:
    """The rings of a kernel, in the order of their first copies.

    Contractions side by side read one ring. Those that wait for each other's results have rings of their own, so that each operand goes
    back when its reader is over.
    """
    chained = is_chain(kernel)
    found: list[tuple[CopyRing, set[Operation]]] = []
    for copy in [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]:
        if (block := copy.parent) is None:
            continue
        readers = {use.operation for use in copy.destination.uses} - {copy}
        joined = [(ring, known) for ring, known in found if ring.block is block and (not chained or known & readers)]
        copies = (*(one for ring, _ in joined for one in ring.copies), copy)
        at = found.index(joined[0]) if joined else len(found)
        found[at:at] = [(CopyRing(block, copies), readers.union(*(known for _, known in joined)))]
        found = [entry for entry in found if entry not in joined]
    return [ring for ring, _ in found]


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
            if not copy.is_bulk or filled.count(copy.destination) > 1:
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


def fitting_stages(kernel: tile.KernelOp, ping_pong: int, wanted: int, spec: TargetSpec) -> int:
    """As many slots of the rings that loops fill as fit, at most `wanted`; 0 where not even one does."""
    rings, groups = copy_rings(kernel), kernel.group_count()
    of_loop = sum(_ring_bytes(ring, groups) for ring in rings if ring.is_in_loop)
    once = sum(_ring_bytes(ring, groups) for ring in rings if not ring.is_in_loop) * _slots_outside(kernel)
    filled = {copy.destination for ring in rings for copy in ring.copies}
    others = [op.result for op in kernel.walk() if isinstance(op, tile.AllocOp) and op.result not in filled]
    scratch = groups * ping_pong * sum(map(buffer_bytes, others))
    return max(0, min(wanted, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - scratch - once) // of_loop))


def _slots_outside(kernel: tile.KernelOp) -> int:
    """Slots of what is brought once a tile: two where workgroups take tiles in turn, for the next tile's is brought under this one."""
    config = config_of(kernel)
    return 2 if isinstance(config, roles.Config) and config.workgroups else 1


def _ring_bytes(ring: CopyRing, groups: int) -> int:
    total = 0
    for copy in ring.copies:
        total += buffer_bytes(copy.destination) * (groups if depends_on_group(copy) else 1)
    return total


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
            pending += [operand for operand in op.operands if operand not in seen and is_tile(operand)]
            seen.update(op.operands)
    return False
