"""Rebuilding one kernel's body as roles: buffers in front, then each role's loop over tiles, or its one tile."""

from collections.abc import Sequence

from treadle.dialects import pipe, tile
from treadle.dialects.role_plan import RolePlan
from treadle.errors import InternalError
from treadle.ir.builtin import IndexType, IntegerAttr
from treadle.ir.core import Block, Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.machine import TargetSpec
from treadle.plan.expr import Expr, as_expr, constant, minimum
from treadle.transforms.kernel.kernel_ir import erase_if_unused, mixed_widths_of
from treadle.transforms.kernel.roles.consumer import consume, consume_late
from treadle.transforms.kernel.roles.frame import RoleFrame, stacked, start_of_role, step_count
from treadle.transforms.kernel.roles.late_stores import LateStores, late_stores
from treadle.transforms.kernel.roles.partition import Partition
from treadle.transforms.kernel.roles.parts import Parts, depends_on_group, parts_of, refusal, shared_by_rows
from treadle.transforms.kernel.roles.producer import produce
from treadle.transforms.kernel.roles.ring import Ring
from treadle.transforms.kernel.roles.widths import tile_widths
from treadle.transforms.kernel.tiling.index_math import builder_at_end

PRODUCER_WARPS = 4
"""A whole warpgroup, though one thread works: register reallocation is a warpgroup's."""


def rebuild_as_roles(kernel: tile.KernelOp, spec: TargetSpec, plan: RolePlan) -> None:
    """Replace a kernel's body."""
    tiles = as_expr(kernel.grid_text()[0])
    block, groups, warps = kernel.body.block, kernel.group_count(), kernel.num_warps.value.data
    general = Partition(kernel, plan, symbols_of(kernel)) if refusal(kernel) is not None else None
    parts = parts_of(kernel) if general is None else None
    fixed = list(parts.fixed) if parts is not None else general.fixed if general is not None else []
    top = list(block.ops)
    for op in top:
        op.detach()
    for op in fixed:
        block.add_op(op)
    if parts is not None:
        frame = _frame(kernel, parts, spec, plan)
        regions = [_producer(frame, tiles), *(_consumer(frame, turn, tiles) for turn in range(plan.ping_pong))]
    else:
        regions = _partitioned(general, block, tiles) if general is not None else []
    _add_roles(plan, groups, warps, block, regions)
    for op in top:
        if op.parent is None:
            op.erase(safe_erase=False, drop_references=True)
    for op in reversed(fixed):
        erase_if_unused(op)
    kernel.properties["num_warps"] = IntegerAttr(PRODUCER_WARPS + plan.ping_pong * groups * warps, kernel.num_warps.type)
    kernel.properties.pop("groups", None)
    if plan.cluster > 1:
        kernel.properties["cluster"] = IntegerAttr(plan.cluster, kernel.num_warps.type)
    kernel.set_grid([str(minimum(tiles, constant(plan.workgroups)) if plan.workgroups else tiles), "1", "1"])


def symbols_of(kernel: tile.KernelOp) -> dict[str, SSAValue]:
    """The kernel's index arguments by name."""
    names, arguments = kernel.symbol_names(), kernel.body.block.args
    return dict(zip(names, arguments[len(arguments) - len(names) :], strict=True))


def _partitioned(partition: Partition, block: Block, tiles: Expr) -> list[Region]:
    """The regions of a kernel that is dealt out operation by operation."""
    partition.allocate(block)
    regions: list[Region] = []
    for consumes in (False, True):
        body = Block()
        index, known = start_of_role(partition.fixed, partition.symbols, body)
        end = index.expression(tiles) if partition.plan.workgroups else None
        regions.append(partition.region(end, index, known, body, consumes=consumes))
    return regions


def _frame(kernel: tile.KernelOp, parts: Parts, spec: TargetSpec, plan: RolePlan) -> RoleFrame:
    """Allocate every group's scratch, the ring's buffers and the barriers."""
    block, groups = kernel.body.block, kernel.group_count()
    symbols = symbols_of(kernel)
    # Operands that every group reads have one buffer; those whose place depends on the group have one a group.
    own = frozenset(copy for copy in parts.copies if depends_on_group(copy))
    fitting = plan.num_stages
    scratch = [{old: stacked(block, old, groups) for old in _results(parts.scratch)} for _ in range(plan.ping_pong)]
    owned = {copy.destination for copy in own}
    slots = {old: stacked(block, old, *((fitting, groups) if old in owned else (fitting,))) for old in _results(parts.buffers)}
    warps = kernel.num_warps.value.data
    shared = shared_by_rows(parts) if plan.cluster > 1 else frozenset[tile.CopyOp]()
    return RoleFrame(
        plan,
        parts,
        Ring(fitting),
        groups,
        warps,
        spec.subgroup_size,
        own,
        slots,
        tuple(scratch),
        symbols,
        shared,
        mixed_widths_of(kernel),
    )


def _results(allocs: Sequence[tile.AllocOp]) -> list[SSAValue]:
    return [alloc.result for alloc in allocs]


