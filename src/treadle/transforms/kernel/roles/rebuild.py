"""Rebuilding one kernel's body as roles: buffers in front, then each role's loop over tiles, or its one tile."""

from treadle.dialects import pipe, tile
from treadle.dialects.role_plan import RolePlan
from treadle.dialects.stages import TURNS
from treadle.errors import InternalError
from treadle.ir.builtin import IntegerAttr
from treadle.ir.core import Block, Builder, InsertPoint, Region, SSAValue
from treadle.machine import TargetSpec
from treadle.plan.expr import as_expr, constant, minimum
from treadle.plan.mixed_widths import MixedWidths
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import erase_if_unused
from treadle.transforms.kernel.roles.deferred_consumer import deferred_consumer
from treadle.transforms.kernel.roles.deferred_stores import DeferredStores, deferred_stores
from treadle.transforms.kernel.roles.partition import Partition
from treadle.transforms.kernel.roles.parts import Parts, parts_of, read_indices
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, delinearize


def rebuild_as_roles(kernel: tile.KernelOp, spec: TargetSpec, plan: RolePlan) -> None:
    """Replace a kernel's body."""
    if plan.takes_turns:
        _number_tiles(kernel)
    _hoist_buffers(kernel)
    first, *others = kernel.grid_text()
    tiles = as_expr(first)
    block, groups, warps = kernel.body.block, kernel.group_count(), kernel.num_warps.value.data
    partition = Partition(kernel, plan, _symbols(kernel))
    deferred = _deferred(kernel, warps * spec.subgroup_size) if plan.deferred_stores else None
    top, ahead = list(block.ops), [] if plan.takes_turns else read_indices(kernel)
    for op in top:
        op.detach()
    for op in partition.fixed:
        block.add_op(op)
    for op in ahead:
        if op not in partition.fixed:
            block.add_op(op)
    partition.allocate(block)
    regions = [partition.region(tiles, "producer")]
    if plan.split_slots:
        regions.append(partition.region(tiles, "splitter"))
    if deferred is None:
        regions += [partition.region(tiles, "consumer", turn) for turn in range(plan.ping_pong)]
    else:
        regions.append(deferred_consumer(partition, *deferred, _mixed_widths(kernel), tiles))
    # Of a producer of bulk copies one thread works, but registers move by groups.
    producer_warps = 1 if spec.register_moves is None else spec.register_moves.warps * plan.copying_groups
    _add_roles(plan, (producer_warps, groups, warps), block, regions)
    for op in top:
        if op.parent is None:
            op.erase(safe_erase=False, drop_references=True)
    for op in reversed(partition.fixed):
        erase_if_unused(op)
    kernel.properties["num_warps"] = IntegerAttr(
        producer_warps + (plan.ping_pong * groups + bool(plan.split_slots)) * warps, kernel.num_warps.type
    )
    kernel.properties.pop("groups", None)
    if plan.cluster > 1:
        kernel.properties["cluster"] = IntegerAttr(plan.cluster, kernel.num_warps.type)
    kernel.set_grid([str(tiles if partition.takers is None else minimum(tiles, partition.takers)), *others])
    kernel.attributes.pop(TURNS, None)


def _hoist_buffers(kernel: tile.KernelOp) -> None:
    """Buffers of nested blocks, too, are one for each group, in front of the roles."""
    block = kernel.body.block
    for op in list(kernel.body.walk()):
        if isinstance(op, tile.AllocOp) and op.parent is not block and block.first_op is not None:
            op.detach()
            block.insert_op_before(op, block.first_op)


def _number_tiles(kernel: tile.KernelOp) -> None:
    """Tiles that workgroups take in turn lie along one axis of the grid, the first of its axes running fastest."""
    counts = [as_expr(text) for text in kernel.grid_text()]
    if counts[1:] == [constant(1)] * 2:
        return
    first = kernel.body.block.first_op
    if first is None:
        return
    index = IndexBuilder(Builder(InsertPoint.before(first)), _symbols(kernel))
    ids = [op for op in kernel.walk() if isinstance(op, tile.ProgramIdOp)]
    number = index.insert(tile.ProgramIdOp(0))
    places = delinearize(index, number, [index.expression(count) for count in reversed(counts)])[::-1]
    for op in ids:
        op.result.replace_all_uses_with(places[op.axis.value.data])
        op.detach()
        op.erase()
    kernel.set_grid([str(counts[0] * counts[1] * counts[2]), "1", "1"])


def _mixed_widths(kernel: tile.KernelOp) -> MixedWidths | None:
    config = config_of(kernel)
    return config.mixed_widths if isinstance(config, roles.Config) else None


def _symbols(kernel: tile.KernelOp) -> dict[str, SSAValue]:
    """The kernel's index arguments by name."""
    names, arguments = kernel.symbol_names(), kernel.body.block.args
    return dict(zip(names, arguments[len(arguments) - len(names) :], strict=True))


def _deferred(kernel: tile.KernelOp, threads: int) -> tuple[Parts, DeferredStores]:
    """The pieces of a kernel whose stores are deferred."""
    parts = parts_of(kernel)
    deferred = deferred_stores(parts, threads)
    if isinstance(deferred, str):
        raise InternalError(f"the role plan defers stores, but {deferred}")
    return parts, deferred


def _add_roles(plan: RolePlan, sizes: tuple[int, int, int], block: Block, regions: list[Region]) -> None:
    producer_warps, groups, warps = sizes
    turns, splits = plan.ping_pong, [warps] if plan.split_slots else []
    registers = [plan.producer_registers, *[plan.splitter_registers for _ in splits], *[plan.consumer_registers] * turns]
    names = ["splitter" for _ in splits] + (["consumer"] if turns == 1 else [f"consumer{turn}" for turn in range(turns)])
    ping_pong = range(1, turns + 1) if turns > 1 else ()
    counts = [producer_warps, *splits, *[warps] * turns], [1, *[1 for _ in splits], *[groups] * turns]
    block.add_op(pipe.RolesOp(["producer", *names], *counts, regions, registers, ping_pong))
    block.add_op(tile.ReturnOp())
