"""Tiling of contractions: a grid of m by n tiles (and whatever other parallel axes there are), a loop along k.

Contractions that share an operand are all in the loop, with a tile of accumulators each; the shared operand's tile is one value.
"""

from collections.abc import Sequence

from treadle.analysis.group_runs import ListedRuns, Runs, runs_along
from treadle.analysis.indexing import Contraction, StructuredOp
from treadle.analysis.window_steps import window_steps
from treadle.dialects import dispatch, pipe, tile
from treadle.ir.builtin import number_attr
from treadle.ir.core import AffineMap, Attribute, Block, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.plan.expr import Expr, ceil_div, constant, minimum, product
from treadle.plan.f32_split import IN_KERNEL
from treadle.plan.mixed_widths import MixedWidths
from treadle.records import dataclass
from treadle.transforms.kernel.forms.contraction import ContractionConfig
from treadle.transforms.kernel.tiling.accumulation import accumulate, accumulate_parts, scale_of
from treadle.transforms.kernel.tiling.builder import UNIT, Frame, KernelBuilder
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, delinearize, grouped_raster
from treadle.transforms.kernel.tiling.joins import Initial, sum_of, with_initial
from treadle.transforms.kernel.tiling.loops import reduction_loops
from treadle.transforms.kernel.tiling.masks import mask_tail
from treadle.transforms.kernel.tiling.merging import finish
from treadle.transforms.kernel.tiling.overlaps import overlapping
from treadle.transforms.kernel.tiling.scalars import convert, dense
from treadle.transforms.kernel.tiling.tile_blocks import mixed_place


@dataclass(frozen=True, slots=True)
class TileCounts:
    """The tiles of a kernel: how many along m and n, and along each of the other parallel axes `others`; or `mixed`, of two widths. `runs`:
    the groups that the tiles along m and n belong to, where they are numbered together.
    """

    m: Expr
    n: Expr
    others: tuple[int, ...]
    along_others: tuple[Expr, ...]
    mixed: MixedWidths | None
    runs: tuple[Runs | ListedRuns | None, Runs | ListedRuns | None]

    @property
    def total(self) -> Expr:
        """All of them."""
        return product([*self.along_others, self.m, self.n]) if self.mixed is None else constant(self.mixed.tiles)


def _tile_counts(kernel: KernelBuilder, config: ContractionConfig, mixed: MixedWidths | None) -> TileCounts:
    (m_axis, n_axis, _), (tile_m, tile_n, _) = config.axes, config.tile
    sides = ((m_axis, tile_m * config.groups, config.tiles_together[0]), (n_axis, tile_n, config.tiles_together[1]))
    # Neighbours of a cluster have one group.
    of_m, of_n = (_runs(kernel, axis, step) if together == 1 and mixed is None else None for axis, step, together in sides)
    if of_m is not None and of_n is not None and of_m.block == of_n.block:
        of_n = None  # a number along one side tells the group
    walked = {runs.block for runs in (of_m, of_n) if runs is not None}
    others = tuple(
        i
        for i, axis in enumerate(kernel.nest.axes)
        if not axis.is_reduction and i not in (m_axis, n_axis) and not (axis.block and axis.block in walked)
    )
    count_m, count_n = (
        ceil_div(kernel.axis_bound(axis), step * together) * together if runs is None else runs.numbers(step)
        for runs, (axis, step, together) in zip((of_m, of_n), sides, strict=True)
    )
    return TileCounts(count_m, count_n, others, tuple(kernel.axis_bound(a) for a in others), mixed, (of_m, of_n))


def _runs(kernel: KernelBuilder, axis: int, step: int) -> Runs | ListedRuns | None:
    """The groups along an axis; None where each is known to have as many tiles, which are numbered group by group."""
    runs = runs_along(kernel.nest, axis)
    return None if isinstance(runs, ListedRuns) and len(set(runs.tiles(step))) == 1 else runs


