"""Rebuilding one kernel's body as roles: buffers and barriers in front, then a persistent loop over tiles in each role."""

from treadle.dialects import pipe, sync, tile
from treadle.ir.builtin import IndexType, IntegerAttr, i32
from treadle.ir.core import Block, Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.machine import TargetSpec
from treadle.plan.expr import Expr, as_expr, constant, minimum
from treadle.transforms.kernel.kernel_ir import erase_if_unused
from treadle.transforms.kernel.roles.consumer import consume
from treadle.transforms.kernel.roles.frame import RoleFrame
from treadle.transforms.kernel.roles.local_order import BULK_STORES, order_local_accesses
from treadle.transforms.kernel.roles.parts import Parts, depends_on_group, parts_of
from treadle.transforms.kernel.roles.producer import produce
from treadle.transforms.kernel.roles.ring import Ring, fitting_stages
from treadle.transforms.kernel.tiling.index_math import builder_at_end

PRODUCER_WARPS = 4
"""A whole warpgroup, though one thread works: register reallocation is a warpgroup's."""


def rebuild_as_roles(kernel: tile.KernelOp, spec: TargetSpec, stages: int, registers: tuple[int, int]) -> None:
    """Replace a kernel's body. `stages`: slots of the ring at most; `registers` of a thread of the producer and of a computing group."""
    tiles = as_expr(kernel.grid_text()[0])
    parts = parts_of(kernel)
    block = kernel.body.block
    top = list(block.ops)
    for op in top:
        op.detach()
    for op in parts.fixed:
        block.add_op(op)
    frame = _frame(kernel, parts, spec, stages)
    regions = [_role(frame, group, tiles, spec) for group in (None, *range(frame.groups))]
    _add_roles(frame, block, regions, registers)
    for op in top:
        if op.parent is None:
            op.erase(safe_erase=False, drop_references=True)
    for op in reversed(parts.fixed):
        erase_if_unused(op)
    kernel.properties["num_warps"] = IntegerAttr(PRODUCER_WARPS + frame.groups * frame.warps, kernel.num_warps.type)
    kernel.properties.pop("groups", None)
    kernel.set_grid([str(minimum(tiles, constant(spec.compute_units))), "1", "1"])


def _frame(kernel: tile.KernelOp, parts: Parts, spec: TargetSpec, stages: int) -> RoleFrame:
    """Allocate every group's scratch, the ring's buffers and its barriers."""
    block, groups = kernel.body.block, kernel.group_count()
    names = kernel.symbol_names()
    symbols: dict[str, SSAValue] = dict(zip(names, block.args[len(block.args) - len(names) :], strict=True))
    # Operands that every group reads have one buffer; those whose place depends on the group have one a group.
    own = frozenset(copy for copy in parts.copies if depends_on_group(copy))
    fitting = max(1, fitting_stages(parts, groups, own, stages, spec))
    scratch: list[dict[SSAValue, SSAValue]] = []
    for _ in range(groups):
        copies: dict[SSAValue, SSAValue] = {}
        for alloc in parts.scratch:
            copy = tile.AllocOp(tile.memref_type(alloc.result))
            block.add_op(copy)
            copies[alloc.result] = copy.result
        scratch.append(copies)
    slots: dict[SSAValue, tile.AllocOp] = {}
    for alloc in parts.buffers:
        layout = tile.shared_layout_of(alloc.result)
        if any(copy.destination is alloc.result and copy in own for copy in parts.copies):
            layout = layout.stacked(groups)
        layout = layout.stacked(fitting)
        slots[alloc.result] = tile.AllocOp(tile.shared_buffer_type(layout.shape, tile.memref_type(alloc.result).element_type, layout))
        block.add_op(slots[alloc.result])
    index = builder_at_end(block, symbols)
    full = index.insert(sync.MbarrierAllocOp(1, fitting))
    empty = index.insert(sync.MbarrierAllocOp(groups, fitting))
    return RoleFrame(parts, Ring(fitting, full, empty), groups, kernel.num_warps.value.data, own, slots, tuple(scratch), symbols)


def _role(frame: RoleFrame, group: int | None, tiles: Expr, spec: TargetSpec) -> Region:
    """The producer (group None) or one consumer: the loop over tiles with the ring's place carried along.

    Scalars are born in the role that uses them: what lives across the roles' branch would hold registers in all of them.
    """
    block = Block()
    index = builder_at_end(block, frame.symbols)
    known: dict[SSAValue, SSAValue] = {}
    for op in frame.parts.fixed:
        if not isinstance(op, tile.ViewOp):
            index.builder.insert(op.clone(known))
    first = index.insert(tile.ProgramIdOp(0))
    start = [index.constant(0), index.insert(arith.ConstantOp(IntegerAttr(0, i32)))]
    body = Block(arg_types=[IndexType(), IndexType(), i32])
    place, slot, phase = body.args
    inside = builder_at_end(body, frame.symbols)
    if group is None:
        slot, phase = produce(frame, inside, known, place, slot, phase)
    else:
        slot, phase = consume(frame, inside, known, group, place, slot, phase)
        order_local_accesses(body, 1 + group, frame.warps)
    body.add_op(scf.YieldOp(slot, phase))
    index.builder.insert(scf.ForOp(first, index.expression(tiles), index.constant(spec.compute_units), start, body))
    if any(isinstance(op, tile.CopyOutOp) for op in body.walk()):
        block.add_op(sync.WaitOp(BULK_STORES, 0))
    block.add_op(pipe.EndRoleOp())
    return Region(block)


def _add_roles(frame: RoleFrame, block: Block, regions: list[Region], registers: tuple[int, int]) -> None:
    names = ["producer", *(f"consumer{g}" for g in range(frame.groups))]
    warps = [PRODUCER_WARPS, *[frame.warps] * frame.groups]
    producer, consumer = registers
    block.add_op(pipe.RolesOp(names, warps, [1] * len(names), regions, [producer, *[consumer] * frame.groups]))
    block.add_op(tile.ReturnOp())
