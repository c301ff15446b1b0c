"""swapped: a contraction with a small side whose large operand takes the wide side of the matrix instruction, behind a ring of roles."""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.loop_nest import LoopNest, split_axis
from treadle.analysis.small_side import SmallSide
from treadle.plan.form_times import seconds
from treadle.plan.small_m import SmallShape, SwappedTile, swapped_clocks, swapped_tile
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.contraction import contraction_of, merging_seconds, merging_text
from treadle.transforms.kernel.forms.form import Choice, Grid
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.contraction import build_contraction

NAME = "swapped"
KIND = "contraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(roles.Config):
    """`is_swapped`: A and B are exchanged (`axes`, `tile` and types are those of the exchanged problem); where the small side is n they lie
    right as they are. `split_axis`, `split_step`: the axis of which a tile takes `split_step` (0: a whole tile) of the instruction's rows.
    """

    form: ClassVar[str] = NAME
    is_swapped: bool = True
    split_axis: int = -1
    split_step: int = 0

    def nest_of(self, nest: LoopNest) -> LoopNest:
        return split_axis(nest, self.split_axis, self.split_step) if self.split_step else nest

    def relieved(self, problem: KernelProblem) -> "Config":
        return self


def refusal(problem: KernelProblem) -> str | None:
    """See `Form`."""
    side = problem.small_side
    if isinstance(side, str):
        return side
    if not problem.overrides.roles:
        return "roles are turned off"
    if min(side.few_axis, side.many_axis) < 0:
        return "one side is no axis"
    if problem.overrides.form != NAME and (reason := side.refusal(problem.overrides)) is not None:
        return reason
    return problem.descriptor_refusal


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    side = problem.small_side
    tile = None if isinstance(side, str) else _tile(problem, side)
    if tile is None or isinstance(side, str):
        return []
    is_swapped, (m_axis, n_axis, k_axis) = side.few_role == "m", problem.axes
    shape, types, spec = side.shape, problem.types, problem.spec
    cluster = problem.overrides.cluster
    config = Config(
        axes=(n_axis, m_axis, k_axis) if is_swapped else problem.axes,
        tile=(tile.rows, tile.few, tile.k),
        warps=(tile.warps, 1),
        instruction=types.instruction,
        a_type=types.b if is_swapped else types.a,
        b_type=types.a if is_swapped else types.b,
        accumulator_type=types.accumulator,
        is_promoted=problem.is_promoted,
        is_swapped=is_swapped,
        num_stages=tile.slots,
        keeps_cache=problem.may_keep_cache,
        workgroups=0 if problem.overrides.persistent == "never" or not problem.may_take_turns else spec.compute_units,
        cluster=cluster if cluster > 1 and _may_cluster(cluster, tile, shape) else 1,
        parts_together=problem.parts_together(tile.rows) if tile.step == tile.rows else 1,
        split_axis=side.many_axis if tile.step < tile.rows else -1,
        split_step=tile.step if tile.step < tile.rows else 0,
    )
    tiles = "" if shape.many is None else f", {-(-shape.batch * shape.many // tile.step)} tiles for {spec.compute_units} units"
    what = problem.operands_text + (f", promoted every {tile.k} along k" if problem.is_promoted else "")
    kilobytes = shape.roots * tile.slots * tile.step * tile.k * shape.large_bytes // 1024
    text = (
        f"{what}: {'swapped operands' if is_swapped else 'narrow tiles'}: the large one on the instruction's side of "
        f"{tile.rows}, {tile.step} rows a tile{tiles}; tile {tile.rows}x{tile.few}x{tile.k}, a ring of {tile.slots} stages keeps "
        f"{kilobytes} KiB of it in flight"
    )
    text += merging_text(problem, config)
    merging = merging_seconds(problem, tile.rows * tile.few, config.parts_together)
    return [Choice(config, seconds(swapped_clocks(tile, shape, spec), spec) + merging, text)]


def _tile(problem: KernelProblem, side: SmallSide) -> SwappedTile | None:
    """The best tile as far as nothing else is asked for; None where no ring fits."""
    asked = problem.overrides
    m, n, k = (*asked.tile, 0, 0, 0)[:3] if asked.form == NAME else (0, 0, 0)
    # Promoted accumulators are added up once a slot: it stays short.
    # Parts of blocks are whole steps of one span, and may be no whole steps of two.
    in_parts = problem.nest.axes[side.k_axis].reach is not None
    k = k or (problem.spec.slot_row_bytes // side.shape.large_bytes if problem.is_promoted or in_parts else 0)
    row = problem.spec.instruction(problem.types.instruction)
    tile = swapped_tile(row, side.shape, problem.spec, n if side.few_role == "m" else m, k)
    return replace(tile, slots=asked.num_stages) if tile is not None and asked.num_stages else tile


def _may_cluster(cluster: int, tile: SwappedTile, shape: SmallShape) -> bool:
    """Whether consecutive tiles always have one set of columns, and whole clusters cover them."""
    return shape.many is not None and shape.few <= tile.few and (-(-shape.many // tile.step)) % cluster == 0


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    kind = contraction_of(kernel)
    return build_contraction(kernel, kind.swapped() if config.is_swapped else kind, config, has_roles=True)
