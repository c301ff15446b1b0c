"""Roles for a kernel of any loops: its operations dealt out by what they do, each ring's slots stepped where its buffers are filled.

The producer keeps the bulk copies, the loops around them and the arithmetic they need; the consumers keep everything else. Buffers that the
same operations read, filled in the same block, share a ring. Both roles walk the same blocks, so both step a ring's slot once for each
execution of the block that fills it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.dialects import pipe, tile
from treadle.dialects.role_plan import RolePlan
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import give_location
from treadle.machine import TargetSpec
from treadle.plan.role_tiles import ROLE_MARGIN_BYTES
from treadle.transforms.kernel.allocate_shared import buffer_bytes
from treadle.transforms.kernel.kernel_ir import config_int, is_tile
from treadle.transforms.kernel.roles.frame import clone, slot_of, stacked
from treadle.transforms.kernel.roles.parts import depends_on_group, depends_on_workgroup, is_fixed, is_index_math
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end

Values = dict[SSAValue, SSAValue]


@dataclass(frozen=True, eq=False, slots=True)
class CopyRing:
    """Buffers that are filled together in `block` and read by the same operations."""

    block: Block
    copies: tuple[tile.CopyOp, ...]

    @property
    def is_in_loop(self) -> bool:
        """Whether a loop fills it again and again."""
        return isinstance(self.block.parent_op(), scf.ForOp)


Slots = dict[CopyRing, SSAValue]


def copy_rings(kernel: tile.KernelOp) -> list[CopyRing]:
    """The rings of a kernel, in the order of their first copies."""
    found: list[tuple[CopyRing, set[Operation]]] = []
    for copy in [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]:
        if (block := copy.parent) is None:
            continue
        readers = {use.operation for use in copy.destination.uses} - {copy}
        joined = [(ring, known) for ring, known in found if ring.block is block and known & readers]
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
            if copy.path.data != "bulk_tensor" or filled.count(copy.destination) > 1:
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
    """Whether a contraction reads, through shared memory, what is computed from another's result."""
    for contract in [op for op in kernel.walk() if isinstance(op, tile.ContractOp)]:
        for buffer in (contract.a, contract.b):
            writers = [use.operation for use in buffer.uses if isinstance(use.operation, tile.LocalStoreOp)]
            if any(_computed_from_contraction(writer.value) for writer in writers):
                return True
    return False