def _place(kernel: KernelBuilder, config: ContractionConfig, counts: TileCounts, number: SSAValue) -> SSAValue | None:
    """Set the offsets of all parallel axes for the tile of that number; whether it has elements, None where all have."""
    index = kernel.index
    (m_axis, n_axis, _), (tile_m, tile_n, _) = config.axes, config.tile
    if counts.mixed is not None:
        row, kernel.offset[n_axis] = mixed_place(index, number, counts.mixed, config.group_m)
        kernel.offset[m_axis] = _begin(kernel, config, 0, tile_m * config.groups, row)
        _own_rows(kernel, config)
        return None
    m_tiles, n_tiles = index.expression(counts.m), index.expression(counts.n)
    sizes = {axis: index.expression(count) for axis, count in zip(counts.others, counts.along_others, strict=True)}
    # Columns that take several axes are one plane with the rows, for reuse in the cache.
    columns = [axis for axis in counts.others if kernel.nest.axes[axis].role == "n"]
    batch = [axis for axis in counts.others if axis not in columns]
    across = index.product([*(sizes[axis] for axis in columns), n_tiles])
    if config.parts_together > 1:  # the parts of a tile are neighbours: a cluster
        parts = [axis for axis in batch if kernel.nest.axes[axis].block]
        batch = [axis for axis in batch if axis not in parts]
        number, *inner = delinearize(index, number, [index.product([m_tiles, across]), *(sizes[axis] for axis in parts)])
        for axis, place in zip(parts, inner, strict=True):
            kernel.offset[axis] = place
    *outer, plane = delinearize(index, number, [*(sizes[axis] for axis in batch), index.product([m_tiles, across])])
    # Who arrives at which counter is proven where tiles are numbered by constants; the last group of rows may be smaller than the others,
    # but for groups that are clusters.
    arrives, together = dispatch.MERGE in kernel.kernel.attributes and config.parts_together == 1, config.tiles_together
    m_place, n_place = _raster(index, plane, (m_tiles, across), together[0] if arrives else config.group_m, together)
    *blocks, n_place = delinearize(index, n_place, [*(sizes[axis] for axis in columns), n_tiles])
    for axis, place in zip([*batch, *columns], [*outer, *blocks], strict=True):
        kernel.offset[axis] = place
    sides = ((m_axis, tile_m * config.groups, m_place), (n_axis, tile_n, n_place))
    for side, ((axis, extent, place), runs) in enumerate(zip(sides, counts.runs, strict=True)):
        if runs is not None:
            kernel.offset[axis] = index.multiply(kernel.enter_run(runs, place, extent), extent)
        elif axis != UNIT:
            kernel.offset[axis] = _begin(kernel, config, side, extent, place)
    kernel.settle_blocks()
    found = _has_elements(kernel, config, counts)
    if found is not None and kernel.kernel.reads:
        found = index.insert(tile.OpaqueOp(found))  # what a table may say makes many cases, and either way is right in each
    _own_rows(kernel, config)
    return found


def _begin(kernel: KernelBuilder, config: ContractionConfig, side: int, extent: int, place: SSAValue) -> SSAValue:
    """Where the tile at a `place` along m (side 0) or n (1) begins."""
    axis = config.axes[side]
    size = kernel.axis_size(axis).as_int()
    if side not in config.overlaps_ends or size is None or size < extent or size % extent == 0:
        return kernel.index.multiply(place, extent)
    begin, kernel.stored_ends[axis] = overlapping(kernel.index, place, extent, size)
    return begin


