"""Taking a kernel apart: what specialisation rearranges, and which kernels it must refuse."""

from treadle.analysis.divisibility import constant_value
from treadle.dialects import pipe, tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.tile_types import is_tile
from treadle.ir.builtin import IndexType, i1, i32
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.records import dataclass
from treadle.transforms.kernel.roles.shared_copies import own_parts
from treadle.transforms.kernel.roles.splitting import splitting_of

STEPS_OF_TILES = "the number of steps depends on the tile"


@dataclass(frozen=True, slots=True)
class Parts:
    """The pieces of a kernel that specialisation rearranges.

    `fixed`: operations that depend on no workgroup id (constants, views); `body`: the others, in order; `loop`: the one loop with copies;
    `copies`, `contracts` of its body.
    """

    fixed: tuple[Operation, ...]
    body: tuple[Operation, ...]
    loop: scf.ForOp
    copies: tuple[tile.CopyOp, ...]
    contracts: tuple[tile.ContractOp, ...]


def depends_on_workgroup(op: Operation, dependent: set[Operation]) -> bool:
    """Whether an operation depends on the workgroup or the group, or on one of those that do."""
    if isinstance(op, tile.ProgramIdOp | pipe.GroupIdOp):
        return True
    owners = [v.owner for inner in op.walk() for v in inner.operands]
    return any(isinstance(o, Operation) and o in dependent for o in owners)


def refusal(kernel: tile.KernelOp) -> str | None:
    """Why a kernel cannot be specialised, None where it can."""
    loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
    with_copies = [loop for loop in loops if any(isinstance(op, tile.CopyOp) for op in loop.walk())]
    if len(with_copies) != 1:
        return f"{len(with_copies)} loops issue hardware copies; one is needed"
    block = with_copies[0].body.block
    outside = [op for op in kernel.walk() if isinstance(op, tile.CopyOp) and op.parent is not block]
    if not all(feeds_epilogue(copy, with_copies[0]) for copy in outside):
        return "a hardware copy stands outside the loop's own block, and brings nothing that an epilogue reads"
    split = splitting_of(block)
    read = () if split is None else {op.destination for op in block.ops if isinstance(op, tile.CopyOp)}
    for op in block.ops:
        if split is not None and (op in split.ops or (isinstance(op, tile.LocalLoadOp) and op.source in read)):
            continue
        # Loads alone are scales of a step's accumulators; an operand's would be followed by local stores.
        if isinstance(op, tile.LocalStoreOp | tile.LocalLoadOp | tile.StoreOp | scf.ForOp | scf.IfOp):
            return f"the loop holds {op.name}: an operand goes through registers"
    if not any(isinstance(op, tile.ContractOp) for op in block.ops):
        return "the loop contracts nothing"
    return None


def feeds_epilogue(copy: tile.CopyOp, loop: scf.ForOp) -> bool:
    """Whether a copy behind a loop, in its block, fills a buffer that local loads behind it read and nothing else touches."""
    uses = [use.operation for use in copy.destination.uses if use.operation is not copy]
    read = all(isinstance(op, tile.LocalLoadOp) and op.parent is copy.parent and copy.is_before_in_block(op) for op in uses)
    return copy.is_bulk and copy.parent is loop.parent and loop.is_before_in_block(copy) and read


def read_indices(kernel: tile.KernelOp) -> list[Operation]:
    """What computes the indices that a kernel's own block reads from memory, these included: all warps do it, ahead of the roles."""
    block = kernel.body.block
    pending: list[Operation] = [op for op in block.ops if isinstance(op, tile.ExtractOp)]
    found: set[Operation] = set()
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [value.owner for value in op.operands if isinstance(value.owner, Operation)]
    return [op for op in block.ops if op in found]


def dealt_out(kernel: tile.KernelOp, *, in_turn: bool = False) -> tuple[list[Operation], list[Operation], list[tile.AllocOp]]:
    """The operations of a kernel's own block: scalars and views that are the same for all workgroups, all others but `read_indices`,
    buffers. `in_turn`: a workgroup has several tiles, and reads the indices of each with it.
    """
    fixed: list[Operation] = []
    body: list[Operation] = []
    allocs: list[tile.AllocOp] = []
    dependent: set[Operation] = set()
    ahead = set[Operation]() if in_turn else set(read_indices(kernel))
    for op in kernel.body.block.ops:
        if isinstance(op, tile.AllocOp):
            allocs.append(op)
        elif isinstance(op, tile.ReturnOp):
            continue
        elif op in ahead and (depends_on_workgroup(op, dependent) or not is_fixed(op)):
            dependent.add(op)
        elif isinstance(op, scf.ForOp) or depends_on_workgroup(op, dependent) or not is_fixed(op):
            dependent.add(op)
            body.append(op)
        else:
            fixed.append(op)
    return fixed, body, allocs