def partition_stages(kernel: tile.KernelOp, ping_pong: int, wanted: int, spec: TargetSpec) -> int:
    """As many slots of the rings that loops fill as fit, at most `wanted`; 0 where not even one does."""
    rings, groups = copy_rings(kernel), kernel.group_count()
    of_loop = sum(_ring_bytes(ring, groups) for ring in rings if ring.is_in_loop)
    once = sum(_ring_bytes(ring, groups) for ring in rings if not ring.is_in_loop) * _slots_outside(kernel, spec)
    filled = {copy.destination for ring in rings for copy in ring.copies}
    scratch = groups * ping_pong * sum(buffer_bytes(op) for op in kernel.walk() if isinstance(op, tile.AllocOp) and op.result not in filled)
    return max(0, min(wanted, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - scratch - once) // of_loop))


def _slots_outside(kernel: tile.KernelOp, spec: TargetSpec) -> int:
    """Slots of what is brought once a tile: two where workgroups take tiles in turn, for the next tile's is brought under this one."""
    return 2 if config_int(kernel, "workgroups", spec.compute_units) else 1


class Partition:
    """Writes the regions of one kernel's roles. `fixed`, `body`: its operations outside of all loops, views and constants apart."""

    def __init__(self, kernel: tile.KernelOp, plan: RolePlan, symbols: dict[str, SSAValue]) -> None:
        self.plan, self.groups, self.symbols = plan, kernel.group_count(), symbols
        self.rings = copy_rings(kernel)
        self.fixed: list[Operation] = []
        self.body: list[Operation] = []
        self.allocs: list[tile.AllocOp] = []
        dependent: set[Operation] = set()
        for op in kernel.body.block.ops:
            if isinstance(op, tile.AllocOp):
                self.allocs.append(op)
            elif isinstance(op, scf.ForOp) or depends_on_workgroup(op, dependent) or not is_fixed(op):
                dependent.add(op)
                self.body.append(op)
            else:
                self.fixed.append(op)
        self.own = {copy for ring in self.rings for copy in ring.copies if depends_on_group(copy)}
        self.slots: dict[SSAValue, tile.AllocOp] = {}
        self.scratch: dict[SSAValue, tile.AllocOp] = {}

    def depth(self, ring: CopyRing) -> int:
        """How many slots a ring has."""
        return self.plan.num_stages if ring.is_in_loop else 2 if self.plan.workgroups else 1

    def allocate(self, block: Block) -> None:
        """The buffers of all rings and of all groups."""
        for ring in self.rings:
            for copy in ring.copies:
                counts = (self.depth(ring), self.groups) if copy in self.own else (self.depth(ring),)
                self.slots[copy.destination] = stacked(block, copy.destination, *counts)
        for alloc in self.allocs:
            if alloc.result not in self.slots:
                self.scratch[alloc.result] = stacked(block, alloc.result, self.groups)

    def region(self, tiles: SSAValue | None, index: IndexBuilder, known: Values, block: Block, *, consumes: bool) -> Region:
        """One role: its tile, or the loop over its tiles up to `tiles`."""
        first = index.insert(tile.ProgramIdOp(0))
        group = index.insert(pipe.GroupIdOp()) if consumes else index.constant(0)
        if consumes:
            known |= {old: slot_of(index, new, [group]) for old, new in self.scratch.items()}
        start = [index.constant(0) for _ in self.rings]
        if tiles is None:
            # The number is one of this block, whatever constants are.
            seeds = [
                index.insert(pipe.AdvanceOp(slot, index.constant(0), self.depth(r))) for r, slot in zip(self.rings, start, strict=True)
            ]
            self._tile(index, known, first, group, dict(zip(self.rings, seeds, strict=True)), consumes=consumes)
        else:
            body = Block(arg_types=[IndexType()] * (1 + len(start)))
            inside, slots = builder_at_end(body, self.symbols), Slots(zip(self.rings, body.args[1:], strict=True))
            self._tile(inside, known, body.args[0], group, slots, consumes=consumes)
            body.add_op(scf.YieldOp(*(slots[ring] for ring in self.rings)))
            index.builder.insert(scf.ForOp(first, tiles, index.constant(self.plan.workgroups), start, body))
        block.add_op(pipe.EndRoleOp())
        return Region(block)

    def _tile(self, index: IndexBuilder, known: Values, place: SSAValue, group: SSAValue, slots: Slots, *, consumes: bool) -> None:
        if consumes:
            self._operations(self.body, [(group, dict(known))], index, place, slots, consumes=True)
            return
        groups = [index.constant(number) for number in range(self.groups)]
        self._operations(self.body, [(number, dict(known)) for number in groups], index, place, slots, consumes=False)

    def _operations(
        self,
        ops: Sequence[Operation],
        maps: list[tuple[SSAValue, Values]],
        index: IndexBuilder,
        place: SSAValue,
        slots: Slots,
        *,
        consumes: bool,
    ) -> None:
        """The operations of a block that the role keeps; `maps`: for each group that it works for, its values."""
        here = [ring for ring in self.rings if any(copy in ops for copy in ring.copies)]
        for ring in here if consumes else ():
            (group, mapping), *_ = maps
            for copy in ring.copies:
                indices = [slots[ring], group] if copy in self.own else [slots[ring]]
                mapping[copy.destination] = slot_of(index, self.slots[copy.destination], indices)
        for op in ops:
            if isinstance(op, tile.CopyOp):
                if not consumes:
                    self._copy(op, maps, index, slots[next(ring for ring in here if op in ring.copies)])
            elif isinstance(op, scf.ForOp) and any(isinstance(inner, tile.CopyOp) for inner in op.walk()):
                self._loop(op, maps, index, place, slots, consumes=consumes)
            elif not isinstance(op, scf.YieldOp | tile.ReturnOp) and (consumes or _is_scalar(op)):
                for group, mapping in maps:
                    clone(op, mapping, index, group, place)
        for ring in here:
            slots[ring] = index.insert(pipe.AdvanceOp(slots[ring], index.constant(1), self.depth(ring)))

    def _copy(self, op: tile.CopyOp, maps: list[tuple[SSAValue, Values]], index: IndexBuilder, slot: SSAValue) -> None:
        for group, mapping in maps if op in self.own else maps[:1]:
            destination = slot_of(index, self.slots[op.destination], [slot, group] if op in self.own else [slot])
            offsets = [mapping.get(offset, offset) for offset in op.offsets]
            made = tile.CopyOp(mapping.get(op.view, op.view), offsets, tile.ints(op.dims), destination, path=op.path.data)
            give_location(made, op.location)
            index.builder.insert(made)

    def _loop(
        self, op: scf.ForOp, maps: list[tuple[SSAValue, Values]], index: IndexBuilder, place: SSAValue, slots: Slots, *, consumes: bool
    ) -> None:
        old, mapping = op.body.block, maps[0][1]
        rings = [ring for ring in self.rings if _block_lies_in(ring.block, old)]
        tiles = list(op.iter_args) if consumes else []
        body = Block(arg_types=[IndexType(), *(value.type for value in tiles), *[IndexType()] * len(rings)])
        inside, carried = builder_at_end(body, self.symbols), body.args[1 : 1 + len(tiles)]
        inner = [(group, {**known, old.args[0]: body.args[0]}) for group, known in maps]
        inner[0][1].update(zip(old.args[1:], carried, strict=False))
        here = {**slots, **dict(zip(rings, body.args[1 + len(tiles) :], strict=True))}
        self._operations(list(old.ops), inner, inside, place, here, consumes=consumes)
        ends = old.last_op.operands if isinstance(old.last_op, scf.YieldOp) and consumes else ()
        body.add_op(scf.YieldOp(*(inner[0][1].get(value, value) for value in ends), *(here[ring] for ring in rings)))
        low, high, step = (mapping.get(value, value) for value in (op.lb, op.ub, op.step))
        initial = [mapping.get(value, value) for value in tiles]
        new = scf.ForOp(low, high, step, [*initial, *(slots[ring] for ring in rings)], body)
        index.builder.insert(new)
        mapping.update(zip(op.results, new.results, strict=False))
        slots.update(zip(rings, new.results[len(tiles) :], strict=True))


def _is_scalar(op: Operation) -> bool:
    return isinstance(op, tile.ProgramIdOp | pipe.GroupIdOp) or is_index_math(op)


def _ring_bytes(ring: CopyRing, groups: int) -> int:
    total = 0
    for copy in ring.copies:
        alloc = copy.destination.owner
        if not isinstance(alloc, tile.AllocOp):
            raise InternalError("a copy into a part of a buffer ahead of roles")
        total += buffer_bytes(alloc) * (groups if depends_on_group(copy) else 1)
    return total


def _loops_with_copies(block: Block) -> Iterator[scf.ForOp]:
    for op in block.ops:
        if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.CopyOp) for inner in op.walk()):
            yield op
            yield from _loops_with_copies(op.body.block)


def _lies_in(op: Operation, block: Block) -> bool:
    return op.parent is not None and _block_lies_in(op.parent, block)


def _block_lies_in(inner: Block, block: Block) -> bool:
    current: Block | None = inner
    while current is not None and current is not block:
        parent = current.parent_op()
        current = parent.parent if parent is not None else None
    return current is block


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