def _raster(
    index: IndexBuilder, plane: SSAValue, counts: tuple[SSAValue, SSAValue], group: int, together: tuple[int, int]
) -> tuple[SSAValue, SSAValue]:
    """The place of a tile of a plane, in which so many neighbours along m and n, a cluster, follow one another, those along m first.
    `group`: rows of tiles that are walked together.
    """
    along_m, along_n = together
    if along_n == 1 or group <= 1:
        return grouped_raster(index, plane, *counts, group)
    if along_m == 1:
        m_place, n_place = grouped_raster(index, index.divide(plane, along_n), counts[0], index.divide(counts[1], along_n), group)
        return m_place, index.add(index.multiply(n_place, along_n), index.remainder(plane, along_n))
    rank, cluster = index.remainder(plane, along_m * along_n), index.divide(plane, along_m * along_n)
    clusters_m, clusters_n = index.divide(counts[0], along_m), index.divide(counts[1], along_n)
    m_place, n_place = grouped_raster(index, cluster, clusters_m, clusters_n, max(1, group // along_m))
    m_place = index.add(index.multiply(m_place, along_m), index.remainder(rank, along_m))
    return m_place, index.add(index.multiply(n_place, along_n), index.divide(rank, along_m))


def _has_elements(kernel: KernelBuilder, config: ContractionConfig, counts: TileCounts) -> SSAValue | None:
    """Whether the workgroup's tile lies within its block, where blocks have different sizes of an axis, and some numbers have no tile."""
    index, found = kernel.index, None
    for axis, runs in zip(config.axes[:2], counts.runs, strict=True):
        if axis != UNIT and kernel.nest.axes[axis].reach is not None and not isinstance(runs, ListedRuns):
            inside = index.insert(arith.CmpiOp(kernel.offset[axis], index.expression(kernel.axis_size(axis)), "slt"))
            found = inside if found is None else index.insert(arith.AndIOp(found, inside))
    return found


def _own_rows(kernel: KernelBuilder, config: ContractionConfig) -> None:
    """Move on from the rows of the workgroup's tile to those of this group of warps."""
    m_axis, index = config.axes[0], kernel.index
    if config.groups > 1 and m_axis != UNIT:
        own = index.multiply(index.insert(pipe.GroupIdOp()), config.tile[0])
        kernel.offset[m_axis] = index.add(kernel.offset[m_axis], own)


def _operand(
    kernel: KernelBuilder, root: StructuredOp, kind: Contraction, number: int, frame: Frame, target: Attribute, k_axis: int
) -> SSAValue:
    """One operand's tile over `frame`, in the type the products are formed in, zero past the end of k."""
    dims = kernel.reached(root.input_maps[number])
    evaluator = kernel.evaluator(frame)
    source = kernel.value(root.inputs[number], dims, frame)
    cast = kind.lhs_cast if number == kind.lhs else kind.rhs_cast
    value = evaluator.materialize(convert(evaluator, source, target, unsigned=cast == "arith.extui"), frame.extents)
    if k_axis not in kernel.masked_axes(root.inputs[number], dims):
        value = mask_tail(kernel, value, frame, [k_axis], number_attr(0, target))
    return value


def build_contraction(
    kernel: KernelBuilder,
    kind: Contraction,
    config: ContractionConfig,
    *,
    workgroups: int = 0,
    mixed: MixedWidths | None = None,
    has_roles: bool = False,
    split: str = "",
    places_inside: bool = False,
    in_turn: bool = False,
) -> tuple[Expr, Expr, Expr]:
    """Emit the kernel; returns its grid.

    `workgroups`: how many take all tiles in turn, 0 for one a tile. `mixed`: where tiles of two widths lie; those of the narrower one
    compute, and store again, columns of their neighbours. `has_roles`: copies and arithmetic will go to different warps.
    `split`: the name of the split of operands of f32 whose parts are multiplied; "" where they are multiplied as they are.
    `places_inside`: of a convolution, all places of the window are taken for one step of channels. `in_turn`: the tile is one of several
    that roles take in turn.
    """
    index, (k_axis, tile_k) = kernel.index, (config.axes[2], config.tile[2])
    if places_inside and (steps := window_steps(kernel.nest, k_axis, tile_k)) is not None:
        kernel.interleaved[k_axis] = (steps, tile_k)
    counts = _tile_counts(kernel, config, mixed)
    first = index.insert(tile.ProgramIdOp(0))
    if not workgroups:
        where = _place(kernel, config, counts, first)
        if in_turn and kernel.kernel.reads:
            where = None  # in a loop over tiles no proof knows how many steps each has
        _build_tile(kernel, kind, config, where, has_roles=has_roles, split=split)
        return counts.total, constant(1), constant(1)
    block = Block(arg_types=[builtin.IndexType()])
    index.builder.insert(scf.ForOp(first, index.expression(counts.total), index.constant(workgroups), [], block))
    place = kernel.enter(block)
    where = _place(kernel, config, counts, block.args[0])
    _build_tile(kernel, kind, config, where, has_roles=has_roles, split=split)
    index.builder.insert(scf.YieldOp())
    kernel.leave(place)
    return minimum(counts.total, constant(workgroups)), constant(1), constant(1)


def _build_tile(
    kernel: KernelBuilder, kind: Contraction, config: ContractionConfig, where: SSAValue | None, *, has_roles: bool, split: str = ""
) -> None:
    """Emit the program of one tile. `where`: whether it has elements; sums of one that has none take no steps."""
    nest, index, roots = kernel.nest, kernel.index, kernel.nest.roots
    (m_axis, n_axis, k_axis), (tile_m, tile_n, tile_k) = config.axes, config.tile
    a_frame, b_frame = Frame((m_axis, k_axis), (tile_m, tile_k)), Frame((k_axis, n_axis), (tile_k, tile_n))
    c_frame = Frame((m_axis, n_axis), (tile_m, tile_n))
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    loops = [(a, 1) for a in reduced if a != k_axis] + ([(k_axis, tile_k)] if k_axis != UNIT else [])
    if len(loops) > 1 and kernel.axis_size(k_axis).as_int() == tile_k:
        del loops[-1]  # one step: the loop around it is the one that copies and arithmetic share
        kernel.offset[k_axis] = index.constant(0)
    if nest.share is not None:  # of the longest loop
        axis, length = max(loops, key=lambda loop: -(-(kernel.axis_size(loop[0]).as_int() or 0) // loop[1]))
        kernel.shares[axis] = nest.share.steps(kernel.axis_size(axis), length)
    multiplied = ("f32", "f32") if split else (config.a_type, config.b_type)
    a_type, b_type, acc_type = (kernel.element_type(name) for name in (*multiplied, config.accumulator_type))

    def step(carried: Sequence[SSAValue]) -> list[SSAValue]:
        made: dict[tuple[SSAValue, AffineMap, int], SSAValue] = {}

        def operand(root: StructuredOp, number: int, frame: Frame, target: Attribute) -> SSAValue:
            key = (root.inputs[number], root.input_maps[number], number)
            if key not in made:
                kernel.reads_beyond = has_roles  # copies know the ends of arrays alone
                made[key] = _operand(kernel, root, kind, number, frame, target, k_axis)
                kernel.reads_beyond = False
            return made[key]

        operands = [(operand(root, kind.lhs, a_frame, a_type), operand(root, kind.rhs, b_frame, b_type)) for root in roots]
        if split:
            name, parts, promoted = config.instruction, IN_KERNEL[split], config.is_promoted
            pairs = zip(operands, carried, strict=True)
            return [accumulate_parts(index, pair, total, name, parts, promoted=promoted) for pair, total in pairs]
        scales = [scale_of(kernel, root, kind, c_frame) for root in roots]
        return accumulate(index, operands, carried, config.instruction, scales, promoted=config.is_promoted)

    start_tiles = [index.insert(dense(number_attr(0, acc_type), acc_type, c_frame.extents)) for _ in roots]
    # Roles hand over whatever the loop copies, so they need it even around a single step.
    kernel.steps_where = where if has_roles else None
    totals = reduction_loops(kernel, loops, start_tiles, step, always=has_roles)
    for root, total in zip(roots, totals, strict=True):
        kernel.known[root.op.results[0]] = with_initial(kernel, Initial(root), total, c_frame, sum_of(acc_type))
    of_m, of_n = config.tiles_together
    finish(kernel, c_frame, (config.groups * of_m, of_n), config.parts_together)