def parts_of(kernel: tile.KernelOp) -> Parts:
    """Take a kernel apart that `refusal` lets pass."""
    fixed, body, _ = dealt_out(kernel)
    loop = next(op for op in body if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.CopyOp) for inner in op.walk()))
    copies = tuple(op for op in loop.body.block.ops if isinstance(op, tile.CopyOp))
    contracts = tuple(op for op in loop.body.block.ops if isinstance(op, tile.ContractOp))
    return Parts(tuple(fixed), tuple(body), loop, copies, contracts)


def loop_first(parts: Parts) -> list[Operation]:
    """The body with the arithmetic on scalars that neither its loop nor anything else in front of it needs behind the loop."""
    at, copies = parts.body.index(parts.loop), set(parts.copies)
    before = parts.body[:at]
    movable = [op for op in before if is_index_math(op)]
    staying = [inner for op in before if op not in movable for inner in op.walk()]
    pending = [v for op in (*staying, *parts.loop.walk()) if op not in copies for v in op.operands]
    needed: set[Operation] = set()
    while pending:
        op = pending.pop().owner
        if isinstance(op, Operation) and op not in needed:
            needed.add(op)
            pending += op.operands
    later = [op for op in movable if op not in needed]
    return [*(op for op in before if op not in later), parts.loop, *later, *parts.body[at + 1 :]]


def is_index_math(op: Operation) -> bool:
    """Whether an operation computes scalars alone, and touches no memory for that."""
    if isinstance(op, HasEffects) and op.effects():
        return False
    return all(isinstance(r.type, IndexType) or r.type in (i1, i32) for r in op.results) and bool(op.results) and not op.regions


def is_fixed(op: Operation) -> bool:
    """Whether an operation may stay in front of the roles: scalars and views (a register tile belongs to one group)."""
    return isinstance(op, tile.ViewOp | tile.LookupOp) or (op.name.startswith("arith.") and not any(is_tile(r) for r in op.results))


def depends_on_group(copy: tile.CopyOp) -> bool:
    """Whether the place that a copy reads is another one for each group."""
    pending: list[SSAValue] = list(copy.offsets)
    seen: set[SSAValue] = set()
    while pending:
        value = pending.pop()
        op = value.owner
        if value in seen or not isinstance(op, Operation):
            continue
        seen.add(value)
        if isinstance(op, pipe.GroupIdOp):
            return True
        pending.extend(op.operands)
    return False


def shared_copies(parts: Parts, *, rows: bool) -> frozenset[tile.CopyOp]:
    """Copies of operands that tiles of the same columns share, or of the same `rows`."""
    shared = {contract.a if rows else contract.b for contract in parts.contracts}
    return frozenset(copy for copy in parts.copies if copy.destination in shared)


def cluster_refusal(kernel: tile.KernelOp, cluster: tuple[int, int], *, in_turn: bool = False) -> str | None:
    """Why so many workgroups along m of a kernel that `refusal` lets pass cannot share the operand of their tiles' columns, or so many
    along n that of their rows; None where they can. `in_turn`: a workgroup has several tiles.
    """
    along_m, along_n = cluster
    if any(isinstance(op, tile.AwaitTurnOp) for op in kernel.walk()):
        return "workgroups wait for their turn, each by itself"
    if kernel.cluster_size() > 1:
        return "workgroups of a cluster have the parts of one tile"
    if not _has_steps_of_clusters(kernel, 0 if in_turn else along_m * along_n):
        return STEPS_OF_TILES
    parts = parts_of(kernel)
    for count, rows in ((along_m, False), (along_n, True)):
        for copy in shared_copies(parts, rows=rows) if count > 1 else ():
            if not copy.is_bulk:
                return "the shared operand comes by the threads' copies, which fill one workgroup"
            if not own_parts(tile.shared_layout_of(copy.destination), count, rows=rows):
                return f"{count} parts of the shared operand do not follow one another in memory"
    return None


def turns_refusal(kernel: tile.KernelOp) -> str | None:
    """Why consumers of a kernel that `refusal` lets pass cannot take tiles in turn, None where they can."""
    return None if _has_steps_of_clusters(kernel, 0) else STEPS_OF_TILES


def _has_steps_of_clusters(kernel: tile.KernelOp, cluster: int) -> bool:
    """Whether all tiles of a cluster of so many workgroups have the same steps, as those of one part of a sum have; of 0, all tiles."""
    parts = parts_of(kernel)
    fixed, loop = set(parts.fixed), parts.loop
    pending, seen = [loop.lb, loop.ub, loop.step], set[SSAValue]()
    while pending:
        value = pending.pop()
        op = value.owner
        if value in seen or not isinstance(op, Operation) or op in fixed:
            continue
        seen.add(value)
        if not cluster or not op.name.startswith("arith."):
            return False
        if not _is_of_cluster(op, cluster):
            pending += op.operands
    return True


def _is_of_cluster(op: Operation, cluster: int) -> bool:
    """Whether an operation makes of a workgroup's id what all workgroups of its cluster make of theirs."""
    if not isinstance(op, arith.DivUIOp | arith.DivSIOp) or not isinstance(op.lhs.owner, tile.ProgramIdOp):
        return False
    divisor = constant_value(op.rhs)
    return divisor is not None and divisor > 0 and divisor % cluster == 0
