"""specialize-warps: gives copying and computing to different warps, which hand buffers over through rings of barriers.

Level: tile to schedule. Reads: the kernel's `groups`, property `specialize` of its config (`stages`, `registers`), the machine's facts.
Writes: a
kernel of roles: one producer that issues the copies of every tile, one consumer a group; a persistent loop over tiles; rings of `stages`
slots
with a full and an empty barrier each. Leaves alone: kernels without `specialize`; those it must refuse (a remark says why).

The shape of the kernel (a ring of mbarriers, a producer warp, register reallocation) is that of CUTLASS, DeepGEMM and fast.cu on Hopper.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from treadle import remarks
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.liveness import allocation
from treadle.dialects import pipe, sync, tile
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType, IntegerAttr, i32
from treadle.ir.core import Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.locations import give_location, location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.expr import Expr, as_expr, constant, minimum
from treadle.plan.tile_config import ROLE_MARGIN_BYTES
from treadle.transforms.kernel.allocate_shared import buffer_bytes
from treadle.transforms.kernel.kernel_ir import KernelPass, config_int, erase_if_unused, insert_after, insert_before, is_tile
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end

NAME = "specialize-warps"
BULK_STORES = "bulk_store"
PRODUCER_WARPS = 4
"""A whole warpgroup, though one thread works: register reallocation is a warpgroup's."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The pieces of a kernel that specialisation rearranges.

    `fixed`: operations that depend on no workgroup id (constants, views); `body`: the others, in order; `loop`: the one loop with copies;
    `copies`, `contracts` of its body; `buffers`: what the copies fill; `scratch`: all other shared buffers.
    """

    fixed: tuple[Operation, ...]
    body: tuple[Operation, ...]
    loop: scf.ForOp
    copies: tuple[tile.CopyOp, ...]
    contracts: tuple[tile.ContractOp, ...]
    buffers: tuple[tile.AllocOp, ...]
    scratch: tuple[tile.AllocOp, ...]


def _depends_on_workgroup(op: Operation, dependent: set[Operation]) -> bool:
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
    if any(isinstance(op, tile.CopyOp) for op in kernel.walk() if op.parent is not block):
        return "a hardware copy stands outside the loop's own block"
    for op in block.ops:
        if isinstance(op, tile.LocalStoreOp | tile.LocalLoadOp | tile.LoadOp | tile.StoreOp | scf.ForOp | scf.IfOp):
            return f"the loop holds {op.name}: an operand goes through registers"
    if not any(isinstance(op, tile.ContractOp) for op in block.ops):
        return "the loop contracts nothing"
    return None


def parts_of(kernel: tile.KernelOp) -> Parts:
    """Take a kernel apart that `refusal` lets pass."""
    fixed: list[Operation] = []
    body: list[Operation] = []
    allocs: list[tile.AllocOp] = []
    dependent: set[Operation] = set()
    for op in kernel.body.block.ops:
        if isinstance(op, tile.AllocOp):
            allocs.append(op)
        elif isinstance(op, tile.ReturnOp):
            continue
        elif isinstance(op, scf.ForOp) or _depends_on_workgroup(op, dependent) or not _is_fixed(op):
            dependent.add(op)
            body.append(op)
        else:
            fixed.append(op)
    loop = next(op for op in body if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.CopyOp) for inner in op.walk()))
    copies = tuple(op for op in loop.body.block.ops if isinstance(op, tile.CopyOp))
    contracts = tuple(op for op in loop.body.block.ops if isinstance(op, tile.ContractOp))
    filled = {copy.destination for copy in copies}
    buffers = tuple(op for op in allocs if op.result in filled)
    return Parts(tuple(fixed), tuple(body), loop, copies, contracts, buffers, tuple(op for op in allocs if op.result not in filled))


def _is_fixed(op: Operation) -> bool:
    """Whether an operation may stay in front of the roles: scalars and views (a register tile belongs to one group)."""
    return isinstance(op, tile.ViewOp) or (op.name.startswith("arith.") and not any(is_tile(r) for r in op.results))


@dataclass(slots=True)
class Ring:
    """`stages` slots with their barriers; `slot` (index) and `phase` (i32) are carried by the loops of a role."""

    stages: int
    full: SSAValue
    empty: SSAValue

    def advance(self, index: IndexBuilder, slot: SSAValue, phase: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Slot and phase of the next step: the phase turns where the slot wraps."""
        following = index.add(slot, index.constant(1))
        wraps = index.insert(arith.CmpiOp(following, index.constant(self.stages), "eq"))
        turned = index.insert(arith.XOrIOp(phase, index.insert(arith.ConstantOp(IntegerAttr(1, i32)))))
        return (
            index.insert(arith.SelectOp(wraps, index.constant(0), following)),
            index.insert(arith.SelectOp(wraps, turned, phase)),
        )