def _producer(frame: RoleFrame, tiles: Expr) -> Region:
    """The loop over all tiles of the workgroup, with the ring's place carried along."""
    block = Block()
    index, known = start_of_role(frame.parts.fixed, frame.symbols, block)
    first = index.insert(tile.ProgramIdOp(0))
    if not frame.plan.workgroups:
        produce(frame, index, known, first, index.constant(0))
        block.add_op(pipe.EndRoleOp())
        return Region(block)
    body = Block(arg_types=[IndexType(), IndexType()])
    place, slot = body.args
    body.add_op(scf.YieldOp(produce(frame, builder_at_end(body, frame.symbols), known, place, slot)))
    step = index.constant(frame.plan.workgroups)
    index.builder.insert(scf.ForOp(first, index.expression(tiles), step, [index.constant(0)], body))
    block.add_op(pipe.EndRoleOp())
    return Region(block)


def _consumer(frame: RoleFrame, turn: int, tiles: Expr) -> Region:
    """The loop over the tiles of a turn, for each of its groups."""
    block, turns, workgroups = Block(), frame.plan.ping_pong, frame.plan.workgroups
    index, known = start_of_role(frame.parts.fixed, frame.symbols, block)
    me = frame.consumer(index, turn)
    first = index.insert(tile.ProgramIdOp(0))
    slot = index.constant(0)
    if not workgroups:
        consume(frame, index, known, me, first, slot)
        block.add_op(pipe.EndRoleOp())
        return Region(block)
    if frame.plan.deferred_stores:
        late = late_stores(frame.parts, frame.warps * frame.lanes)
        if isinstance(late, str):
            raise InternalError(f"the role plan defers stores, but {late}")
        return _late_consumer(frame, tiles, late)
    steps = index.constant(0)
    if turns > 1:
        steps = step_count(index, _bounds(frame, known))
        for _ in range(turn):
            slot = frame.ring.advance(index, slot, steps)
        first = index.add(first, index.constant(turn * workgroups))
    body = Block(arg_types=[IndexType(), IndexType()])
    place, at = body.args
    inside = builder_at_end(body, frame.symbols)
    at = consume(frame, inside, known, me, place, at)
    for _ in range(turns - 1):
        at = frame.ring.advance(inside, at, steps)
    body.add_op(scf.YieldOp(at))
    step = index.constant(turns * workgroups)
    index.builder.insert(scf.ForOp(first, index.expression(tiles), step, [slot], body))
    block.add_op(pipe.EndRoleOp())
    return Region(block)


def _bounds(frame: RoleFrame, known: dict[SSAValue, SSAValue]) -> list[SSAValue]:
    loop = frame.parts.loop
    return [known.get(v, v) for v in (loop.lb, loop.ub, loop.step)]


def _late_consumer(frame: RoleFrame, tiles: Expr, late: LateStores) -> Region:
    """A consumer whose tiles leave under the next one's first steps; the last one's boxes leave at the end.

    Where tiles have two widths, those of each are a loop of their own.
    """
    block = Block()
    index, known = start_of_role(frame.parts.fixed, frame.symbols, block)
    me = frame.consumer(index, 0)
    carried = [index.constant(0), *late.start(index)]
    first, workgroups = index.insert(tile.ProgramIdOp(0)), frame.plan.workgroups
    for width, end in tile_widths(frame.mixed, tiles):
        body = Block(arg_types=[IndexType(), *(v.type for v in carried)])
        place, slot, *before = body.args
        at, boxes = consume_late(frame, builder_at_end(body, frame.symbols), known, me, place, slot, late, before, width)
        body.add_op(scf.YieldOp(at, *boxes))
        loop = scf.ForOp(first, index.expression(end), index.constant(workgroups), carried, body)
        index.builder.insert(loop)
        carried = list(loop.results)
        # The first of this workgroup's tiles that is not below the loop's end.
        reached = index.insert(arith.MaxSIOp(index.add(index.expression(end), index.constant(workgroups - 1)), first))
        rounds = index.divide(index.subtract(reached, first), index.constant(workgroups))
        first = index.add(first, index.multiply(rounds, workgroups))
    left = {**known, **me.scratch, **dict(zip(late.values(), carried[1:], strict=True))}
    for box in late.boxes:
        late.emit(index, box, left)
    block.add_op(pipe.EndRoleOp())
    return Region(block)


def _add_roles(plan: RolePlan, groups: int, warps: int, block: Block, regions: list[Region]) -> None:
    turns, registers = plan.ping_pong, [plan.producer_registers, *[plan.consumer_registers] * plan.ping_pong]
    names = ["consumer"] if turns == 1 else [f"consumer{turn}" for turn in range(turns)]
    ping_pong = range(1, turns + 1) if turns > 1 else ()
    counts = [PRODUCER_WARPS, *[warps] * turns], [1, *[groups] * turns]
    block.add_op(pipe.RolesOp(["producer", *names], *counts, regions, registers, ping_pong))
    block.add_op(tile.ReturnOp())