def fitting_stages(parts: Parts, groups: int, own: frozenset[tile.CopyOp], wanted: int, spec: TargetSpec) -> int:
    """As many slots of the ring as fit beside the scratch of all groups, at most `wanted`."""
    owned = {copy.destination for copy in own}
    slot = sum(buffer_bytes(alloc) * (groups if alloc.result in owned else 1) for alloc in parts.buffers)
    scratch = groups * sum(buffer_bytes(alloc) for alloc in parts.scratch)
    return min(wanted, (spec.shared_bytes_per_workgroup - ROLE_MARGIN_BYTES - scratch) // slot)


class Specializer:
    """Rebuilds one kernel's body as roles."""

    def __init__(self, kernel: tile.KernelOp, spec: TargetSpec, stages: int, registers: tuple[int, int]) -> None:
        self.kernel = kernel
        self.spec = spec
        self.parts = parts_of(kernel)
        self.groups = kernel.group_count()
        self.registers = registers
        self.block = kernel.body.block
        names = kernel.symbol_names()
        self.symbols: Mapping[str, SSAValue] = dict(zip(names, self.block.args[len(self.block.args) - len(names) :], strict=True))
        # Operands that every group reads have one buffer; those whose place depends on the group have one a group.
        self.own = frozenset(copy for copy in self.parts.copies if self._depends_on_group(copy))
        self.stages = max(1, fitting_stages(self.parts, self.groups, self.own, stages, spec))
        self.slots: dict[SSAValue, tile.AllocOp] = {}
        self.scratch: list[dict[SSAValue, SSAValue]] = []

    def _depends_on_group(self, copy: tile.CopyOp) -> bool:
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

    def run(self) -> None:
        """Replace the kernel's body."""
        parts = self.parts
        tiles = as_expr(self.kernel.grid_text()[0])
        top = list(self.block.ops)
        for op in top:
            op.detach()
        index = builder_at_end(self.block, self.symbols)
        for op in parts.fixed:
            self.block.add_op(op)
        for _ in range(self.groups):
            own: dict[SSAValue, SSAValue] = {}
            for alloc in parts.scratch:
                copy = tile.AllocOp(tile.memref_type(alloc.result))
                self.block.add_op(copy)
                own[alloc.result] = copy.result
            self.scratch.append(own)
        for alloc in parts.buffers:
            layout = tile.shared_layout_of(alloc.result)
            if any(copy.destination is alloc.result and copy in self.own for copy in parts.copies):
                layout = layout.stacked(self.groups)
            layout = layout.stacked(self.stages)
            ring = tile.AllocOp(tile.shared_buffer_type(layout.shape, tile.memref_type(alloc.result).element_type, layout))
            self.block.add_op(ring)
            self.slots[alloc.result] = ring
        ring = Ring(
            self.stages,
            index.insert(sync.MbarrierAllocOp(1, self.stages)),
            index.insert(sync.MbarrierAllocOp(self.groups, self.stages)),
        )
        regions = [self._role(group, ring, tiles) for group in (None, *range(self.groups))]
        warps = self.kernel.num_warps.value.data
        producer, consumer = self.registers
        self.block.add_op(
            pipe.RolesOp(
                ["producer", *(f"consumer{g}" for g in range(self.groups))],
                [PRODUCER_WARPS, *[warps] * self.groups],
                [1] * (1 + self.groups),
                regions,
                [producer, *[consumer] * self.groups],
            )
        )
        self.block.add_op(tile.ReturnOp())
        for op in top:
            if op.parent is None:
                op.erase(safe_erase=False, drop_references=True)
        for op in reversed(parts.fixed):
            erase_if_unused(op)
        self.kernel.properties["num_warps"] = IntegerAttr(PRODUCER_WARPS + self.groups * warps, self.kernel.num_warps.type)
        self.kernel.properties.pop("groups", None)
        grid = [str(minimum(tiles, constant(self.spec.compute_units))), "1", "1"]
        self.kernel.set_grid(grid)

    def _role(self, group: int | None, ring: Ring, tiles: Expr) -> Region:
        """The producer (group None) or one consumer: the loop over tiles with the ring's place carried along.

        Scalars are born in the role that uses them: what lives across the roles' branch would hold registers in all of them.
        """
        block = Block()
        index = builder_at_end(block, self.symbols)
        known: dict[SSAValue, SSAValue] = {}
        for op in self.parts.fixed:
            if not isinstance(op, tile.ViewOp):
                index.builder.insert(op.clone(known))
        first = index.insert(tile.ProgramIdOp(0))
        start = [index.constant(0), index.insert(arith.ConstantOp(IntegerAttr(0, i32)))]
        body = Block(arg_types=[IndexType(), IndexType(), i32])
        place, slot, phase = body.args
        inside = builder_at_end(body, self.symbols)
        if group is None:
            slot, phase = self._produce(inside, ring, known, place, slot, phase)
        else:
            slot, phase = self._consume(inside, ring, known, group, place, slot, phase)
            order_local_accesses(body, 1 + group, self.kernel.num_warps.value.data)
        body.add_op(scf.YieldOp(slot, phase))
        index.builder.insert(scf.ForOp(first, index.expression(tiles), index.constant(self.spec.compute_units), start, body))
        if any(isinstance(op, tile.CopyOutOp) for op in body.walk()):
            block.add_op(sync.WaitOp(BULK_STORES, 0))
        block.add_op(pipe.EndRoleOp())
        return Region(block)

    def _clone(self, op: Operation, mapping: dict[SSAValue, SSAValue], index: IndexBuilder, group: int, place: SSAValue) -> None:
        """Copy one operation of the tile's program for a group, the workgroup's id replaced by the tile's number."""
        if isinstance(op, tile.ProgramIdOp):
            mapping[op.result] = place
        elif isinstance(op, pipe.GroupIdOp):
            mapping[op.result] = index.constant(group)
        else:
            new = op.clone(mapping)
            index.builder.insert(new)

    def _is_index_math(self, op: Operation) -> bool:
        return all(isinstance(r.type, IndexType) or r.type == i32 for r in op.results) and bool(op.results) and not op.regions

    def _slot_of(self, index: IndexBuilder, buffer: SSAValue, slot: SSAValue, group: int, own: bool) -> SSAValue:
        ring = self.slots[buffer]
        indices = [slot, index.constant(group)] if own else [slot]
        return index.insert(pipe.SlotOp(ring.result, indices, tile.shared_layout_of(ring.result).slot(len(indices))))

    def _produce(
        self, index: IndexBuilder, ring: Ring, known: Mapping[SSAValue, SSAValue], place: SSAValue, slot: SSAValue, phase: SSAValue
    ) -> tuple[SSAValue, SSAValue]:
        """Copies of one tile: wait until the slot is empty, announce the bytes, issue the copies of all groups."""
        maps: list[dict[SSAValue, SSAValue]] = []
        for group in range(self.groups):
            mapping: dict[SSAValue, SSAValue] = dict(known)
            for op in self.parts.body:
                if op is self.parts.loop:
                    break
                if isinstance(op, tile.ProgramIdOp | pipe.GroupIdOp) or self._is_index_math(op):
                    self._clone(op, mapping, index, group, place)
            maps.append(mapping)
        loop = self.parts.loop
        body = Block(arg_types=[IndexType(), IndexType(), i32])
        inside = builder_at_end(body, self.symbols)
        at, inner_slot, inner_phase = body.args
        turned = inside.insert(arith.XOrIOp(inner_phase, inside.insert(arith.ConstantOp(IntegerAttr(1, i32)))))
        inside.builder.insert(sync.WaitPhaseOp(inside.insert(sync.MbarrierSlotOp(ring.empty, inner_slot)), turned))
        full = inside.insert(sync.MbarrierSlotOp(ring.full, inner_slot))
        total = sum(self._copied_bytes(copy) * (self.groups if copy in self.own else 1) for copy in self.parts.copies)
        inside.builder.insert(sync.MbarrierExpectOp(full, total))
        for group, mapping in enumerate(maps):
            mapping[loop.body.block.args[0]] = at
            for op in loop.body.block.ops:
                if isinstance(op, tile.CopyOp):
                    if group and op not in self.own:
                        continue
                    destination = self._slot_of(inside, op.destination, inner_slot, group, op in self.own)
                    offsets = [mapping.get(o, o) for o in op.offsets]
                    copy = tile.CopyOp(op.view, offsets, tile.ints(op.dims), destination, path=op.path.data, barrier=full)
                    give_location(copy, op.location)
                    inside.builder.insert(copy)
                elif self._is_index_math(op):
                    self._clone(op, mapping, inside, group, place)
        body.add_op(scf.YieldOp(*ring.advance(inside, inner_slot, inner_phase)))
        new = scf.ForOp(
            maps[0].get(loop.lb, loop.lb), maps[0].get(loop.ub, loop.ub), maps[0].get(loop.step, loop.step), [slot, phase], body
        )
        index.builder.insert(new)
        return new.results[0], new.results[1]

    def _copied_bytes(self, copy: tile.CopyOp) -> int:
        kind = tile.memref_type(copy.destination)
        total = element_bytes(kind.element_type)
        for extent in kind.get_shape():
            total *= extent
        return total

    def _consume(
        self,
        index: IndexBuilder,
        ring: Ring,
        known: Mapping[SSAValue, SSAValue],
        group: int,
        place: SSAValue,
        slot: SSAValue,
        phase: SSAValue,
    ) -> tuple[SSAValue, SSAValue]:
        """One tile of one group: contract what the producer delivers, hand slots back, then everything after the loop."""
        mapping: dict[SSAValue, SSAValue] = {**known, **self.scratch[group]}
        loop = self.parts.loop
        for op in self.parts.body:
            if op is loop:
                slot, phase = self._contract(index, ring, group, place, mapping, slot, phase)
            else:
                self._clone(op, mapping, index, group, place)
        return slot, phase

    def _contract(
        self,
        index: IndexBuilder,
        ring: Ring,
        group: int,
        place: SSAValue,
        mapping: dict[SSAValue, SSAValue],
        slot: SSAValue,
        phase: SSAValue,
    ) -> tuple[SSAValue, SSAValue]:
        loop = self.parts.loop
        old = loop.body.block
        initial = [mapping.get(v, v) for v in loop.iter_args]
        body = Block(arg_types=[IndexType(), *(a.type for a in old.args[1:]), IndexType(), i32])
        inner_slot, inner_phase = body.args[-2:]
        inside = builder_at_end(body, self.symbols)
        inner: dict[SSAValue, SSAValue] = dict(mapping)
        inner.update(zip(old.args, body.args[: len(old.args)], strict=True))
        inside.builder.insert(sync.WaitPhaseOp(inside.insert(sync.MbarrierSlotOp(ring.full, inner_slot)), inner_phase))
        own = {copy.destination for copy in self.own}
        for buffer in self.slots:
            inner[buffer] = self._slot_of(inside, buffer, inner_slot, group, buffer in own)
        last = self.parts.contracts[-1]
        for op in old.ops:
            if isinstance(op, tile.CopyOp | scf.YieldOp):
                continue
            self._clone(op, inner, inside, group, place)
            if op is last:
                inside.builder.insert(sync.CommitOp("wgmma"))
                inside.builder.insert(sync.WaitOp("wgmma", 0))
                inside.builder.insert(sync.ArriveOp(inside.insert(sync.MbarrierSlotOp(ring.empty, inner_slot))))
        terminator = old.last_op
        if not isinstance(terminator, scf.YieldOp):
            raise InternalError("a loop without scf.yield")
        carried = [inner.get(v, v) for v in terminator.operands]
        body.add_op(scf.YieldOp(*carried, *ring.advance(inside, inner_slot, inner_phase)))
        bounds = [mapping.get(v, v) for v in (loop.lb, loop.ub, loop.step)]
        new = scf.ForOp(bounds[0], bounds[1], bounds[2], [*initial, slot, phase], body)
        index.builder.insert(new)
        mapping.update(zip(loop.results, new.results[: len(loop.results)], strict=True))
        return new.results[-2], new.results[-1]


def order_local_accesses(block: Block, barrier_id: int, warps: int) -> None:
    """A barrier of a role's own warps wherever a local access meets an earlier one of the same buffer, and what bulk stores need.

    Scratch buffers belong to one role, so no other warps need to come. The loop over tiles brings every access back, so at its head every
    buffer counts as written and read. A buffer that leaves by tile.copy_out is free again when its group has been read: with n slots
    filled in turn, n - 1 groups may still be on their way.
    """
    ops = [inner for op in block.ops for inner in op.walk()]
    leaving = {allocation(op.source) for op in ops if isinstance(op, tile.CopyOutOp)}
    written = {allocation(op.destination) for op in ops if isinstance(op, tile.LocalStoreOp)}
    read = set(written)
    for op in ops:
        if isinstance(op, tile.CopyOutOp):
            insert_after(op, sync.CommitOp(BULK_STORES))
        elif isinstance(op, tile.LocalStoreOp):
            alloc = allocation(op.destination)
            if alloc is not None and alloc in leaving:
                slots = tile.memref_type(alloc.result).get_shape()[0]
                insert_before(op, sync.WaitOp(BULK_STORES, slots - 1, read=True), sync.NamedBarrierOp(barrier_id, warps))
                insert_after(op, sync.FenceOp("async_shared"), sync.NamedBarrierOp(barrier_id, warps))
                continue
            if alloc in written or alloc in read:
                insert_before(op, sync.NamedBarrierOp(barrier_id, warps))
                written.clear()
                read.clear()
            written.add(alloc)
        elif isinstance(op, tile.LocalLoadOp):
            alloc = allocation(op.source)
            if alloc in written:
                insert_before(op, sync.NamedBarrierOp(barrier_id, warps))
                written.clear()
                read.clear()
            read.add(alloc)


@register_pass
@dataclass(frozen=True)
class SpecializeWarpsPass(KernelPass):
    """Works on kernels whose config has `stages`."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        stages = config_int(kernel, "stages", 0)
        if not stages:
            return
        if (reason := refusal(kernel)) is not None:
            remarks.emit("refusal", NAME, kernel.sym_name.data, reason, location_of(kernel))
            return
        # Index arithmetic on sizes that only the runtime knows does not fit 40 registers.
        registers = (56, 224) if kernel.symbol_names() else (40, 232)
        Specializer(kernel, spec, stages, registers).run()
